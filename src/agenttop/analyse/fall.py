"""The cliff: the level from which things are worse for good, and what the series say of its cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.curve import concave, falling
from agenttop.analyse.noise import Noise
from agenttop.analyse.points import LevelPoint
from agenttop.analyse.pool import Pooled
from agenttop.model import units

DROP = 0.05
"""Throughput this far below the best level."""

STANDARD_ERRORS = 3.5
ALONE = 4.5
"""A drop counts from so many of its standard errors on; from more where only the last level shows it. Noise
is itself an estimate, and a drop is looked for at every level: hence more than the usual two or three."""

FEW_LEVELS = 4.0
"""Where only the curve itself tells the noise, the estimate of few levels is too small as often as not, since
the curve follows them: with n levels the bound is higher by this over n."""

HITS_LOST = 0.10
"""Loss of prefix hits, as a share of all prompt tokens, against the best smaller level."""

KV_FULL = 0.98

REFUSED_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that got worse, and from which level on."""

    agents: int
    cause: str
    why: str


def signs(
    points: Sequence[LevelPoint], levels: Sequence[Pooled], noise: Noise, measure: str = "decode_tok_s"
) -> list[Sign]:
    """All signs of a cliff, the one at the smallest level first; of one level, the deeper cause first.

    `points`: one per level, merged, those not valid included; `levels` those whose throughput, `measure`, is
    judged.
    """
    dropped = _dropped(levels, noise) or _ceased(points, levels, measure)
    found = [_full(points), _preempted(points), _hits(points), _refused(points), dropped]
    return sorted((sign for sign in found if sign is not None), key=lambda sign: sign.agents)


def drop_index(levels: Sequence[Pooled], noise: Noise) -> tuple[int, float] | None:
    """The first level below the best beyond noise and for good, and how far it lies below, as a share."""
    strongest: list[tuple[float, int, float]] = []
    wider = 1 + FEW_LEVELS / len(levels) if noise.source in ("curve", "assumed") and levels else 1.0
    agents = [float(level.agents) for level in levels]
    values = [level.value for level in levels]
    for index in range(1, len(levels)):
        before = concave(agents[:index], values[:index]).fitted
        top = max(before)
        if top <= 0:
            # No curve through the origin is near them: a fall beyond all measure.
            top = max(values[:index])
        alike = max(1, sum(value >= 0.9 * top for value in before))
        (value, count), *_ = falling(values[index:])
        # The tail counts as far as it stays down: one level that recovers is no cliff.
        drop = 1 - value / top
        size = noise.of_levels[index]
        error = math.hypot(size * value / math.sqrt(count), noise.typical * top / math.sqrt(alike))
        strength = (top - value) / error if error > 0 else 0.0
        if drop > DROP and strength > wider * (STANDARD_ERRORS if count > 1 else ALONE):
            strongest.append((strength, index, drop))
    if not strongest:
        return None
    most = max(strength for strength, _, _ in strongest)
    return next((index, drop) for strength, index, drop in strongest if strength >= most / 2)


def _dropped(levels: Sequence[Pooled], noise: Noise) -> Sign | None:
    found = drop_index(levels, noise)
    if found is None:
        return None
    index, drop = found
    last = levels[index].agents == levels[-1].agents
    hold = "; no larger level was tested" if last else "; larger levels stay below"
    return Sign(
        levels[index].agents,
        "throughput",
        f"throughput lies {units.percent(drop)} below the best smaller level, noise is"
        f" {units.percent(noise.typical)}{hold}",
    )


def _ceased(points: Sequence[LevelPoint], levels: Sequence[Pooled], measure: str) -> Sign | None:
    """The first level from which on nothing is produced any more: too low to be part of any curve."""
    if not levels:
        return None
    beyond = [point for point in points if point.agents > levels[-1].agents and point.valid]
    none = [point for point in beyond if getattr(point, measure) is not None]
    if not none:
        return None
    return Sign(none[0].agents, "throughput", f"nothing was produced, {levels[-1].agents} produced something")


def _full(points: Sequence[LevelPoint]) -> Sign | None:
    for point in points:
        if point.kv_max_fraction is not None and point.kv_max_fraction >= KV_FULL:
            return Sign(
                point.agents, "KV pool full", f"the KV pool was {units.percent(point.kv_max_fraction)} full"
            )
    return None


def _preempted(points: Sequence[LevelPoint]) -> Sign | None:
    for point in points:
        if point.preemptions:
            much = f"{point.preemptions:g} preemption{'' if point.preemptions == 1 else 's'}"
            return Sign(point.agents, "preemptions", f"the engine made {much}")
    return None


def _hits(points: Sequence[LevelPoint]) -> Sign | None:
    known = [point for point in points if point.prefix_hit_fraction is not None and point.valid]
    best = 0.0
    for index, point in enumerate(known):
        after = [other.prefix_hit_fraction or 0.0 for other in known[index:]]
        if best - max(after) > HITS_LOST:
            lost = f"{units.percent(best)} to {units.percent(point.prefix_hit_fraction)}"
            return Sign(point.agents, "prefix hits lost", f"prefix hits fall from {lost}")
        best = max(best, point.prefix_hit_fraction or 0.0)
    return None


def _refused(points: Sequence[LevelPoint]) -> Sign | None:
    for point in points:
        if point.engine_away is not None:
            continue  # nobody was there to answer: that has other reasons than too many agents
        if point.refused and point.requests and point.refused > REFUSED_SHARE * point.requests:
            some = f"{point.refused} of {point.requests} requests"
            return Sign(point.agents, "requests refused", f"the engine refused or failed {some}")
    return None
