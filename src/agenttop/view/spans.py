"""Styled text without a terminal: what panels are made of.

A `Span` is (text, role). Roles say what a piece of text means; the console maps them to the theme's
colours, plain output drops them. Every glyph of ours is one cell wide; foreign text may hold wide
characters, so whatever cuts, pads or measures text counts cells, not characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from agenttop.model.text import clean

Span = tuple[str, str]
Line = list[Span]

ROLES = (
    "text",  # an ordinary value
    "strong",  # the value the eye should find first
    "label",  # names of values
    "dim",  # separators, units, what is missing
    "good",
    "warn",
    "bad",
    "accent",  # titles, the brand, what is selected
    "prefill",
    "decode",
    "pause",
    "compact",
    "idle",
    "cursor",  # the selected row
    "frame",  # borders and rules
    "badge",  # a state word that explains the whole screen: REPLAY, PAUSED
    "alarm",  # a state word that something is wrong with the whole screen: STALE, DOWN
    "key",  # a key that can be pressed
)

# What may be wider than one cell: from Hangul Jamo up, without the symbols and braille in between.
_MAYBE_WIDE = re.compile("[\u1100-\u115f\u231a-\u23f3\u25fd\u25fe\u2614-\u27bf\u2b1b-\U0010ffff]")


@lru_cache(maxsize=4096)
def foreign(text: str, limit: int = 200) -> str:
    """Text from a server, a file or a user as one line in which every character takes one or two cells."""
    composed = unicodedata.normalize("NFC", clean(text, limit))
    return "".join(char for char in composed if unicodedata.category(char) not in ("Mn", "Me", "Cf", "Cn"))


def cells(text: str) -> int:
    """Terminal cells the text takes."""
    if text.isascii() or not _MAYBE_WIDE.search(text):
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def cut(text: str, limit: int) -> str:
    """The text in at most `limit` cells; what is cut ends in `…`."""
    if cells(text) <= limit:
        return text
    if limit <= 0:
        return ""
    kept = text[: limit - 1]
    while cells(kept) > limit - 1:
        kept = kept[:-1]
    return kept + "…"


def pad(text: str, limit: int) -> str:
    """The text in exactly `limit` cells, at the left."""
    short = cut(text, limit)
    return short + " " * (limit - cells(short))


def right(text: str, limit: int) -> str:
    """The text in exactly `limit` cells, at the right."""
    short = cut(text, limit)
    return " " * (limit - cells(short)) + short


def plain(line: Line) -> str:
    """The text of a line, without trailing spaces."""
    return "".join(text for text, _ in line).rstrip()


def width(line: Line) -> int:
    """Cells a line takes."""
    taken = 0
    for text, _ in line:
        taken += len(text)
        if not text.isascii() and _MAYBE_WIDE.search(text):
            taken += cells(text) - len(text)
    return taken


def fit(line: Line, limit: int) -> Line:
    """Cut or pad a line to exactly `limit` cells; a cut line ends in `…`."""
    missing = limit - width(line)
    if missing > 0:
        return [*line, (" " * missing, "text")]
    if missing == 0:
        return line
    used = 0
    fitted: Line = []
    for text, role in line:
        taken = cells(text)
        if used + taken > limit:
            short = cut(text, limit - used)
            if short:
                fitted.append((short, role))
            elif fitted:
                last, last_role = fitted[-1]
                fitted[-1] = (cut(last + " ", cells(last)), last_role)
            break
        fitted.append((text, role))
        used += taken
    short_by = limit - width(fitted)
    return [*fitted, (" " * short_by, "text")] if short_by > 0 else fitted


def ends(left: Line, at_right: Line, limit: int) -> Line:
    """`left` at the left edge and `at_right` at the right one, in exactly `limit` cells.

    Where both do not fit, the left part is cut.
    """
    room = limit - width(at_right)
    if room < 0:
        return fit(at_right, limit)
    return [*fit(left, room), *at_right]


def spread(parts: Sequence[Line], limit: int, gap: int = 2) -> Line:
    """As many of the parts, in order, as fit whole into `limit` cells; at least the first, cut."""
    line: Line = []
    used = 0
    for part in parts:
        taken = width(part)
        if not taken:
            continue
        if line and used + gap + taken > limit:
            break
        if line:
            line.append((" " * gap, "text"))
            used += gap
        line += part
        used += taken
    return fit(line, limit)


def beside(left: Sequence[Line], left_width: int, at_right: Sequence[Line], right_width: int) -> list[Line]:
    """Two blocks next to each other, whose lines are exactly as wide as said; the shorter one is filled
    up with blanks."""
    both = [[*line, *other] for line, other in zip(left, at_right, strict=False)]
    both += [[*line, (" " * right_width, "text")] for line in left[len(at_right) :]]
    both += [[(" " * left_width, "text"), *line] for line in at_right[len(left) :]]
    return both


def box(title: Line, body: Sequence[Line], limit: int, height: int, note: Line | None = None) -> list[Line]:
    """A frame of `limit` by `height` cells around the body, its title in the upper edge, a note at the end
    of the lower one."""
    inner = limit - 4
    head: Line = [("╭ ", "frame"), *fit_at_most(title, limit - 4), (" ", "frame")]
    lines: list[Line] = [[*head, ("─" * max(0, limit - width(head) - 1) + "╮", "frame")]]
    for row in range(height - 2):
        content = body[row] if row < len(body) else []
        lines.append([("│ ", "frame"), *fit(content, inner), (" │", "frame")])
    tail: Line = (
        [(" ", "frame"), *fit_at_most(note, limit - 4), (" ─╯", "frame")] if note else [("╯", "frame")]
    )
    lines.append([("╰" + "─" * max(0, limit - width(tail) - 1), "frame"), *tail])
    return lines


def rule(title: Line, limit: int, note: Line | None = None) -> Line:
    """A title in a horizontal line: what a box becomes where there is no room for boxes."""
    tail: Line = [(" ", "frame"), *note, (" ─", "frame")] if note else []
    head: Line = [("─ ", "frame"), *fit_at_most(title, limit - 4), (" ", "frame")]
    room = limit - width(head) - width(tail)
    if room < 0:
        return fit(head, limit)
    return [*head, ("─" * room, "frame"), *tail]


def fit_at_most(line: Line, limit: int) -> Line:
    """The line, cut to `limit` cells where it is longer."""
    return line if width(line) <= limit else fit(line, limit)


def wrap(text: str, limit: int, role: str = "text") -> list[Line]:
    """Words of one sentence on lines of at most `limit` cells."""
    lines: list[Line] = []
    current = ""
    for word in text.split():
        joined = f"{current} {word}" if current else word
        if current and cells(joined) > limit:
            lines.append([(cut(current, limit), role)])
            current = word
        else:
            current = joined
    if current:
        lines.append([(cut(current, limit), role)])
    return lines
