"""A derived figure with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A number worked out of others."""

    value: float | None
    """None where it cannot be told."""
    evidence: str
    """The numbers it rests on, in a few words; without a value, what is lacking."""
    at_least: bool = False
    """It is a lower bound."""
    at_most: bool = False
    """It is an upper bound."""


def unknown(why: str) -> Figure:
    """A figure that cannot be told."""
    return Figure(None, why)
