"""The turns that ended last, newest first: what one request cost, in numbers."""

from __future__ import annotations

from itertools import islice

from agenttop.model import units
from agenttop.model.frames import Turn
from agenttop.view.figures import tpot
from agenttop.view.spans import Line, beside, cut, fit, fit_at_most, foreign, pad, right
from agenttop.view.store import Store

COLUMNS = (
    ("time", 8),
    ("agent", 5),
    ("turn", 4),
    ("TTFT", 6),
    ("tok/s", 5),
    ("in", 5),
    ("out", 5),
    ("cached", 6),
    ("end", 7),
)
"""Titles and widths; `agent` and `end` stand at the left."""

AT_LEFT = ("agent", "end")

GAP = 6
"""Cells between two lists side by side."""


FULL = sum(cells for _, cells in COLUMNS) + len(COLUMNS) - 1


def turns(store: Store, width: int, height: int) -> list[Line]:
    """A line of titles, then one each: first token, rate, tokens in and out, how it ended.

    Where there is room the list goes on in further columns.
    """
    if not store.turns:
        return [[("no turn has ended yet", "dim")]][:height]
    titles: Line = [(" ".join(pad(n, c) if n in AT_LEFT else right(n, c) for n, c in COLUMNS), "label")]
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
    line: Line = [
        (units.clock(turn.t), "label"),
        (f" {pad(foreign(turn.agent, 12), 5)}", "strong"),
        (f" {right(str(turn.turn), 4)}", "text"),
    ]
    if turn.error or turn.error_kind:
        reason = foreign(turn.error or turn.error_kind or "", 160)
        return fit_at_most([*line, (" × ", "bad"), (reason, "bad")], width)
    cached = (
        turn.cached_tokens / turn.prompt_tokens
        if turn.cached_tokens is not None and turn.prompt_tokens
        else None
    )
    line += [
        (f" {right(units.seconds(waited), 6)}", "text"),
        (f" {right(units.rate(1 / pace if pace else None), 5)}", "decode"),
        (f" {right(units.count(turn.prompt_tokens), 5)}", "text"),
        (f" {right(units.count(turn.output_tokens), 5)}", "text"),
        (f" {right(units.percent(cached), 6)}", "text"),
    ]
    if turn.turn_kind != "turn":
        return [*line, (f" {cut(foreign(turn.turn_kind, 12), 7)}", "compact")]
    return [*line, (f" {cut(foreign(turn.finish_reason or units.MISSING, 16), 7)}", "dim")]
