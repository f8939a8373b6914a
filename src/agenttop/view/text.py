"""The live screen as plain text: for pipes, plain terminals and tests."""

from __future__ import annotations

from agenttop.view.layout import compose
from agenttop.view.look import Look
from agenttop.view.spans import plain
from agenttop.view.store import Store


def picture(store: Store, width: int = 120, height: int = 40, look: Look | None = None) -> str:
    """The whole screen, a newline after each line, no trailing blanks and no control sequences."""
    drawn = compose(store, width, height, look or Look())
    return "\n".join(plain(line) for line in drawn.lines).rstrip() + "\n"
