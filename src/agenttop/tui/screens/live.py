"""The live screen: one picture over the whole terminal."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from agenttop.tui.widgets.lines import Lines


class LiveScreen(Screen[None]):
    """Holds the picture; what is in it is composed by `view.layout`, when the console says so."""

    AUTO_FOCUS = ""

    def compose(self) -> ComposeResult:
        """One widget of lines."""
        yield Lines(id="live")
