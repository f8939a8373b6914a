"""Which rows a span of time lies in, from the `commits` table."""

from __future__ import annotations

import math
import sqlite3
from array import array
from bisect import bisect_left, bisect_right

EVERYTHING = (1, (1 << 63) - 1)


class Commits:
    """Spans of `t` per commit, held in memory: 24 bytes per second of recording.

    Rows arrive only almost in the order of `t` (a turn is written a moment after it ended), so the
    spans of neighbouring commits overlap. The running maximum and the minimum of what follows are in order
    and can be searched.
    """

    def __init__(self) -> None:
        self._last_seq = array("q")
        self._high = array("d")
        """Largest t in this commit and all before it."""
        self._low = array("d")
        """Smallest t in this commit and all after it."""

    @property
    def last_seq(self) -> int:
        """Number of the newest row known."""
        return self._last_seq[-1] if self._last_seq else 0

    @property
    def newest(self) -> float | None:
        """Largest t of all; None of an empty table."""
        return self._high[-1] if self._high else None

    def refresh(self, database: sqlite3.Connection) -> None:
        """Learn what has been committed since the last time."""
        rows = database.execute(
            'SELECT "seq", "t_low", "t_high" FROM "commits" WHERE "seq" > ?', (self.last_seq,)
        )
        for seq, low, high in rows:
            if (
                isinstance(low, float)
                and isinstance(high, float)
                and math.isfinite(low)
                and math.isfinite(high)
            ):
                self._append(seq, low, high)

    def _append(self, seq: int, low: float, high: float) -> None:
        self._last_seq.append(seq)
        self._high.append(max(high, self._high[-1]) if self._high else high)
        self._low.append(low)
        for index in range(len(self._low) - 2, -1, -1):
            if self._low[index] <= low:
                break
            self._low[index] = low

    def rows(self, after: float, until: float) -> tuple[int, int]:
        """First and last `seq` that may hold rows with `after` <= t <= `until`; the last is below the first
        where there are none."""
        if not self._last_seq:
            return EVERYTHING
        first = bisect_left(self._high, after)
        last = bisect_right(self._low, until) - 1
        if first >= len(self._high) or last < 0:
            return (1, 0)
        return (self._last_seq[first - 1] + 1 if first else 1, self._last_seq[last])
