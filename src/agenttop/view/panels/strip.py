"""The strip in time of what holds a GPU down: a column for each span of the last five minutes.

The height of a column is the share of its span in which the clocks were held down; a letter stands where a
reason begins. Zero is the lowest block, a blank is a span of which nothing is known.
"""

from __future__ import annotations

import math

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.model.throttle import kind_of
from agenttop.view.glyphs import EIGHTHS_UP
from agenttop.view.held import ALL, KINDS, Held, mean_over
from agenttop.view.series import WINDOW_S, Column, Series
from agenttop.view.spans import Line
from agenttop.view.store import Store

LENGTHS = (100, 75, 60, 50, 30, 25, 20, 15, 12, 10)
"""Columns, so that each is a whole number of seconds."""

TRACE = 0.001
"""What is less than this share of a span is nothing."""

LETTERS = {
    "P": "power limit",
    "T": "heat",
    "B": "power brake",
    "H": "hardware slowdown",
    "C": "current",
    "?": "another reason",
}
"""Of the reasons, the least grave first but for the last."""
_RANK = {letter: rank for rank, letter in enumerate(LETTERS)}


def letter_of(reason: str) -> str:
    """The letter that stands where this reason begins."""
    if "brake" in reason:
        return "B"
    if "hw slowdown" in reason:
        return "H"
    kind = kind_of(reason)
    if kind == "thermal":
        return "T"
    if kind == "power":
        return "C" if "current" in reason and "power" not in reason else "P"
    return "?"


def strip_cells(room: int) -> int:
    """The longest strip in `room` cells; 0 where there is none."""
    return next((cells for cells in LENGTHS if cells <= room), 0)


def strip(store: Store, sample: GpuSample, cells: int) -> Line:
    """`cells` columns over the last five minutes."""
    held = store.held.get(sample.gpu)
    if held is None or cells < 1:
        return [(" " * cells, "dim")]
    step = WINDOW_S // cells
    columns = held.series(ALL).columns(cells, step, store.now)
    hot = held.series("thermal").columns(cells, step, store.now)
    other = held.series("other").columns(cells, step, store.now)
    glyphs = [_block(column) for column in columns]
    roles = [_role(*three) for three in zip(columns, hot, other, strict=True)]
    for at, letter in _letters(held, cells, step, store.now).items():
        glyphs[at], roles[at] = letter, "bad" if letter not in "PC" else "warn"
    return _joined(glyphs, roles)


def of_reason(series: Series, cells: int, now: float, role: str) -> Line:
    """The strip of one reason alone."""
    columns = series.columns(cells, WINDOW_S // cells, now)
    glyphs = [_block(column) for column in columns]
    return _joined(glyphs, ["dim" if not column or column[0] < TRACE else role for column in columns])


def legend(store: Store, sample: GpuSample) -> list[Line]:
    """`power 12 %`, `thermal 1 %`: shares of the strip's time, one part each."""
    held = store.held.get(sample.gpu)
    shares = {kind: mean_over(held.series(kind), WINDOW_S, store.now) for kind in KINDS} if held else {}
    known = {kind: share for kind, share in shares.items() if share is not None}
    if not known:
        return [[(units.MISSING, "dim")]]
    told = {kind: share for kind, share in known.items() if share >= TRACE}
    if not told:
        return [[("0 %", "text")]]
    return [
        [(f"{kind} ", "label"), (units.percent(share), _grave(kind) if share > 0.01 else "text")]
        for kind, share in told.items()
    ]


def _grave(kind: str) -> str:
    return "warn" if kind == "power" else "bad"


def _block(column: Column) -> str:
    if column is None or not math.isfinite(column[0]):
        return " "
    share = column[0]
    return EIGHTHS_UP[1] if share < TRACE else EIGHTHS_UP[2 + min(6, int(share * 6.999))]


def _role(every: Column, hot: Column, other: Column) -> str:
    if every is None or every[0] < TRACE:
        return "dim"
    worse = max(hot[0] if hot else 0.0, other[0] if other else 0.0)
    return "bad" if worse > every[0] / 2 else "warn"


def _letters(held: Held, cells: int, step: int, now: float) -> dict[int, str]:
    """Column to the letter that stands there: where several reasons begin in one, the gravest."""
    found: dict[int, str] = {}
    for t, reason in held.begins:
        at = held.series(ALL).place(t, cells, step, now)
        if at is not None:
            letter = letter_of(reason)
            if at not in found or _RANK[letter] > _RANK[found[at]]:
                found[at] = letter
    return found


def _joined(glyphs: list[str], roles: list[str]) -> Line:
    line: Line = []
    for glyph, role in zip(glyphs, roles, strict=True):
        if line and line[-1][1] == role:
            line[-1] = (line[-1][0] + glyph, role)
        else:
            line.append((glyph, role))
    return line
