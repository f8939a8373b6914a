"""What the words of `GpuSample.throttle` and `throttle_shares` mean, whatever vendor they come from. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agenttop.model.frames import HARMLESS_THROTTLE

THERMAL = ("thermal", "hw slowdown", "temperature", "prochot")
POWER = ("power", "board limit", "current")
"""Parts of the words; adapters choose words in which exactly one of them occurs."""


def kind_of(reason: str) -> str:
    """power, thermal, chosen (somebody wants it so), or other."""
    if reason in HARMLESS_THROTTLE:
        return "chosen"
    if any(word in reason for word in THERMAL):
        return "thermal"
    return "power" if any(word in reason for word in POWER) else "other"


def largest(shares: Mapping[str, float], kind: str) -> float | None:
    """The largest share of the reasons of one kind: they overlap in time, so their sum means nothing. None
    where none of them is counted."""
    return max((share for reason, share in shares.items() if kind_of(reason) == kind), default=None)
