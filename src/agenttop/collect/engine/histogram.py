"""Percentiles of what happened lately, from histograms that count since the start of the server. Pure.

A histogram holds for each upper edge `le` how many observations were at most that long. The difference of two
looks is the histogram of what happened between them. Within a bucket nothing is known: a percentile is
interpolated between its edges, as Prometheus does, and is left out where the bucket has no lower edge
(everything shorter than the first edge) or no upper one. Edges are read from the data: users may change them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from agenttop.model.frames import LatencySample
from agenttop.wire.prometheus import Labels

MAX_TOTAL = 1e15
"""A counter beyond it (or infinite, or not a number) counts nothing."""
WINDOW_S = 60.0
LEAST_S = 5.0
"""Less between two samples of the same window says the same again."""
MOST_LOOKS = 16
"""Kept within the window: one about every four seconds."""
MAX_EDGES = 200
QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Since the start of the server; several series (ranks, models) added up."""

    edges: tuple[float, ...]
    """Upper edges, rising; the last one infinite."""
    counts: tuple[float, ...]
    """Observations at most as long as the edge."""
    total_s: float | None
    """Sum of all observations; None where it is not told."""

    @property
    def count(self) -> float:
        """All observations."""
        return self.counts[-1]

    def minus(self, before: Histogram) -> Histogram | None:
        """What came between the two; None where they do not belong together (other edges, a restart)."""
        if before.edges != self.edges:
            return None
        counts = tuple(now - was for now, was in zip(self.counts, before.counts, strict=True))
        if any(count < 0 for count in counts) or any(a > b for a, b in pairwise(counts)):
            return None
        total = None
        if self.total_s is not None and before.total_s is not None and self.total_s >= before.total_s:
            total = self.total_s - before.total_s
        return Histogram(self.edges, counts, total)

    def quantile(self, share: float) -> float | None:
        """Seconds, interpolated; None where the bucket has an open end, or there is no observation."""
        rank = share * self.count
        if self.count <= 0:
            return None
        lower, below = 0.0, 0.0
        for number, (edge, count) in enumerate(zip(self.edges, self.counts, strict=True)):
            if count >= rank and count > below:
                if number == 0 or math.isinf(edge):
                    return None
                return lower + (edge - lower) * max(0.0, rank - below) / (count - below)
            lower, below = edge, count
        return None


def collect(
    buckets: Iterable[tuple[Labels, float]], sums: Iterable[tuple[Labels, float]] = ()
) -> Histogram | None:
    """One histogram from the series of `x_bucket` and `x_sum`, all of them added up by edge.

    None where nothing sensible is there: no edge, edges that differ between the series, counts that fall.
    """
    by_edge: dict[float, float] = {}
    series: dict[float, int] = {}
    for labels, value in buckets:
        edge = _edge(labels.get("le", ""))
        if edge is None or not 0 <= value < MAX_TOTAL:
            return None
        by_edge[edge] = by_edge.get(edge, 0.0) + value
        series[edge] = series.get(edge, 0) + 1
        if len(by_edge) > MAX_EDGES:
            return None
    edges = tuple(sorted(by_edge))
    if not edges or not math.isinf(edges[-1]) or len(set(series.values())) != 1:
        return None
    counts = tuple(by_edge[edge] for edge in edges)
    if any(a > b for a, b in pairwise(counts)):
        return None
    parts = [value for _, value in sums]
    sound = bool(parts) and all(0 <= value < MAX_TOTAL for value in parts)
    return Histogram(edges, counts, sum(parts) if sound else None)


class LatencyWindow:
    """Histograms of one engine over the last `WINDOW_S`."""

    def __init__(self, engine: str, window_s: float = WINDOW_S) -> None:
        """`engine` is its identity, as in the frames."""
        self._engine = engine
        self._window_s = window_s
        self._looks: deque[tuple[float, Mapping[str, Histogram]]] = deque()
        self._told_at = -math.inf

    def forget(self) -> None:
        """The server was restarted."""
        self._looks.clear()

    def add(self, at: float, found: Mapping[str, Histogram | None]) -> list[LatencySample]:
        """Take in one look: measure (ttft, itl, ...) to histogram. What there is to tell, every `LEAST_S`."""
        now = {measure: histogram for measure, histogram in found.items() if histogram is not None}
        if self._looks and at <= self._looks[-1][0]:
            return []
        if self._looks and _went_back(self._looks[-1][1], now):
            self._looks.clear()
        while len(self._looks) > 1 and self._looks[1][0] <= at - self._window_s:
            self._looks.popleft()
        spaced = not self._looks or at - self._looks[-1][0] >= self._window_s / MOST_LOOKS
        told: list[LatencySample] = []
        if self._looks and at - self._told_at >= LEAST_S:
            self._told_at = at
            told = [self._sample(at, measure, histogram) for measure, histogram in now.items()]
        if spaced:
            self._looks.append((at, now))
        return told

    def _sample(self, at: float, measure: str, now: Histogram) -> LatencySample:
        begin, window = at, None
        for seen_at, looks in self._looks:
            before = looks.get(measure)
            if before is not None and (window := now.minus(before)) is not None:
                begin = seen_at
                break
        span = at - begin
        if window is None or window.count <= 0 or span <= 0:
            return LatencySample(t=at, engine=self._engine, measure=measure, window_s=span, count=0)
        p50, p90, p95, p99 = (window.quantile(share) for share in QUANTILES)
        first = window.edges[0]
        in_first = window.counts[0] >= 0.5 * window.count and math.isfinite(first)
        return LatencySample(
            t=at,
            engine=self._engine,
            measure=measure,
            window_s=span,
            count=int(window.count),
            mean_s=window.total_s / window.count if window.total_s is not None else None,
            p50_s=p50,
            p90_s=p90,
            p95_s=p95,
            p99_s=p99,
            below_s=first if in_first else None,
        )


def _went_back(before: Mapping[str, Histogram], now: Mapping[str, Histogram]) -> bool:
    return any(
        (was := before.get(measure)) is not None and histogram.count < was.count
        for measure, histogram in now.items()
    )


def _edge(text: str) -> float | None:
    try:
        edge = float(text)
    except ValueError:
        return None
    return None if math.isnan(edge) or edge < 0 else edge
