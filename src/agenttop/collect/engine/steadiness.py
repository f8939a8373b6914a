"""An engine that goes up and down all the time is told of as such, not change by change. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from agenttop.model.frames import Event
from agenttop.model.units import plural, seconds

MANY = 8
WITHIN_S = 120.0
"""More changes than `MANY` within this time: from then on they are counted and not told."""
STEADY_S = 60.0
"""Without a change for so long it is steady again."""

CHANGES = frozenset(
    "engine." + name
    for name in (
        "up", "down", "busy", "loading", "asleep", "unauthorised", "unsupported", "restart", "changed",
        "model",
    )
)  # fmt: skip
"""What is held back. Other events of an engine have limits of their own."""


class Steadiness:
    """Passes on the events of one engine until there are too many of them."""

    def __init__(self, url: str, rate: float = 1.0) -> None:
        """`rate`: seconds of the caller's clock per real second."""
        self._url = url
        self._within_s, self._steady_s = WITHIN_S * rate, STEADY_S * rate
        self._told: deque[float] = deque()
        self._last_change = -math.inf
        self._held_back: int | None = None
        """Changes not told since it was called unsteady; None while all are told."""

    def pass_on(self, now: float, events: list[Event], standing: Callable[[], str]) -> list[Event]:
        """Those of `events` that are told. Call it at every look, so that the return of calm is noticed.

        `standing`: how it is now, as in "llama.cpp is ok"; asked when it is told.
        """
        told: list[Event] = []
        if self._held_back is not None and now - self._last_change >= self._steady_s:
            many = plural(self._held_back, "change")
            self._held_back = None
            self._told.clear()
            told.append(
                self._event(now, "engine.steady", f"{standing()} at {self._url} and has been steady for "
                            f"{seconds(self._steady_s)}; {many} before that were not told")
            )  # fmt: skip
        for event in events:
            if event.event not in CHANGES:
                told.append(event)
                continue
            self._last_change = now
            if self._held_back is not None:
                self._held_back += 1
                continue
            while self._told and self._told[0] <= now - self._within_s:
                self._told.popleft()
            if len(self._told) < MANY:
                self._told.append(now)
                told.append(event)
                continue
            self._held_back = 1
            text = (
                f"the engine at {self._url} keeps changing: {MANY} changes within "
                f"{seconds(now - self._told[0])}; the next are counted and not told, until it is steady"
            )
            told.append(self._event(now, "engine.unsteady", text, "bad"))
        return told

    def _event(self, now: float, name: str, text: str, severity: str = "info") -> Event:
        return Event(t=now, event=name, text=text, source="engine", severity=severity, subject=self._url)
