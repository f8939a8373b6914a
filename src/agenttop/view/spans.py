"""Styled text without a terminal: what panels are made of.

A `Span` is (text, role). Roles say what a piece of text means; the console maps them to the theme's
colours, plain output drops them. Every glyph used is one cell wide.
"""

from __future__ import annotations

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
)


def plain(line: Line) -> str:
    """The text of a line, without trailing spaces."""
    return "".join(text for text, _ in line).rstrip()


def width(line: Line) -> int:
    """Cells a line takes."""
    return sum(len(text) for text, _ in line)


def fit(line: Line, cells: int) -> Line:
    """Cut or pad a line to exactly `cells`; a cut line ends in `…`."""
    used = 0
    fitted: Line = []
    for text, role in line:
        if used + len(text) > cells:
            keep = cells - used
            if keep > 0:
                fitted.append((text[: keep - 1] + "…", role))
            used = cells
            break
        fitted.append((text, role))
        used += len(text)
    if used < cells:
        fitted.append((" " * (cells - used), "text"))
    return fitted
