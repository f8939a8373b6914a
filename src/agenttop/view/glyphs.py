"""Bars, sparks and braille areas from numbers. Every glyph is one cell and none has an emoji form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from agenttop.view.series import Column
from agenttop.view.spans import Line, Span

EIGHTHS_UP = " ▁▂▃▄▅▆▇█"
EIGHTHS_ALONG = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
FREE = "·"
IDLE = "▒"

STATES: dict[str, tuple[str, str]] = {
    "waiting": ("○", "pause"),
    "prime": ("◑", "prefill"),
    "queued": ("◌", "warn"),
    "prefill": ("◔", "prefill"),
    "decode": ("▸", "decode"),
    "stalled": ("⊘", "bad"),
    "children": ("∴", "pause"),
    "tool": ("‖", "pause"),
    "human": ("‖", "pause"),
    "compact": ("⇣", "compact"),
    "backoff": ("↻", "bad"),
    "paused": ("■", "pause"),
    "stopping": ("◇", "warn"),
    "stopped": ("×", "idle"),
    "idle": ("·", "idle"),
}
"""State or phase to (glyph, role)."""

SEVERITY: dict[str, tuple[str, str]] = {"info": ("·", "dim"), "warn": ("!", "warn"), "bad": ("×", "bad")}
"""Severity of an event to (glyph, role)."""


def filled(fraction: float | None, length: int) -> str:
    """The filled part of a bar, to an eighth of a cell; something above zero always shows."""
    if fraction is None or fraction <= 0 or not math.isfinite(fraction):
        return ""
    eighths = max(1, round(min(fraction, 1.0) * length * 8))
    return "█" * (eighths // 8) + EIGHTHS_ALONG[eighths % 8]


def bar(fraction: float | None, length: int, role: str = "text") -> Line:
    """A bar of exactly `length` cells; unknown is an empty one."""
    full = filled(fraction, length)[:length]
    return [(full, role), (FREE * (length - len(full)), "dim")]


def pool(active: float, idle: float, total: float, length: int) -> Line:
    """A pool of which part is in use and part holds what may be reused: `█` active, `▒` idle, `·` free."""
    if total <= 0:
        return [(FREE * length, "dim")]
    full = filled(active / total, length)[:length]
    both = min(length, math.ceil(round((active + idle) / total * length, 3))) if idle > 0 else len(full)
    held = max(0, both - len(full))
    if idle > 0 and held == 0 and len(full) < length:
        held = 1
    return [(full, "decode"), (IDLE * held, "idle"), (FREE * (length - len(full) - held), "dim")]


def stacked(parts: Sequence[tuple[float, str, str]], total: float, length: int) -> Line:
    """Parts of a whole side by side, each as (amount, glyph, role); what is left is free. The first that is
    above zero always shows; the others to the nearest cell, so that together they are no longer than all."""
    line: Line = []
    done, amount = 0, 0.0
    for part, glyph, role in parts:
        if not (math.isfinite(part) and math.isfinite(total)) or part <= 0 or total <= 0:
            continue
        least = 0 if amount else 1
        amount += part
        until = min(length, max(done, least, round(amount / total * length)))
        line.append((glyph * (until - done), role))
        done = until
    return [*line, (FREE * (length - done), "dim")]


def heat(fraction: float | None, warn: float = 0.85, bad: float = 0.95, calm: str = "good") -> str:
    """The role of a gauge that is worse the fuller it is."""
    if fraction is None:
        return "dim"
    if fraction >= bad:
        return "bad"
    return "warn" if fraction >= warn else calm


def spark(columns: Sequence[Column], top: float | None = None) -> str:
    """Block columns, the newest at the right; a gap is a blank, zero is the lowest block.

    `top` is the value of a full column; without it the largest value shown is.
    """
    highest = top if top is not None else max((column[0] for column in columns if column), default=0.0)
    if highest <= 0:
        return "".join(" " if column is None else "▁" for column in columns)
    scale = 7.999 / highest
    return "".join(
        " " if column is None else EIGHTHS_UP[1 + min(7, max(0, int(column[0] * scale)))]
        for column in columns
    )


_FILLED = ((0x00, 0x40, 0x44, 0x46, 0x47), (0x00, 0x80, 0xA0, 0xB0, 0xB8))
_SINGLE = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_BRAILLE = " " + "".join(chr(0x2800 + code) for code in range(1, 256))


@lru_cache(maxsize=8192)
def _dots(mean: int, most: int, side: int, height: int) -> tuple[int, ...]:
    """Dots of one column in each line, the upper first: filled up to `mean`, one dot at `most`.

    Cached: a chart moves to the left, its columns stay what they are.
    """
    mean, most = min(mean, height * 4), min(most, height * 4)
    codes = []
    for base in range((height - 1) * 4, -1, -4):
        code = _FILLED[side][max(0, min(4, mean - base))]
        if base < most <= base + 4:
            code |= _SINGLE[side][most - base - 1]
        codes.append(code)
    return tuple(codes)


def area(columns: Sequence[Column], height: int, top: float) -> list[str]:
    """A filled braille area of `height` lines, the upper first; two columns and four dots to a cell.

    Each column is filled to the mean of its span; the span's maximum is marked by one dot above
    it, so that a short spike never vanishes. Zero is the lowest dot, a gap is blank.
    """
    scale = height * 4 / top if top > 0 else 0.0
    halves: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
    side = 0
    for column in columns:
        if column is None:
            halves[side].append(_dots(0, 0, side, height))
        else:
            mean, most = column
            halves[side].append(
                _dots(int(mean * scale + 0.5) or 1, int(most * scale + 0.5) or 1, side, height)
            )
        side = 1 - side
    lefts, rights = zip(*halves[0], strict=True), zip(*halves[1], strict=True)
    return [
        "".join([_BRAILLE[one | other] for one, other in zip(left, right, strict=False)])
        for left, right in zip(lefts, rights, strict=True)
    ]


NICE = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)


def nice_top(value: float) -> float:
    """The next round number: a chart's upper edge that does not change every second."""
    if value < 1e-9 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in NICE if value <= step * power * 1.0000001), 10 * power)


def state(name: str) -> Span:
    """Glyph and word of a state."""
    glyph, role = STATES.get(name, ("?", "warn"))
    return (f"{glyph} {name}", role)


TREND_S = 60
"""Seconds that the short trends beside figures show."""


def trend_cells(room: int) -> int:
    """Columns of a trend of `TREND_S` in `room` cells: so many that each is a whole number of seconds."""
    return next((cells for cells in (60, 30, 20, 15, 12, 10) if cells <= room), 6)
