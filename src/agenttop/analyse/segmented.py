"""Two straight lines that meet: the second opinion on where a curve bends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from agenttop.analyse.curve import solve
from agenttop.model import units

LEAST_LEVELS = 5

TAIL_SHARE = 0.25
"""The second line rises at most this much as steeply as the first."""

BETTER_SHARE = 0.5
"""Two lines leave at most this share of the squared error of one."""

TRIED = 100
"""Places between the first and the last level where they may meet."""


@dataclass(frozen=True, slots=True)
class Bend:
    """Where the two lines meet; None with the reason where one line does as well."""

    agents: float | None
    why: str
    flat: bool = False
    """One line fits, and it does not rise."""


def bend(agents: Sequence[float], values: Sequence[float]) -> Bend:
    """The meeting point of the best two lines, by least squares of relative distances."""
    if len(agents) < LEAST_LEVELS:
        return Bend(None, f"two lines need {LEAST_LEVELS} levels, there are {len(agents)}")
    # Relative to one smooth size for both fits: the larger of the value and its neighbours' mean.
    weights = [1 / max(abs(value), 1e-9) for value in _smooth(values)]
    one, (through, slope) = _fit([[1.0] * len(agents), list(agents)], values, weights)
    best: tuple[float, float, list[float]] | None = None
    first, last = agents[1], agents[-2]
    for index in range(TRIED + 1):
        at = first + (last - first) * index / TRIED
        columns = [[1.0] * len(agents), [min(n, at) for n in agents], [max(0.0, n - at) for n in agents]]
        error, parts = _fit(columns, values, weights)
        if best is None or error < best[0]:
            best = (error, at, parts)
    assert best is not None
    error, at, (_, rising, tail) = best
    if one <= 1e-12 or error > BETTER_SHARE * one:
        flat = slope <= TAIL_SHARE * (through / agents[0] + slope)
        return Bend(None, f"one {'flat' if flat else 'straight'} line fits about as well as two", flat)
    if rising <= 0:
        return Bend(None, "no rising line fits its beginning")
    if tail > TAIL_SHARE * rising:
        return Bend(None, f"its end still rises {units.percent(tail / rising)} as steeply as its beginning")
    return Bend(at, f"two lines meet at {at:.3g} agents")


def _smooth(values: Sequence[float]) -> list[float]:
    return [
        sum(values[max(0, i - 1) : i + 2]) / len(values[max(0, i - 1) : i + 2]) for i in range(len(values))
    ]


def _fit(
    columns: Sequence[Sequence[float]], values: Sequence[float], weights: Sequence[float]
) -> tuple[float, list[float]]:
    scaled = [[value * weight for value, weight in zip(column, weights, strict=True)] for column in columns]
    target = [value * weight for value, weight in zip(values, weights, strict=True)]
    gram = [[sum(map(mul, p, q)) for q in scaled] for p in scaled]
    aim = [sum(map(mul, p, target)) for p in scaled]
    parts = solve(gram, aim, range(len(columns)))
    error = sum(
        (t - sum(part * column[i] for part, column in zip(parts, scaled, strict=True))) ** 2
        for i, t in enumerate(target)
    )
    return error, parts
