"""Values of NVIDIA's library as figures, or None: drivers fill fields they do not know with all ones."""

from __future__ import annotations

from typing import Any

from agenttop.model.text import clean


def text(value: Any) -> str | None:
    """A name; older packages hand out bytes."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return clean(str(value), 80) or None if value else None


def number(value: Any, largest: float) -> int | None:
    """A whole number from 0 to `largest`."""
    return int(value) if value is not None and 0 <= value <= largest else None


def percent(value: Any) -> float | None:
    """0..100 as a fraction."""
    return value / 100 if value is not None and 0 <= value <= 100 else None


def thousandth(value: Any, largest: float) -> float | None:
    """Milliwatts as watts, millijoules as joules; at most `largest` of them."""
    return value / 1000 if value is not None and 0 <= value / 1000 <= largest else None


def celsius(value: Any) -> float | None:
    """A temperature; 0 is what a sensor says that is not there."""
    return float(value) if value is not None and -40 <= value <= 150 and value != 0 else None
