"""Ticks at absolute times: a late tick does not push the ones after it, and missed ones are counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Ticker:
    """Wakes every `period_s`, measured from the moment it was made.

    A sleep of `period_s` after each turn would drift by the length of the turn. Here the n-th tick is due at
    start + n * period. When the work of one tick outlasts the next one's time, that tick is dropped, never
    made up for: two looks in quick succession would measure over a window of nothing.
    """

    def __init__(
        self,
        period_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if period_s <= 0:
            raise ValueError(f"a period must be longer than 0 s, not {period_s}")
        self.period_s = period_s
        self.dropped = 0
        """Ticks that fell due while the one before them was still being worked on."""
        self._now = now
        self._sleep = sleep
        self._start = now()
        self._tick = 0

    async def wait(self) -> int:
        """Sleep until the next tick that is still to come; returns how many were dropped on the way."""
        due = int((self._now() - self._start) / self.period_s)
        missed = max(0, due - self._tick)
        self.dropped += missed
        self._tick = max(self._tick, due) + 1
        while (rest := self._start + self._tick * self.period_s - self._now()) > 0:
            await self._sleep(rest)
        return missed
