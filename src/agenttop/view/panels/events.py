"""What happened, newest first."""

from __future__ import annotations

from itertools import islice

from agenttop.model import units
from agenttop.model.frames import Event
from agenttop.view.glyphs import SEVERITY
from agenttop.view.panels.chart import mark
from agenttop.view.spans import Line, Span, cells, cut, foreign, wrap
from agenttop.view.store import Store

CLOCK = 8
"""Cells of a session time."""


def whole(event: Event, width: int) -> list[Line]:
    """One event in as many lines as its text takes."""
    glyph, role = _glyph(event)
    indent = CLOCK + 3
    who = f" ({foreign(event.source, 12)})" if event.source != "node" else ""
    text_role = role if event.severity in ("warn", "bad") else "text"
    wrapped = wrap(foreign(event.text, LONGEST) + who, max(10, width - indent), text_role) or [[]]
    first: Line = [(units.clock(event.t), "label"), (f" {glyph} ", role), *wrapped[0]]
    return [first, *([(" " * indent, "text"), *line] for line in wrapped[1:])]


def _glyph(event: Event) -> Span:
    glyph, role = mark(event)
    return (SEVERITY["info"][0] if glyph == "┴" else glyph, role)


LONGEST = 1000
"""Characters of a text that are shown."""


def events(store: Store, width: int, height: int) -> list[Line]:
    """One line each: when, how grave, what."""
    if not store.events:
        return [[("nothing has happened yet", "dim")]][:height]
    lines: list[Line] = []
    for event in islice(reversed(store.events), max(0, height)):
        glyph, role = _glyph(event)
        text = foreign(event.text, 200)
        text_role = role if event.severity in ("warn", "bad") else "text"
        who = f"  {foreign(event.source, 12)}" if event.source != "node" else ""
        room = max(0, width - 11)
        if cells(text) + len(who) > room and event.source != "you":
            who = ""
        lines.append(
            [
                (units.clock(event.t), "label"),
                (f" {glyph} ", role),
                (cut(text, max(0, room - len(who))), text_role),
                (who, "dim"),
            ]
        )
    return lines
