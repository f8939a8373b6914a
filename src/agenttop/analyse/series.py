"""Tests on one series of values in order of time: trend, level shift, where a warm-up ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from agenttop.analyse.stats import median

MOST_PAIRS_OF = 60
"""Points a slope is taken from: each pair of them is looked at."""

SIGNIFICANT = 1.96
"""Autocorrelation beyond this many standard errors counts."""


class Change(NamedTuple):
    """A change in a series."""

    p: float
    """How often chance alone makes one as strong, autocorrelation taken into account."""
    plain_p: float
    """The same of values that are independent."""
    size: float
    """After minus before, in the unit of the values."""
    before: float
    after: float


def batched(values: Sequence[float], most: int) -> list[float]:
    """At most `most` values: medians of equally many neighbours each."""
    if len(values) <= most:
        return list(values)
    size = math.ceil(len(values) / most)
    some = [median(values[start : start + size]) for start in range(0, len(values), size)]
    return [value for value in some if value is not None]


def mser_crop(values: Sequence[float]) -> int:
    """How many values at the start to leave out, at most half, so that the mean of the rest is most precise.

    The marginal standard error rule: White, Simulation 69 (1997).
    """
    n = len(values)
    if n < 4:
        return 0
    best, least = 0, math.inf
    total = squares = 0.0
    ends: list[float] = []
    middle = median(values) or 0.0
    for count, value in enumerate(reversed(values), 1):
        total += value - middle
        squares += (value - middle) ** 2
        ends.append(max(0.0, squares - total * total / count) / count**2)
    for crop in range(n // 2 + 1):
        error = ends[n - crop - 1]
        if error < least * (1 - 1e-9):
            best, least = crop, error
    return best


def trend(values: Sequence[float]) -> Change:
    """A trend over the whole series: Mann-Kendall with the correction of Hamed and Rao for autocorrelation.

    The size is that of Theil and Sen's line from the first value to the last.
    """
    n = len(values)
    score, slopes = 0, []
    for i in range(n - 1):
        here = values[i]
        for j in range(i + 1, n):
            rise = values[j] - here
            score += (rise > 0) - (rise < 0)
            slopes.append(rise / (j - i))
    slope = median(slopes) or 0.0
    middle = median(values) or 0.0
    half = slope * (n - 1) / 2
    ties: dict[float, int] = {}
    for value in values:
        ties[value] = ties.get(value, 0) + 1
    tied = sum(count * (count - 1) * (2 * count + 5) for count in ties.values())
    variance = (n * (n - 1) * (2 * n + 5) - tied) / 18
    p = plain_p = 1.0
    if variance > 0 and score:
        wider = variance * inflation(_without(values, slope))
        p, plain_p = (math.erfc((abs(score) - 1) / math.sqrt(2 * spread)) for spread in (wider, variance))
    return Change(p, plain_p, slope * (n - 1), middle - half, middle + half)


def shift(values: Sequence[float]) -> Change:
    """The strongest level shift: Pettitt, Applied Statistics 28 (1979), with the same correction."""
    n = len(values)
    order = ranks(values)
    running, strongest, at = 0.0, -1.0, 1
    for index in range(n - 1):
        running += order[index]
        strength = abs(2 * running - (index + 1) * (n + 1))
        if strength > strongest:
            strongest, at = strength, index + 1
    before, after = median(values[:at]) or 0.0, median(values[at:]) or 0.0
    levelled = [value - (before if index < at else after) for index, value in enumerate(values)]
    p, plain_p = (
        min(1.0, 2 * math.exp(-6 * strongest**2 / wider / (n**3 + n**2)))
        for wider in (inflation(levelled), 1.0)
    )
    return Change(p, plain_p, after - before, before, after)


def inflation(values: Sequence[float]) -> float:
    """By what factor autocorrelation widens the spread of a rank statistic; never below 1.

    Hamed and Rao, Journal of Hydrology 204 (1998), equation 6; lags that are not significant count nothing.
    """
    n = len(values)
    if n < 4:
        return 1.0
    order = ranks(values)
    middle = (n + 1) / 2
    apart = [rank - middle for rank in order]
    spread = sum(value * value for value in apart)
    if spread <= 0:
        return 1.0
    total = 0.0
    for lag in range(1, min(n - 3, round(10 * math.log10(n)) + 1)):
        together = sum(a * b for a, b in zip(apart, apart[lag:], strict=False)) / spread
        if abs(together) > SIGNIFICANT / math.sqrt(n):
            total += (n - lag) * (n - lag - 1) * (n - lag - 2) * together
    return max(1.0, 1 + 2 * total / (n * (n - 1) * (n - 2)))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; ties share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for position in order[start:end]:
            found[position] = (start + 1 + end) / 2
        start = end
    return found


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of y over x of all pairs of points; 0 when x never changes. Thinned where many."""
    step = math.ceil(len(points) / MOST_PAIRS_OF) if points else 1
    few = points[::step]
    slopes = [
        (y - other_y) / (x - other_x)
        for index, (x, y) in enumerate(few)
        for other_x, other_y in few[:index]
        if x != other_x
    ]
    return median(slopes) or 0.0


def _without(values: Sequence[float], slope: float) -> list[float]:
    return [value - slope * index for index, value in enumerate(values)]
