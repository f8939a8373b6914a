"""The turns that ended last, newest first: what one request cost, in numbers."""

from __future__ import annotations

from itertools import islice

from agenttop.model import units
from agenttop.model.frames import Turn
from agenttop.view.figures import tpot
from agenttop.view.spans import Line, Span, beside, fit, fit_at_most, foreign, pad, right
from agenttop.view.store import Store

GAP = 6
"""Cells between two lists side by side."""

COLUMNS = (
    ("time", 8),
    ("agent", -5),
    ("turn", 4),
    ("TTFT", 6),
    ("tok/s", 5),
    ("in", 5),
    ("out", 5),
    ("cached", 6),
    ("end", -7),
)
"""Titles and widths, the most important first; those below zero stand at the left."""

FULL = sum(abs(cells) for _, cells in COLUMNS) + len(COLUMNS) - 1


def turns(store: Store, width: int, height: int) -> list[Line]:
    """A line of titles, then one each: first token, rate, tokens in and out, how it ended.

    Where there is room the list goes on in further columns.
    """
    if not store.turns:
        return [[("no turn has ended yet", "dim")]][:height]
    titles = _line([(name, "label") for name, _ in COLUMNS], width)
    count = max(1, (width + GAP) // (FULL + GAP))
    each, rows = width if count == 1 else FULL + GAP, max(1, height - 1)
    newest = list(islice(reversed(store.turns), rows * count))
    lines: list[Line] = []
    for start in range(0, max(1, len(newest)), rows):
        drawn = [titles, *(_turn(turn, min(width, FULL)) for turn in newest[start : start + rows])]
        block = [fit(line, each) for line in drawn]
        lines = beside(lines, start // rows * each, block, each) if start else block
    return lines


def _turn(turn: Turn, width: int) -> Line:
    pace = tpot(turn)
    waited = None
    if turn.t_sent is not None and turn.t_first_token is not None:
        waited = turn.t_first_token - turn.t_sent
    who: list[Span] = [
        (units.clock(turn.t), "label"),
        (foreign(turn.agent, 12), "strong"),
        (str(turn.turn), "text"),
    ]
    if turn.error or turn.error_kind:
        reason = foreign(turn.error or turn.error_kind or "", 160)
        return fit_at_most([*_line(who, width), (" × ", "bad"), (reason, "bad")], width)
    cached = (
        turn.cached_tokens / turn.prompt_tokens
        if turn.cached_tokens is not None and turn.prompt_tokens
        else None
    )
    end = (
        (turn.finish_reason or units.MISSING, "dim")
        if turn.turn_kind == "turn"
        else (turn.turn_kind, "compact")
    )
    return _line(
        [
            *who,
            (units.seconds(waited), "text"),
            (units.rate(1 / pace if pace else None), "decode"),
            (units.count(turn.prompt_tokens), "text"),
            (units.count(turn.output_tokens), "text"),
            (units.percent(cached), "text"),
            (foreign(end[0], 16), end[1]),
        ],
        width,
    )


def _line(values: list[Span], width: int) -> Line:
    """As many of the columns as fit whole."""
    line: Line = []
    room = width + 1
    for (text, role), (_, cells) in zip(values, COLUMNS, strict=False):
        room -= abs(cells) + 1
        if room < 0:
            break
        gap = " " if line else ""
        line.append((gap + (right(text, cells) if cells > 0 else pad(text, -cells)), role))
    return line
