"""How llama.cpp's slots share the KV cache, and how full it is. Pure.

No endpoint says whether each slot has its own share of the cache (split) or all draw from one pool (unified).
A unified pool shows its whole size as the context of every slot, so that adding them up would overstate it
four times with four slots. The command line tells, where it can be read; and slots that together hold more
than one slot's context cannot share a pool of that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments
from agenttop.collect.engine.kinds.llamacpp.slots import Slot

_PADDING = 256
"""llama.cpp rounds a slot's share up to a multiple of this."""

UNKNOWN = "llama.cpp's API does not say whether its slots share one KV pool"
UNKNOWN_FIX = "run agenttop on the engine's host, as the user who started the engine"


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens; None where it is not known."""

    layout: str | None = None
    size: int | None = None
    used: int | None = None
    active: int | None = None
    idle: int | None = None
    share: float | None = None
    """How full, where the server says no more than that."""

    @property
    def fraction(self) -> float | None:
        """How full. Tokens that slots share may be counted twice, hence the limit at 1."""
        if self.used is None or not self.size:
            return self.share
        return min(1.0, self.used / self.size)


def layout_of(slots: Sequence[Slot], arguments: ServerArguments | None) -> tuple[str | None, int | None]:
    """(layout, pool size): ("split", tokens), ("unified", tokens) or (None, None)."""
    limits = [slot.context_limit for slot in slots if slot.context_limit is not None]
    if not limits or len(limits) < len(slots):
        return None, None
    limit, count, together = max(limits), len(limits), sum(limits)
    if count == 1:
        return "split", together
    given = arguments or ServerArguments()
    if given.per_slot:
        return "unified", given.context or (given.parallel or count) * given.per_slot
    unified = given.unified
    if unified is None and given.context:
        if limit == given.context:
            unified = True
        elif abs(together - given.context) < _PADDING * count:
            unified = False
    if unified is None and given.is_llama_server:
        # Its default: shared when the number of slots was left to it, else split.
        unified = given.parallel is None or given.parallel < 0
    if unified is None and sum(slot.held or 0 for slot in slots) > limit:
        unified = False
    if unified is None:
        return None, None
    return ("unified", limit) if unified else ("split", together)


def pool_of(slots: Sequence[Slot], layout: str | None, size: int | None) -> Pool:
    """Fill of the pool: `active` is held by requests in progress, `idle` left over by finished ones."""
    if any(slot.held is None for slot in slots):
        return Pool(layout=layout, size=size)
    active = sum(slot.held or 0 for slot in slots if slot.processing)
    idle = sum(slot.held or 0 for slot in slots if not slot.processing)
    return Pool(layout=layout, size=size, used=active + idle, active=active, idle=idle)


def by_gauges(pool: Pool, tokens: int | None, share: float | None) -> Pool:
    """The pool with what the gauges of builds before May 2025 say, where the slots do not tell."""
    if pool.used is not None or (tokens is None and share is None):
        return pool
    size = pool.size
    if size is None and tokens and share:
        size = round(tokens / share)
    return msgspec.structs.replace(pool, used=tokens, size=size, share=share)
