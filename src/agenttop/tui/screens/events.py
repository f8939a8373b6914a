"""What happened, newest first, with every text whole."""

from __future__ import annotations

from itertools import takewhile

from textual import events

from agenttop.model.frames import Event
from agenttop.tui.screens.dialog import Dialog
from agenttop.view.panels.events import whole
from agenttop.view.spans import Line
from agenttop.view.store import Store


class EventsScreen(Dialog[None]):
    """A list; it follows the session while its upper end is shown, and stands still once it is scrolled."""

    title_text = "What happened"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._top = 0
        self._newest: Event | None = None

    def content(self, room: int, rows: int) -> list[Line]:
        """As many lines as fit, each event wrapped."""
        happened = self._store.events
        if self._top and self._newest is not None:
            fresh = list(takewhile(lambda event: event is not self._newest, reversed(happened)))
            # After a jump in time the place is lost: back to the upper end.
            lost = len(fresh) == len(happened)
            self._top = 0 if lost else self._top + sum(len(whole(event, room)) for event in fresh)
        self._newest = happened[-1] if happened else None
        lines: list[Line] = []
        for event in reversed(happened):
            lines += whole(event, room)
            if len(lines) >= self._top + rows:
                break
        self._top = max(0, min(self._top, len(lines) - rows))
        if not lines:
            return [[("nothing has happened yet", "dim")]]
        return lines[self._top : self._top + rows]

    def note(self) -> Line:
        """How to get on, and away."""
        return [("↑↓", "key"), (" more  ", "label"), ("Esc", "key"), (" closes", "label")]

    def on_key(self, event: events.Key) -> None:
        """Scroll, or close."""
        moves = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "home": -999_999, "end": 999_999}
        if event.key in moves:
            self._top = max(0, self._top + moves[event.key])
            self.draw()
        elif event.key in ("escape", "q", "v", "enter"):
            self.dismiss(None)
        event.stop()
