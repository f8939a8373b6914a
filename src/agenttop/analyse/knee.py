"""Knee, cliff and capacity of a curve over agents. Pure: points go in, a report comes out.

Three figures, since no single number does (docs/analysis.md): where further agents stop paying, where
things break, and how many can be served as promised. Each may be none, and says on what it rests.
"""

from __future__ import annotations

from collections.abc import Sequence

from agenttop.analyse import bending, fall, usl
from agenttop.analyse.capacity import capacity
from agenttop.analyse.noise import Noise, estimate
from agenttop.analyse.points import LevelPoint, Served
from agenttop.analyse.pool import Pooled, chosen_measure, merged, pooled
from agenttop.analyse.report import Cliff, Floor, Knee, KneeReport, SecondOpinion
from agenttop.analyse.room import predict_cliff
from agenttop.analyse.sentence import in_one_sentence, throttled
from agenttop.analyse.slo import Slo, parse_slo
from agenttop.analyse.stats import median
from agenttop.errors import AgenttopError
from agenttop.model import units

__all__ = ["KneeReport", "LevelPoint", "Served", "analyse", "predict_cliff"]

FLOOR_SHARE = 0.06
"""Per-agent rates within this of their median do not fall any further."""

FLOOR_LEVELS = 3
FLOOR_SPREAD = 1.5
"""A floor is seen on so many levels, up to so many times the agents it begins with."""

FLOOR_FALL = 1.10
"""What the per-agent rate fell to is a floor if it began this much higher."""


def analyse(
    points: Sequence[LevelPoint],
    *,
    slo: Slo | str | None = None,
    measure: str | None = None,
    seed: int = 0,
    draws: int = bending.DRAWS,
) -> KneeReport:
    """The report on levels in any order, repetitions welcome.

    `measure`: decode_tok_s or completions_per_min, see `pool.chosen_measure`. `seed` fixes the `draws`
    behind the interval of the knee; they cost most of the time, and none leave the tested levels around it.
    Raises AgenttopError, one sentence, for numbers that cannot be, and for no level at all.
    """
    if not points:
        raise AgenttopError("there is no level to judge")
    bound = parse_slo(slo) if isinstance(slo, str) else slo
    measure = chosen_measure(points, measure)
    levels, left_out = pooled(points, measure)
    together = merged(points)
    noise = estimate(levels, seed)
    dropped = fall.drop_index(levels, noise)
    if len(levels) > 1:
        knee, steps = bending.knee(levels, noise, dropped[0] if dropped else None, seed, draws)
    else:
        knee, steps = _too_few(levels), []
    cliff = _cliff(together, levels, noise, measure)
    floor = _floor(together)
    held = capacity(together, bound) if bound is not None else None
    return KneeReport(
        measure=measure,
        noise_fraction=noise.typical if len(levels) > 1 else None,
        noise_from=noise.source,
        knee=knee,
        cliff=cliff,
        capacity=held,
        scaling=usl.fit([float(level.agents) for level in levels], [level.value for level in levels]),
        floor=floor,
        steps=steps,
        left_out=left_out,
        throttled=throttled(together),
        sentence=in_one_sentence(knee, cliff, floor, held, together, [level.agents for level in levels]),
    )


def _too_few(levels: Sequence[Pooled]) -> Knee:
    have = "no level can be judged"
    if levels:
        have = f"only one level can be judged, that of {units.plural(levels[0].agents, 'agent')}"
    return Knee(second_opinion=SecondOpinion(why=have), why=f"{have}: a knee needs at least three levels")


def _cliff(points: Sequence[LevelPoint], levels: Sequence[Pooled], noise: Noise, measure: str) -> Cliff:
    found = fall.signs(points, levels, noise, measure)
    tested = [point.agents for point in points]
    if not found and not levels:
        return Cliff(why="no level can be judged", predicted=predict_cliff(points))
    if not found:
        unknown = [
            name
            for name, field in (
                ("preemptions", "preemptions"),
                ("prefix hits", "prefix_hit_fraction"),
                ("KV fill", "kv_max_fraction"),
            )
            if all(getattr(point, field) is None for point in points)
        ]
        seen = "no drop of throughput" + (
            f"; {', '.join(unknown)} not known" if unknown else ", nothing else lost"
        )
        return Cliff(why=f"{seen} up to {levels[-1].agents}", predicted=predict_cliff(points))
    first, *others = found
    fine = [agents for agents in tested if agents < first.agents]
    low = fine[-1] if fine else None
    more = "".join(f"; at {sign.agents}: {sign.why}" for sign in others)
    return Cliff(
        agents=first.agents,
        low=low,
        cause=first.cause,
        why=f"at {first.agents}: {first.why}{more}",
        predicted=predict_cliff(points, (low or 1, first.agents)),
    )


def _floor(points: Sequence[LevelPoint]) -> Floor | None:
    """The per-agent rate that stays, where it fell before and then fell no further."""
    known = [
        (point.agents, point.decode_tok_s_per_agent)
        for point in points
        if point.valid and point.decode_tok_s_per_agent
    ]
    for index in range(1, len(known) - FLOOR_LEVELS + 1):
        rates = [rate for _, rate in known[index:]]
        middle = median(rates)
        assert middle is not None
        level = all(abs(rate - middle) <= FLOOR_SHARE * middle for rate in rates)
        wide = known[-1][0] >= FLOOR_SPREAD * known[index][0]
        if level and wide and known[0][1] >= FLOOR_FALL * middle:
            return Floor(decode_tok_s_per_agent=middle, from_agents=known[index][0])
    return None
