"""Percentiles and trends, from raw values only. A percentile is never averaged, nor taken of averages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

TREND_P = 0.01
"""A trend less likely than this to come from chance counts as one."""

TREND_LEAST = 12
"""With fewer values nothing is said about a trend."""

TREND_MOST = 400
"""More values are thinned out evenly: the test compares every pair."""


def percentile(values: Sequence[float], q: float) -> float | None:
    """The `q` quantile (0..1) of the values; None of nothing.

    Linear between the two nearest order statistics at rank q * (n - 1): type 7 of Hyndman and Fan (1996),
    the default of NumPy, pandas and R.
    """
    if not values:
        return None
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def median(values: Sequence[float]) -> float | None:
    """The middle value; None of nothing."""
    return percentile(values, 0.5)


def trend_p(values: Sequence[float]) -> float:
    """How likely chance alone gives a trend as strong as in `values` (Mann-Kendall, two-sided, with ties).

    Kendall, Rank Correlation Methods (1975); the normal approximation is good from ten values on.
    """
    n = len(values)
    score = sum(
        (values[j] > values[i]) - (values[j] < values[i]) for i in range(n - 1) for j in range(i + 1, n)
    )
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    ties = sum(count * (count - 1) * (2 * count + 5) for count in counts.values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0 or score == 0:
        return 1.0
    z = (abs(score) - 1) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


Z95 = 1.959964
"""Of the standard normal distribution, for intervals of 95 %."""


def wilson(met: int, total: int) -> tuple[float, float]:
    """Interval of a share, 95 % (Wilson 1927): honest near 0 and 1, where the simple one has no width."""
    if total == 0:
        return 0.0, 1.0
    share, square = met / total, Z95 * Z95
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = Z95 / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if met == 0 else low), (1.0 if met == total else high)


class Drift(NamedTuple):
    """How far values in order of time have moved."""

    first: float
    """Median of the first third."""
    last: float
    """Median of the last third."""
    change: float
    """Last minus first, as a share of the median of all."""
    real: bool
    """Beyond what chance does."""


def drift(values: Sequence[float]) -> Drift | None:
    """How far values in order of time have moved. None of too few values."""
    middle = median(values)
    if len(values) < TREND_LEAST or not middle:
        return None
    third = len(values) // 3
    first, last = median(values[:third]), median(values[-third:])
    assert first is not None
    assert last is not None
    step = math.ceil(len(values) / TREND_MOST)
    return Drift(first, last, (last - first) / middle, trend_p(values[::step]) < TREND_P)
