"""Throughput over agents as a concave curve: what each further agent brings, with noise evened out.

More agents never bring more than those before them, so the curve is concave: among all concave curves
through the origin the one nearest to the levels is taken (least squares of relative distances). It has no
parameters to choose and needs no form to be assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

ROUNDS = 3
"""Relative distances need the curve they are relative to: fitted again with the one before."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A fit."""

    agents: tuple[float, ...]
    fitted: tuple[float, ...]
    slopes: tuple[float, ...]
    """What an agent brings from the origin to the first level, from there to the second, and so on."""
    error: float
    """Sum of the squared relative distances."""
    knots: int
    """Bends in it."""


def concave(agents: Sequence[float], values: Sequence[float], least_share: float | None = None) -> Curve:
    """The concave curve through the origin nearest to the levels, which are in order of `agents`.

    `least_share`: its last slope is at least this share of the first one. Else it may even fall.
    """
    columns, free = _basis(agents, least_share)
    scale = [1.0] * len(values)
    reference = [abs(value) or 1.0 for value in values]
    fitted: list[float] = list(values)
    parts: list[float] = []
    for _ in range(ROUNDS):
        scale = [1 / (size or 1.0) for size in reference]
        parts = nonnegative(
            [[value * weight for value, weight in zip(column, scale, strict=True)] for column in columns],
            [value * weight for value, weight in zip(values, scale, strict=True)],
            free,
        )
        fitted = [
            sum(part * column[index] for part, column in zip(parts, columns, strict=True))
            for index in range(len(values))
        ]
        top = max(fitted, default=0.0)
        reference = [max(value, 0.05 * top) or 1.0 for value in fitted]
    error = sum(((v - f) * s) ** 2 for v, f, s in zip(values, fitted, scale, strict=True))
    starts, before = [0.0, *agents[:-1]], [0.0, *fitted[:-1]]
    slopes = [(f - fb) / (n - nb) for n, nb, f, fb in zip(agents, starts, fitted, before, strict=True)]
    bends = sum(part > 1e-12 for part in parts[:-1])
    return Curve(tuple(agents), tuple(fitted), tuple(slopes), error, bends)


def _basis(agents: Sequence[float], least_share: float | None) -> tuple[list[list[float]], int | None]:
    """Curves that rise to a level and stay there, and one straight line, whose column is returned too."""
    knots = list(agents[:-1])
    # A last slope of at least a share r of the first: each bend brings r/(1-r) of its own line with it.
    extra = 0.0 if least_share is None else least_share / (1 - least_share)
    columns = [[min(n, knot) + extra * n for n in agents] for knot in knots]
    columns.append(list(agents))
    return columns, len(knots) if least_share is None else None


def nonnegative(columns: Sequence[Sequence[float]], target: Sequence[float], free: int | None) -> list[float]:
    """Least squares with all coefficients at or above zero but that of column `free`.

    The active-set method of Lawson and Hanson (1974) on the normal equations.
    """
    count = len(columns)
    gram = [[sum(map(mul, p, q)) for q in columns] for p in columns]
    aim = [sum(map(mul, p, target)) for p in columns]
    tiny = 1e-10 * max((abs(value) for value in aim), default=1.0)
    found = [0.0] * count
    active = [free] if free is not None else []
    if active:
        found = _expanded(active, solve(gram, aim, active), count)
    for _ in range(3 * count):
        pull = [aim[i] - sum(gram[i][j] * found[j] for j in active) for i in range(count)]
        best = max((i for i in range(count) if i not in active), key=lambda i: pull[i], default=None)
        if best is None or pull[best] <= tiny:
            break
        active.append(best)
        while True:
            tried = _expanded(active, solve(gram, aim, active), count)
            low = [i for i in active if i != free and tried[i] <= 0]
            if not low:
                found = tried
                break
            step = min((found[i] / (found[i] - tried[i]) for i in low if found[i] > tried[i]), default=0.0)
            found = [old + step * (new - old) for old, new in zip(found, tried, strict=True)]
            active = [i for i in active if i == free or (found[i] > 1e-15 and not (i in low and step == 0.0))]
            found = [found[i] if i in active else 0.0 for i in range(count)]
            if not active:
                break
    return found


def _expanded(active: Sequence[int], values: Sequence[float], count: int) -> list[float]:
    whole = [0.0] * count
    for index, value in zip(active, values, strict=True):
        whole[index] = value
    return whole


def solve(gram: Sequence[Sequence[float]], aim: Sequence[float], which: Sequence[int]) -> list[float]:
    """The normal equations for the chosen columns, by Cholesky. A column that adds nothing gets 0."""
    size = len(which)
    roots: list[list[float]] = []
    halves: list[float] = []
    for row, column in enumerate(which):
        whole = gram[column]
        made: list[float] = []
        for index in range(row):
            other = roots[index]
            value = whole[which[index]]
            for k in range(index):
                value -= made[k] * other[k]
            made.append(value / other[index] if other[index] else 0.0)
        rest = whole[column] - sum([value * value for value in made])
        root = math.sqrt(rest) if rest > 1e-12 * whole[column] else 0.0
        half = aim[column]
        for value, before in zip(made, halves, strict=True):
            half -= value * before
        halves.append(half / root if root else 0.0)
        made.append(root)
        roots.append(made)
    found = [0.0] * size
    for row in range(size - 1, -1, -1):
        value = halves[row]
        for later in range(row + 1, size):
            value -= roots[later][row] * found[later]
        found[row] = value / roots[row][row] if roots[row][row] else 0.0
    return found


def falling(values: Sequence[float]) -> list[tuple[float, int]]:
    """The nearest sequence that never rises, as blocks of (value, how many): pool adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (a, m), (b, n) = blocks[-2], blocks[-1]
            blocks[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return blocks
