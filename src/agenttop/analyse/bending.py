"""The knee of a curve: from which level on a further agent adds less than a quarter of the first one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse import segmented
from agenttop.analyse.curve import Curve, concave
from agenttop.analyse.noise import Noise, redrawn
from agenttop.analyse.pool import Pooled
from agenttop.analyse.report import Knee, SecondOpinion, Step
from agenttop.model import units

KNEE_SHARE = 0.25

STRENGTH = 2.7
"""How much better the levels must agree with a curve that bends this far than with the best one that does
not, in squared standard errors: the 5 % point for one bound on one slope."""

CONFIRMING = 2
"""Steps between levels beyond the knee: the one that shows it and the one that confirms it."""

FULL_SHARE = 0.95
"""A level with this share of the best total has all of it."""

DRAWS = 200

TAIL = 0.05
"""Of the draws, left out at either end of the interval."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the knee is among the levels that were given. Indices count from 0."""

    index: int | None
    """None: no level from which the curve bends far enough."""
    strength: float
    """Squared standard errors that speak for a bend that far."""
    beyond: int
    """Steps between tested levels beyond it."""
    curve: Curve


def place(agents: Sequence[float], values: Sequence[float], noise: Noise, more_steps: int = 0) -> Place:
    """The first level whose following steps bring less than `KNEE_SHARE` of the first agent's.

    `more_steps`: tested levels beyond the last one given, all known to bring less.
    """
    curve = concave(agents, values)
    index = located(curve, more_steps > 0)
    if index is None:
        return Place(None, 0.0, 0, curve)
    beyond = len(agents) - 1 - index + more_steps
    straight = concave(agents, values, KNEE_SHARE)
    typical = noise.typical
    strength = (straight.error - curve.error) / (typical * typical)
    return Place(index, strength, beyond, curve)


def located(curve: Curve, falls_after: bool) -> int | None:
    """The index of the first level after which the slope stays below the share; None without one."""
    first = curve.slopes[0]
    for index, slope in enumerate(curve.slopes[1:]):
        if slope < KNEE_SHARE * first:
            return index
    return len(curve.agents) - 1 if falls_after else None


def spread(
    levels: Sequence[Pooled], noise: Noise, falls_after: bool, seed: int, draws: int = DRAWS
) -> tuple[int, int]:
    """Indices between which the knee lies in nine of ten draws; the number of levels where it lies beyond.

    Each draw measures all levels again: by their requests where these are known, else by the noise.
    """
    dice = random.Random(seed)
    agents = [float(level.agents) for level in levels]
    found = []
    for _ in range(draws):
        values = [
            level.value * max(0.05, _again(level, size, dice))
            for level, size in zip(levels, noise.of_levels, strict=False)
        ]
        index = located(concave(agents, values), falls_after)
        found.append(len(levels) if index is None else index)
    found.sort()
    return found[int(TAIL * draws)], found[draws - 1 - int(TAIL * draws)]


def _again(level: Pooled, noise: float, dice: random.Random) -> float:
    if len(level.served) >= 30:
        # Many requests tell their own distribution; what they do not show is added as plain noise.
        return redrawn(level.served, dice)
    return 1 + dice.gauss(0, noise)


def steps(curve: Curve) -> list[Step]:
    """What an agent added brought from level to level, as a share of the first one's."""
    first = curve.slopes[0]
    if first <= 0:
        return []
    return [
        Step(start=int(start), end=int(end), gain_fraction=slope / first)
        for start, end, slope in zip(curve.agents, curve.agents[1:], curve.slopes[1:], strict=False)
    ]


def knee(
    levels: Sequence[Pooled], noise: Noise, drop: int | None, seed: int, draws: int = DRAWS
) -> tuple[Knee, list[Step]]:
    """The knee of at least one level, and what each step between levels brought.

    `drop`: index of the first level past a drop of throughput, which proves that agents beyond the levels
    before it bring nothing.
    """
    before = levels[:drop] if drop else levels
    agents, values = [float(level.agents) for level in before], [level.value for level in before]
    found = place(agents, values, noise, len(levels) - len(before))
    gains = steps(found.curve)
    opinion = segmented.bend(agents, values)
    if found.index is None:
        why = f"{_gain(gains)}; a knee begins below {units.percent(KNEE_SHARE)}"
        return Knee(second_opinion=_opinion(opinion, None, before), why=why), gains
    here = before[found.index].agents
    if _one_budget(before, found) and (ceiling := _ceiling(levels)) > 0:
        return _shared(levels, ceiling, _opinion(opinion, ceiling, before)), gains
    if drop is None:
        doubt = None
        if found.strength < STRENGTH:
            doubt = f"the levels scatter by {units.percent(noise.typical)}, too much to be sure"
        elif found.beyond < CONFIRMING:
            doubt = "no further level confirms it"
        if doubt:
            why = f"{_gain(gains)}: it looks like a knee at {here}, but {doubt}"
            return Knee(unconfirmed=here, second_opinion=_opinion(opinion, None, before), why=why), gains
    low, high = _interval(levels, len(before), noise, seed, found.index, draws)
    made = Knee(
        agents=here,
        low=low,
        high=high,
        second_opinion=_opinion(opinion, found.index, before),
        already_past=found.index == 0,
        why=_why(before, found, gains, drop is not None and found.index == len(before) - 1),
    )
    return made, gains


