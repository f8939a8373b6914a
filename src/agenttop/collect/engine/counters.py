"""Rates from counters that are read again and again. Pure; the caller brings the times.

Two kinds of counter:
- one that moves with the work (tokens generated, one step after another): its growth over a window of about
  three seconds is the rate (`CounterWindow`);
- one that moves when a piece of work is done (a prompt is counted when its prefill ends): between two moves
  it stands still while the work goes on, so that its growth over a window would read zero and then far too
  much. What it grows by is spread over the time in which the work may have been done (`LandingRate`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WINDOW_S = 3.0
LEAST_S = 0.8
"""Over less than this a rate is noise: engines count in steps."""


class Makeup:
    """Of which parts (ranks, replicas, models) a sum is made.

    A part that is missing from some looks takes its share of every total along, and brings it back: neither
    is a restart, and the second is no work done in a second.
    """

    def __init__(self) -> None:
        self._parts: frozenset[str] | None = None

    def changed(self, parts: Iterable[str]) -> bool:
        """Whether they are others than at the look before: then windows over their sum begin anew."""
        before, self._parts = self._parts, frozenset(parts)
        return before is not None and before != self._parts


class CounterWindow:
    """Counters over the last `WINDOW_S`."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: deque[tuple[float, Mapping[str, float | None]]] = deque()
        self._gauges: dict[float, Mapping[str, float | None]] = {}
        self._known: dict[str, float] = {}
        """The newest value of each counter, which some looks may lack."""

    def add(
        self,
        at: float,
        counters: Mapping[str, float | None],
        gauges: Mapping[str, float | None] | None = None,
    ) -> bool:
        """Take in one look. Whether a counter is lower than it was: then the window begins anew.

        `gauges` may go up and down; `mean` tells about them.
        """
        told = {key: value for key, value in counters.items() if value is not None}
        went_back = any(value < self._known.get(key, value) for key, value in told.items())
        if went_back:
            self._looks.clear()
            self._gauges.clear()
            self._known.clear()
        elif self._looks and at <= self._looks[-1][0]:
            return False
        self._known |= told
        self._looks.append((at, counters))
        self._gauges[at] = gauges or {}
        if went_back:
            return True
        while len(self._looks) > 2 and self._looks[1][0] <= at - self._window_s:
            del self._gauges[self._looks.popleft()[0]]
        return False

    @property
    def span_s(self) -> float | None:
        """Seconds that the rates are taken over; None while they are too few."""
        if len(self._looks) < 2:
            return None
        span = self._looks[-1][0] - self._looks[0][0]
        return span if span >= LEAST_S else None

    def growth(self, key: str) -> float | None:
        """By how much a counter has grown within the window; None where an end of it is not known."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0][1].get(key), self._looks[-1][1].get(key)
        return last - first if first is not None and last is not None else None

    def rate(self, key: str) -> float | None:
        """Growth per second."""
        growth, span = self.growth(key), self.span_s
        return growth / span if growth is not None and span is not None else None

    def mean(self, key: str) -> float | None:
        """Of a gauge over the same span, by time, as if it moved evenly between two looks.

        None where one of the looks does not know it, or the span is too short.
        """
        if self.span_s is None:
            return None
        area, before = 0.0, None
        for at, _ in self._looks:
            value = self._gauges[at].get(key)
            if value is None:
                return None
            if before is not None:
                area += (at - before[0]) * (value + before[1]) / 2
            before = at, value
        return area / self.span_s


@dataclass(frozen=True, slots=True)
class _Landing:
    """Work that was counted at `end` and can not have begun before `begin`."""

    begin: float
    end: float
    amount: float


class LandingRate:
    """Rate of a counter that moves when a piece of work is done."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._first: float | None = None
        self._at = 0.0
        self._total = 0.0
        self._since = 0.0
        """The newest look at which nothing was being worked on, or something landed."""
        self._working = False
        self._landings: deque[_Landing] = deque()

    def add(self, at: float, total: float | None, working: bool) -> None:
        """Take in one look; `working`: something that is not counted yet is being worked on now.

        A counter that is not there, or is lower than it was, begins anew.
        """
        if total is None or (self._first is not None and total < self._total):
            self._first = None
            self._landings.clear()
        if total is None:
            return
        if self._first is None:
            self._first = self._since = at
        elif at > self._at:
            if total > self._total:
                self._landings.append(_Landing(self._since, at, total - self._total))
            if total > self._total or not working:
                self._since = at
        self._at, self._total, self._working = at, total, working
        while self._landings and self._landings[0].end <= at - self._window_s:
            self._landings.popleft()

    def rate(self) -> float | None:
        """Amount per second, over the window and as far back as what landed in it may have begun.

        None while something is being worked on of which nothing has landed within the window: how fast it
        goes will be known when it lands.
        """
        if self._first is None or self._at - self._first < LEAST_S:
            return None
        if not self._landings:
            return None if self._working else 0.0
        begin = min(self._landings[0].begin, max(self._first, self._at - self._window_s))
        return sum(landing.amount for landing in self._landings) / (self._at - begin)
