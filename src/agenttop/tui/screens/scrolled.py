"""A dialog that is longer than the screen: it scrolls, and says how much there is."""

from __future__ import annotations

from textual import events

from agenttop.tui.screens.dialog import Dialog
from agenttop.tui.widgets.lines import Lines
from agenttop.view.layout import guarded
from agenttop.view.spans import Line

MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "space": 10, "home": -999_999, "end": 999_999}
CLOSING = ("escape", "q", "enter")


class Scrolled(Dialog[None]):
    """A subclass gives all lines; which of them are in sight is seen to here."""

    closing: tuple[str, ...] = ()
    """Keys that close it besides `CLOSING`: those that opened it."""

    _top = 0
    _beyond = False
    """There are lines out of sight."""

    def everything(self, room: int) -> list[Line]:
        """All the lines there are."""
        raise NotImplementedError

    def content(self, room: int, rows: int) -> list[Line]:
        """Those in sight."""
        lines = guarded("dialog", lambda: self.everything(room), room, full=False)
        self._beyond = len(lines) > rows
        self._top = max(0, min(self._top, len(lines) - rows))
        return lines[self._top : self._top + rows]

    def note(self) -> Line:
        """How to get on, and away."""
        more: Line = [("↑↓", "key"), (" more  ", "label")] if self._beyond else []
        return [*more, ("Esc", "key"), (" closes", "label")]

    def on_key(self, event: events.Key) -> None:
        """Scroll, or close. (Textual calls this in a subclass's place as well as its own: hence `takes`.)"""
        if self.takes(event.key):
            pass
        elif event.key in MOVES:
            self.scroll_by(MOVES[event.key])
        elif event.key in (*CLOSING, *self.closing):
            self.dismiss(None)
        event.stop()

    def takes(self, key: str) -> bool:
        """Whether a subclass has done something about a key."""
        return False

    def on_lines_wheel(self, event: Lines.Wheel) -> None:
        """The wheel scrolls."""
        event.stop()
        self.scroll_by(3 * event.direction)

    def scroll_by(self, lines: int) -> None:
        """Go on, or back."""
        self._top = max(0, self._top + lines)
        self.draw()
