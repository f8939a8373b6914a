"""What is missing on the screen, why, and what would provide it."""

from __future__ import annotations

from agenttop.tui.screens.scrolled import Scrolled
from agenttop.view.panels.missing import missing
from agenttop.view.spans import Line
from agenttop.view.store import Store


class MissingScreen(Scrolled):
    """A list, engine by engine; it follows the session while it is open."""

    title_text = "What is missing, and why"
    closing = ("w",)

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def everything(self, room: int) -> list[Line]:
        """Each with its reason and, where there is one, the way to get it."""
        return missing(self._store, room)
