"""Time, passed in wherever it is needed so that tests and replays own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock and the wall clock it is anchored to, both in seconds."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 UTC."""
        ...


class SystemClock:
    """The machine's clocks.

    `time.monotonic` counts from boot on Linux, macOS and Windows, so processes of one host
    can share an origin: the node hands its origin to the driver.
    """

    def monotonic(self) -> float:
        """Seconds since the machine started, or so."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self.now = now
        self._wall_offset = wall - now

    def monotonic(self) -> float:
        """What was set."""
        return self.now

    def wall(self) -> float:
        """What was set, on the wall clock."""
        return self.now + self._wall_offset

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class SessionClock:
    """Seconds since a session began: the `t` of every frame.

    With a simulated engine that runs faster than life, session time is simulated time: it runs `rate` times
    as fast as the wall clock, and whoever sleeps divides by it.
    """

    def __init__(self, clock: Clock, origin: float | None = None, rate: float = 1.0) -> None:
        self._clock = clock
        self.origin = clock.monotonic() if origin is None else origin
        self.rate = rate

    def now(self) -> float:
        """Seconds since the session began."""
        return (self._clock.monotonic() - self.origin) * self.rate
