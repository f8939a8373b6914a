"""Aggregate rates and the number of agents over the last minutes, with what happened marked on the axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agenttop.model import units
from agenttop.model.frames import Event
from agenttop.view.glyphs import SEVERITY, area, nice_top, spark
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.series import WINDOW_S, Column
from agenttop.view.spans import Line, Span, right
from agenttop.view.store import Store

AXIS = 8
"""Cells of the labels at the left."""

TITLE: Line = [("Decode tok/s and agents", "accent")]


def cell_s(now: float, plot: int) -> int:
    """Seconds per cell of the time axis.

    A whole number, so that what is drawn moves to the left unchanged; one while the session is
    young, then as much of the history as it takes to fill the width.
    """
    if now <= plot:
        return 1
    return max(2, WINDOW_S // plot // 2 * 2)


def chart(store: Store, width: int, height: int, look: Look) -> list[Line]:
    """Decode, with room also prefill; under it a mark for every event, the agents, and the time axis."""
    plot = width - AXIS
    if plot < 10 or height < 4:
        return []
    each = cell_s(store.now, plot)
    engine = engine_in_focus(store, look)
    subject = engine.engine if engine is not None and engine.decode_tok_s is not None else "load"
    below: list[Line] = [_marks(store.events, store.now, each, plot)]
    agents = store.columns("load", "active", plot, each)
    if any(column and column[1] for column in agents):
        most = max(column[1] for column in agents if column)
        below.append([(right("agents", AXIS - 1), "label"), (" ", "text"), (spark(agents, most), "accent")])
    below.append(_axis(each, plot))
    room = height - len(below)
    decode = _columns(store, subject, "decode_tok_s", plot, each)
    if room >= 9 and engine is not None:
        upper = (room - 1) * 3 // 5
        prefill = _columns(store, engine.engine, "prefill_tok_s", plot, each)
        return [
            *_area("decode", decode, upper, "decode"),
            [],
            *_area("prefill", prefill, room - upper - 1, "prefill"),
            *below,
        ]
    return [*_area("decode", decode, room, "decode"), *below]


def _columns(store: Store, subject: str, figure: str, plot: int, each: int) -> list[Column]:
    """Two columns to a cell; while a cell is one second both are the same."""
    if each == 1:
        return [column for column in store.columns(subject, figure, plot) for _ in (0, 1)]
    return store.columns(subject, figure, plot * 2, each // 2)


def _area(name: str, columns: Sequence[Column], height: int, role: str) -> list[Line]:
    top = nice_top(max((column[1] for column in columns if column), default=0.0))
    labels = {height - 1: "0", 0: units.count(top) if top >= 10 else f"{top:g}"}
    if height >= 3:
        labels[1] = name
    lines: list[Line] = []
    for row, drawn in enumerate(area(columns, height, top)):
        edge = "┤" if row in (0, height - 1) else "│"
        lines.append([(right(labels.get(row, ""), AXIS - 1), "label"), (edge, "frame"), (drawn, role)])
    return lines


def _marks(events: Iterable[Event], now: float, each: int, plot: int) -> Line:
    """The axis with a mark where something happened, the gravest of each cell."""
    cells: list[Span] = [("─", "frame")] * plot
    last = int(now) // each
    for event in events:
        at = plot - 1 - (last - int(event.t) // each)
        if 0 <= at < plot and weight(mark(event)[0]) >= weight(cells[at][0]):
            cells[at] = mark(event)
    return [(" " * (AXIS - 1), "text"), ("└", "frame"), *joined(cells)]


MARKS = (
    ("mark", "◆", "accent"),
    ("agents.target", "+", "accent"),
    ("agents.fewer", "-", "accent"),
    ("agents.replaced", "±", "accent"),
    ("agents.stop", "x", "accent"),
    ("agents.pause", "‖", "accent"),
    ("agent.compact", "⇣", "compact"),
    ("finding", "◆", "accent"),
)


def mark(event: Event) -> Span:
    """Glyph and role of an event on a time axis.

    `◆` a mark of the user, `+` `-` more and fewer agents, `±` others, `x` agents stop, `⇣` a compaction,
    `!` `×` trouble, `┴` the rest.
    """
    if event.severity != "info":
        return SEVERITY.get(event.severity, ("!", "warn"))
    return next(
        ((glyph, role) for name, glyph, role in MARKS if event.event.startswith(name)), ("┴", "label")
    )


def weight(glyph: str) -> int:
    """Which of two marks at one place is drawn: the higher."""
    return "─━┴⇣‖x+◆!×".find(glyph)


def joined(cells: Iterable[Span]) -> Line:
    """Neighbours of one role in one span."""
    line: Line = []
    for glyph, role in cells:
        if line and line[-1][1] == role:
            line[-1] = (line[-1][0] + glyph, role)
        else:
            line.append((glyph, role))
    return line


def _axis(each: int, plot: int) -> Line:
    def label(seconds: int) -> str:
        return f"-{seconds // 60}:{seconds % 60:02d}"

    left, middle, at_right = label(plot * each), label(plot * each // 2), "now"
    gap = plot - len(left) - len(at_right)
    if gap < len(middle) + 4:
        return [(" " * AXIS + left + " " * max(1, gap) + at_right, "label")]
    before = plot // 2 - len(middle) // 2 - len(left)
    after = gap - before - len(middle)
    return [(" " * AXIS + left + " " * before + middle + " " * after + at_right, "label")]
