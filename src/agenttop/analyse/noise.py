"""How far the throughput of a level would scatter if it were measured again."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.curve import concave
from agenttop.analyse.points import Served
from agenttop.analyse.pool import Pooled

ASSUMED = 0.03
"""Where nothing tells: what carefully made measurements of this kind scatter by."""

LEAST = 0.01
"""Nothing is measured more closely than this."""

LEAST_SERVED = 5
"""A level with fewer requests says nothing about its own scatter."""

LEAST_LEVELS = 6
"""A curve of fewer levels says too little about its own scatter to say that there is less than assumed."""

DRAWS = 60


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard errors, one per level."""

    of_levels: tuple[float, ...]
    source: str
    """repetitions, requests, curve or assumed: the largest of what is known."""

    @property
    def typical(self) -> float:
        """Root mean square over the levels."""
        if not self.of_levels:
            return ASSUMED
        return math.sqrt(sum(value * value for value in self.of_levels) / len(self.of_levels))


def estimate(levels: Sequence[Pooled], seed: int = 0) -> Noise:
    """The noise of each level, from every source there is; the largest counts, as each may miss some."""
    known: dict[str, list[float]] = {}
    repeated = _of_repetitions(levels)
    if repeated is not None:
        known["repetitions"] = [repeated / math.sqrt(len(level.values)) for level in levels]
    dice = random.Random(seed)
    drawn = [of_requests(level.served, dice) for level in levels]
    some = [value for value in drawn if value is not None]
    if some:
        usual = sum(some) / len(some)
        known["requests"] = [value if value is not None else usual for value in drawn]
    curve = of_curve([float(level.agents) for level in levels], [level.value for level in levels])
    if curve is not None:
        known["curve"] = [curve] * len(levels)
    if not known or (curve is None and not some and repeated is None):
        return Noise((ASSUMED,) * len(levels), "assumed")
    if list(known) == ["curve"] and len(levels) < LEAST_LEVELS:
        known["assumed"] = [ASSUMED] * len(levels)
    source = max(known, key=lambda name: sum(known[name]))
    return Noise(
        tuple(max(LEAST, *(values[index] for values in known.values())) for index in range(len(levels))),
        source,
    )


def _of_repetitions(levels: Sequence[Pooled]) -> float | None:
    """Scatter of one measurement, from levels that were measured more than once."""
    squares, spare = 0.0, 0
    for level in levels:
        if len(level.values) > 1:
            squares += sum((value / level.value - 1) ** 2 for value in level.values)
            spare += len(level.values) - 1
    return math.sqrt(squares / spare) if spare else None


def of_requests(served: Sequence[Served], dice: random.Random) -> float | None:
    """Relative standard error of a level's throughput, by the bootstrap over its requests.

    In a closed loop throughput is agents times tokens per request over time per cycle; requests are drawn
    again with replacement, each with its tokens and its cycle.
    """
    if len(served) < LEAST_SERVED or not sum(one.cycle_s for one in served):
        return None
    ratios = [redrawn(served, dice) for _ in range(DRAWS)]
    return math.sqrt(sum((ratio - 1) ** 2 for ratio in ratios) / DRAWS)


def redrawn(served: Sequence[Served], dice: random.Random) -> float:
    """Throughput of one draw of the requests over that of all of them."""
    drawn = dice.choices(served, k=len(served))
    tokens, cycles = sum(one.tokens for one in drawn), sum(one.cycle_s for one in drawn)
    all_tokens, all_cycles = sum(one.tokens for one in served), sum(one.cycle_s for one in served)
    if not cycles or not all_tokens:
        return 1.0
    return (tokens / cycles) / (all_tokens / all_cycles)


def of_curve(agents: Sequence[float], values: Sequence[float]) -> float | None:
    """Scatter of the levels about the nearest smooth curve; None of too few levels.

    Smooth is a concave curve, or one up to some level and a straight line from there, so that a cliff is
    taken for what it is and not for noise.
    """
    count = len(values)
    if count < 4:
        return None
    spreads = []
    for split in range(1, count + 1):
        if 0 < count - split < 2:
            continue
        left = concave(agents[:split], values[:split])
        error, used = left.error, 1 + left.knots
        if split < count:
            error += _about_line(agents[split:], values[split:])
            used += 3  # the line, and where it begins
        spreads.append(math.sqrt(error / max(1, count - used)))
    return min(spreads)


def _about_line(x: Sequence[float], y: Sequence[float]) -> float:
    """Sum of squared relative distances from the straight line through the points."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0
    return sum(((b - mean_y - slope * (a - mean_x)) / mean_y) ** 2 for a, b in zip(x, y, strict=True))
