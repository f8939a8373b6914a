"""Where in time the picture is: shown only when that is not plainly now."""

from __future__ import annotations

from agenttop.model import units
from agenttop.view.look import Look, Play
from agenttop.view.panels.chart import joined, mark, weight
from agenttop.view.spans import Line, Span, fit, foreign, spread
from agenttop.view.spans import width as width_of

KEYS = (
    ("space", "play", "hold"),
    ("←→", "10 s", ""),
    ("[ ]", "event", ""),
    (", .", "sample", ""),
    ("< >", "speed", ""),
    ("g", "go to", ""),
    ("Home", "start", ""),
)


def transport(width: int, look: Look) -> list[Line]:
    """Two lines: play state, times and a bar with a mark for every event; the keys that move in time."""
    play = look.play
    if play is None or play.live:
        return []
    head: Line = [
        (" ▸ " if play.playing else " ‖ ", "accent"),
        (f"{play.speed:g}×", "strong" if play.speed != 1 else "text"),
        (f"  {units.clock(play.position)} ", "strong"),
    ]
    tail: Line = [(f" {units.clock(play.duration)} ", "label")]
    length = width - width_of(head) - width_of(tail)
    if length < 8:
        return [fit([*head, *tail], width)]
    return [[*head, *_bar(play, length), *tail], _keys(play, width)]


def _keys(play: Play, width: int) -> Line:
    if play.note:
        return fit([("   ", "text"), (foreign(play.note, 200), "warn")], width)
    parts: list[Line] = [[("End", "key"), (" end" if "REPLAY" in play.words else " live", "label")]]
    for key, text, when_playing in KEYS:
        shown = when_playing if play.playing and when_playing else text
        parts.insert(len(parts) - 1, [(key, "key"), (f" {shown}", "label")])
    order = [*parts[:3], parts[-1], *parts[3:-1]]
    return [("   ", "text"), *spread(order, width - 3)]


def _bar(play: Play, length: int) -> Line:
    """`━` played, `─` to come, `●` here; marks where something happened."""
    whole = play.duration - play.start

    def place(t: float) -> int:
        return min(length - 1, max(0, round((t - play.start) / whole * (length - 1)))) if whole > 0 else 0

    here = place(play.position)
    cells: list[Span] = [("━", "accent") if at <= here else ("─", "frame") for at in range(length)]
    for event in play.events:
        at = place(event.t)
        glyph, role = mark(event)
        if play.start <= event.t <= play.duration and weight(glyph) >= weight(cells[at][0]):
            cells[at] = (glyph, role)
    cells[here] = ("●", "strong")
    return joined(cells)
