"""Looks that are not taken every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from agenttop.model.clock import Clock

T = TypeVar("T")

_DEAR = 100.0
"""A look may take one part in so many of the time."""


class Seldom(Generic[T]):
    """What is looked at every few seconds, and more rarely where a look takes long: some drivers ask
    firmware for what a file says, at 10 ms a core."""

    def __init__(self, look: Callable[[], T], every_s: float, clock: Clock) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._due = clock.monotonic()
        self._found: T = look()
        self._plan(self._due)

    def now(self) -> T:
        """What the last look found, after a new one where it is time."""
        begun = self._clock.monotonic()
        if begun >= self._due:
            self._found = self._look()
            self._plan(begun)
        return self._found

    def _plan(self, begun: float) -> None:
        ended = self._clock.monotonic()
        self._due = ended + max(self._every_s, _DEAR * (ended - begun))
