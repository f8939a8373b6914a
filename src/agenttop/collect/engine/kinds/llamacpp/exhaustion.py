"""A unified KV pool that runs full. Pure.

A slot with a share of its own that runs full ends its request with `length`, as if that had been its limit.
A pool that all slots share, once full, ends the requests in progress with an error, all of them at the same
time (measured on b11434: eight streams died together), and clears their slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from agenttop.collect.engine.kinds.llamacpp.pool import Pool
from agenttop.collect.engine.kinds.llamacpp.slots import Slot
from agenttop.model.frames import Event
from agenttop.model.units import plural

NEARLY_FULL = 0.95
RELIEVED = 0.85
"""Below this a warning may be given again."""


class ExhaustionWatch:
    """Fed with every look at the slots of one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._warned = False
        self._before: list[Slot] = []
        self._held_before = 0

    def look(self, t: float, slots: Sequence[Slot], pool: Pool) -> list[Event]:
        """Events that this look gives rise to."""
        before, self._before = self._before, list(slots)
        held_before, self._held_before = self._held_before, pool.active or 0
        if pool.layout != "unified" or not pool.size or pool.active is None:
            return []
        ended = _ended_together(before, slots)
        if ended > 1 and held_before >= pool.size / 2:
            self._warned = False
            requests = plural(ended, "request")
            text = (
                f"llama.cpp at {self._url} dropped {requests} at the same time, cache and all: "
                f"its KV pool of {pool.size} tokens was full; a larger -c prevents that, or fewer slots (-np)"
            )
            return [self._event(t, "engine.kv-exhausted", text, "bad")]
        fill = pool.active / pool.size
        if fill < RELIEVED:
            self._warned = False
        if fill < NEARLY_FULL or self._warned or sum(slot.processing for slot in slots) < 2:
            return []
        self._warned = True
        text = (
            f"requests in progress hold {min(fill, 1.0):.0%} of the KV pool that llama.cpp's slots share at "
            f"{self._url}: when it is full, all of them end with an error"
        )
        return [self._event(t, "engine.kv-nearly-full", text, "warn")]

    def _event(self, t: float, name: str, text: str, severity: str) -> Event:
        return Event(t=t, event=name, text=text, source="engine", severity=severity, subject=self._url)


def _ended_together(before: Sequence[Slot], now: Sequence[Slot]) -> int:
    """Requests that were in progress where all slots are idle and empty now; else 0.

    A request that ends in order leaves its tokens in the slot.
    """
    if any(slot.processing or slot.held != 0 for slot in now):
        return 0
    return sum(slot.processing for slot in before)
