"""Values as text: as the cells of a table for eyes, CSV files and Markdown, or as JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from agenttop.model.text import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def json_text(value: Any) -> str:
    """A value as JSON for eyes and scripts alike: indented, ends with a newline."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def csv_cell(value: Any) -> Any:
    """A value for a CSV file. Text that a spreadsheet would run as a formula gets an apostrophe in front.

    Counts by kind become `stall=2; cut=1`."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "; ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _printable(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[printable(cell).replace("\n", "?") for cell in row] for row in rows]


def width(text: str) -> int:
    """Cells of a terminal that a printable text takes: letters of East Asia take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns of text, the first `left` to the left and the others to the right, two spaces apart."""
    rows = _printable(rows)
    widths = [max(width(row[index]) for row in (header, *rows)) for index in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            f"{cell}{' ' * (wide - width(cell))}" if index < left else f"{' ' * (wide - width(cell))}{cell}"
            for index, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same as a Markdown table."""
    rows = _printable(rows)
    rule = ["---" if index < left else "---:" for index in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
