"""What happened, newest first."""

from __future__ import annotations

from itertools import islice

from agenttop.model import units
from agenttop.view.glyphs import SEVERITY
from agenttop.view.panels.chart import mark
from agenttop.view.spans import Line, cells, cut, foreign
from agenttop.view.store import Store


def events(store: Store, width: int, height: int) -> list[Line]:
    """One line each: when, how grave, what."""
    if not store.events:
        return [[("nothing has happened yet", "dim")]][:height]
    lines: list[Line] = []
    for event in islice(reversed(store.events), max(0, height)):
        glyph, role = mark(event)
        glyph = SEVERITY["info"][0] if glyph == "┴" else glyph
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
