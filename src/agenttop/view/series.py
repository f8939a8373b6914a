"""Values over time, one per second, with gaps that stay gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

WINDOW_S = 300
"""How far back trends and charts look."""

BRIDGE_S = 2.5
"""Samples no further apart than this are neighbours: the second between them is not a gap."""


Column = tuple[float, float] | None
"""Mean and maximum over a span of seconds; None where no value is known."""


class Series:
    """The last `WINDOW_S` values of one figure. A second without a sample holds None."""

    __slots__ = ("_bridge_s", "_newest", "_values")

    def __init__(self, pace: float = 1.0) -> None:
        """`pace`: session seconds per second, by which samples come further apart."""
        self._bridge_s = BRIDGE_S * pace
        self._values: list[float | None] = [None] * WINDOW_S
        self._newest: float | None = None

    @property
    def newest(self) -> float | None:
        """Session time of the newest sample; None before the first."""
        return self._newest

    def put(self, t: float, value: float | None, window_s: float | None = None) -> None:
        """Take in one sample. A sample that spans several seconds (`window_s`) fills them all."""
        if value is not None and not math.isfinite(value):
            value = None
        second = math.floor(t)
        newest = self._newest
        if newest is None or second - math.floor(newest) >= WINDOW_S:
            self._values = [None] * WINDOW_S
            self._values[second % WINDOW_S] = value
            self._newest = t
            return
        last = math.floor(newest)
        if second < last:
            return
        if second == last:
            # Several samples in one second: a rate that has just ended does not erase itself.
            if value is not None:
                self._values[second % WINDOW_S] = value
        else:
            near = t - newest <= max(self._bridge_s, 1.5 * (window_s or 0.0))
            for between in range(last + 1, second):
                self._values[between % WINDOW_S] = value if near else None
            self._values[second % WINDOW_S] = value
        self._newest = t

    def last(self, seconds: int, now: float) -> list[float | None]:
        """Values of the last `seconds` seconds, oldest first.

        The window ends at the newest sample while that is fresh, so that the right edge does not
        flicker between two samples; else it ends at `now`, and the gap shows.
        """
        if self._newest is None:
            return [None] * seconds
        newest = math.floor(self._newest)
        fresh = self._end(now) - newest
        kept = min(seconds, WINDOW_S) - fresh
        if kept <= 0:
            return [None] * seconds
        stop = newest % WINDOW_S + 1
        if stop >= kept:
            values = self._values[stop - kept : stop]
        else:
            values = self._values[stop - kept :] + self._values[:stop]
        return [None] * (seconds - fresh - kept) + values + [None] * fresh

    def _end(self, now: float) -> int:
        assert self._newest is not None
        return math.floor(self._newest if now - self._newest <= self._bridge_s else now)

    def columns(self, count: int, step: int, now: float) -> list[Column]:
        """The last `count` spans of `step` seconds, oldest first.

        Spans begin at multiples of `step`, whatever `now` is: a column once complete stays as it is
        while it moves to the left. The last one holds what there is of it.
        """
        if self._newest is None:
            return [None] * count
        if step == 1:
            return [None if value is None else (value, value) for value in self.last(count, now)]
        begun = self._end(now) % step + 1
        values = self.last((count - 1) * step + begun, now)
        result: list[Column] = []
        for start in range(0, len(values), step):
            present = [value for value in values[start : start + step] if value is not None]
            result.append((sum(present) / len(present), max(present)) if present else None)
        return result

    def place(self, t: float, count: int, step: int, now: float) -> int | None:
        """Which of these `columns` holds the second of `t`; None where none does."""
        if self._newest is None:
            return None
        at = count - 1 - (self._end(now) // step - math.floor(t) // step)
        return at if 0 <= at < count else None


def quantile(values: Sequence[float], q: float) -> float | None:
    """The `q` quantile (0..1) of sorted values, linearly interpolated between neighbours; None of nothing."""
    if not values:
        return None
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