def _why(levels: Sequence[Pooled], found: Place, gains: Sequence[Step], falls: bool) -> str:
    assert found.index is not None
    here = levels[found.index].agents
    base = "the first agent" if levels[0].agents == 1 else f"an agent brings with {levels[0].agents}"
    before = next((step for step in gains if step.end == here), None)
    after = next((step for step in gains if step.start == here), None)
    parts = []
    if before is not None:
        parts.append(f"from {before.start} to {before.end} an agent more brings {_share(before)} of {base}")
    if after is not None:
        parts.append(f"from {after.start} to {after.end} only {_share(after)}")
    if falls:
        parts.append("beyond it the total falls")
    return ", ".join(parts)


def _share(step: Step) -> str:
    return units.percent(max(0.0, step.gain_fraction))


def _gain(gains: Sequence[Step]) -> str:
    if not gains:
        return "nothing to compare"
    last = gains[-1]
    return f"from {last.start} to {last.end} an agent more brings {_share(last)} of the first one's share"


def _one_budget(levels: Sequence[Pooled], found: Place) -> bool:
    """Whether levels that begin with several agents share one total: agents added bring next to nothing."""
    few, many = levels[0], levels[-1]
    if few.agents == 1 or len(levels) < 3 or found.strength < STRENGTH:
        return False
    each = (many.value / few.value - 1) / (many.agents / few.agents - 1)
    return found.index == 0 or each < KNEE_SHARE / 2


def _ceiling(levels: Sequence[Pooled]) -> int:
    """Index of the fewest agents with all of the total."""
    best = max(level.value for level in levels)
    return next(index for index, level in enumerate(levels) if level.value >= FULL_SHARE * best)


def _shared(levels: Sequence[Pooled], ceiling: int, opinion: SecondOpinion) -> Knee:
    """Of levels that all share one total, none of them a single agent: the fewest with all of it."""
    values = [level.value for level in levels]
    moved = max(values) / min(values) - 1
    return Knee(
        agents=levels[ceiling].agents,
        low=levels[0].agents,
        high=levels[ceiling + 1].agents - 1 if ceiling + 1 < len(levels) else levels[ceiling].agents,
        second_opinion=opinion,
        soft_ceiling=True,
        why=f"from {levels[0].agents} to {levels[-1].agents} agents the total moves by only"
        f" {units.percent(moved)}: they share one budget; {levels[ceiling].agents} are the fewest that have"
        f" {units.percent(FULL_SHARE)} of it",
    )


def _interval(
    levels: Sequence[Pooled], count: int, noise: Noise, seed: int, index: int, draws: int
) -> tuple[int, int]:
    """Agents between which the knee lies: between tested levels, and where draws put it.

    `count`: the levels before a drop of throughput.
    """
    lowest, highest = index, index
    if noise.source != "assumed" and draws:
        lowest, highest = spread(levels[:count], noise, count < len(levels), seed, draws)
        lowest, highest = min(lowest, index), max(highest, index)
    low = levels[lowest - 1].agents + 1 if lowest else min(1, levels[0].agents)
    high = levels[highest + 1].agents - 1 if highest + 1 < len(levels) else levels[-1].agents
    return low, max(high, levels[index].agents)


def _opinion(bend: segmented.Bend, index: int | None, levels: Sequence[Pooled]) -> SecondOpinion:
    if len(levels) < segmented.LEAST_LEVELS:
        return SecondOpinion(why=bend.why)
    if bend.agents is None or index is None:
        # A line that is flat from the first level on has its knee there.
        agrees = bend.agents is None and (index == 0 if bend.flat else index is None)
        return SecondOpinion(agents=bend.agents, agrees=agrees, why=bend.why)
    low = levels[max(0, index - 1)].agents
    high = levels[min(len(levels) - 1, index + 1)].agents
    return SecondOpinion(agents=bend.agents, agrees=low <= bend.agents <= high, why=bend.why)
