"""The engines of the session, to choose from."""

from __future__ import annotations

from textual import events

from agenttop.tui.screens.dialog import Dialog
from agenttop.tui.widgets.lines import Lines
from agenttop.view.engines import ordered
from agenttop.view.layout import guarded
from agenttop.view.look import Look
from agenttop.view.panels.engines import engines
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line
from agenttop.view.store import Store

BORDER = 1
"""Lines of the box above its first line."""


class EnginesScreen(Dialog[str]):
    """Ends with the address of the engine that was chosen; with None when none was."""

    title_text = "Engines"

    def __init__(self, store: Store, look: Look) -> None:
        super().__init__()
        self._store = store
        focus = engine_in_focus(store, look)
        self._chosen = focus.engine if focus is not None else None
        self._at: dict[int, str] = {}

    def content(self, room: int, rows: int) -> list[Line]:
        """One line for each; it follows the session."""
        known = self._addresses()
        if self._chosen not in known:
            self._chosen = known[0] if known else None
        self._at = {}

        def listed() -> list[Line]:
            lines, self._at = engines(self._store, room, rows, self._chosen)
            return lines

        return guarded("engines", listed, room, full=False)

    def note(self) -> Line:
        """How to choose, and how to get away."""
        return [
            *[("↑↓", "key"), (" choose  ", "label"), ("⏎", "key"), (" look at it  ", "label")],
            *[("i", "key"), (" details  ", "label"), ("Esc", "key"), (" closes", "label")],
        ]

    def on_key(self, event: events.Key) -> None:
        """Choose, take, or close."""
        moves = {
            "up": -1,
            "down": 1,
            "e": 1,
            "E": -1,
            "pageup": -10,
            "pagedown": 10,
            "home": -999,
            "end": 999,
        }
        if event.key in moves:
            self._move(moves[event.key])
        elif event.key in ("enter", "space"):
            self.dismiss(self._chosen)
        elif event.key == "i":
            self.dismiss(self._chosen)
            self.app.call_later(self.app.run_action, "details")
        elif event.key in ("escape", "q", "l"):
            self.dismiss(None)
        event.stop()

    def on_lines_pressed(self, event: Lines.Pressed) -> None:
        """A click chooses the engine under it and looks at it."""
        event.stop()
        engine = self._at.get(event.line - BORDER)
        if engine is not None:
            self.dismiss(engine)

    def on_lines_wheel(self, event: Lines.Wheel) -> None:
        """The wheel moves the choice."""
        event.stop()
        self._move(event.direction)

    def _move(self, step: int) -> None:
        known = self._addresses()
        if self._chosen in known:
            self._chosen = known[min(len(known) - 1, max(0, known.index(self._chosen) + step))]
        self.draw()

    def _addresses(self) -> list[str]:
        return [engine.engine for engine, _ in ordered(self._store)]
