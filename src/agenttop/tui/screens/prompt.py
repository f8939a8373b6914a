"""One line of text, asked for."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label


class Prompt(ModalScreen[str]):
    """Ends with what was typed; with an empty text when it was given up."""

    def __init__(self, title: str, hint: str, limit: int = 120) -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._limit = limit

    def compose(self) -> ComposeResult:
        """A box with a hint and a line to type in."""
        with Vertical() as frame:
            frame.border_title = self._title
            yield Label(self._hint, markup=False)
            yield Input(max_length=self._limit, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value.strip())

    def on_key(self, event: events.Key) -> None:
        """Escape gives up."""
        if event.key == "escape":
            event.stop()
            self.dismiss("")
