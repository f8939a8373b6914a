"""The lines of `agenttop doctor`: a mark, a name, what was found; wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from agenttop.model.text import printable

LEAST_WIDTH, MOST_WIDTH = 60, 120
_GLYPHS = {
    "ok": "✓",
    "seen": "✓",
    "bad": "✗",
    "unexplained": "✗",
    "absent": "–",
    "missing": "–",
    "quiet": "·",
}
_NAME = 17
_SAME = "the same"


def width_of_terminal() -> int:
    """Columns to wrap to."""
    return max(LEAST_WIDTH, min(shutil.get_terminal_size((80, 24)).columns, MOST_WIDTH))


def line(mark: str, name: str, text: str, fix: str | None, width: int, indent: int = 0) -> list[str]:
    """One finding; what would help stands below, behind an arrow."""
    head = f"{' ' * indent}{_GLYPHS[mark]} {printable(name):<{_NAME}} "
    lines = _wrapped(head, text, width)
    if fix:
        lines += _wrapped(" " * len(head) + "→ ", fix, width)
    return lines


def together(checks: Sequence[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """The checks, with those of these names that are well as one, where the first of them stands."""
    well = [each for each in checks if each["what"] in names and each["status"] == "ok"]
    if not well:
        return list(checks)
    text = ", ".join(f"{each['what']} {each['text']}" for each in well)
    one = {"what": "packages", "status": "ok", "text": text, "fix": None}
    return [one if each is well[0] else each for each in checks if each is well[0] or each not in well]


def check_line(check: dict[str, Any], width: int) -> list[str]:
    """A check about this machine, or the head of an engine."""
    return line(check["status"], check["what"], check["text"], check["fix"], width)


def figure_lines(rows: list[dict[str, Any]], width: int) -> list[str]:
    """The figures of an engine; a reason that holds for several in a row is written once."""
    lines: list[str] = []
    before: tuple[str, str | None] | None = None
    for row in rows:
        reason = (row["text"], row["fix"]) if row["status"] != "seen" else None
        if reason is not None and reason == before:
            lines += line(row["status"], row["figure"], _SAME, None, width, indent=2)
        else:
            lines += line(row["status"], row["figure"], row["text"], row["fix"], width, indent=2)
        before = reason
    return lines


def plain_line(name: str, text: str, width: int) -> list[str]:
    """A line below an engine without a mark."""
    return _wrapped(f"    {name:<{_NAME}} ", text, width)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    clean = " ".join(printable(text).split())
    return textwrap.wrap(
        clean,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=True,
        break_on_hyphens=False,
    ) or [head.rstrip()]
