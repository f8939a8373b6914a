"""Asked when quitting would touch running agents."""

from __future__ import annotations

from textual import events

from agenttop.tui.screens.dialog import Dialog
from agenttop.view.spans import Line


class QuitScreen(Dialog[str]):
    """Ends with quit, leave, or stay."""

    title_text = "Quit"

    def __init__(self, *, agents: int, can_leave: bool) -> None:
        super().__init__()
        self._agents = agents
        self._can_leave = can_leave

    def content(self, room: int, rows: int) -> list[Line]:
        """The choices."""
        if self._agents:
            are = "agent runs" if self._agents == 1 else "agents run"
            lines: list[Line] = [[(f"{self._agents} {are}.", "strong")], []]
            stop = "stop the agents and quit"
        else:
            lines = [[("The session can go on without this console.", "strong")], []]
            stop = "end the session and quit"
        lines.append([("s", "key"), (f"    {stop}", "text")])
        if self._can_leave:
            lines.append([("l", "key"), ("    leave it running: agenttop attach finds it again", "text")])
        else:
            lines.append([("     the demo engine stops with this console", "label")])
        lines.append([("Esc", "key"), ("  stay", "text")])
        return lines

    def note(self) -> Line:
        """Nothing: the choices say it all."""
        return []

    def on_key(self, event: events.Key) -> None:
        """Only the keys shown do something."""
        if event.key in ("s", "y"):
            self.dismiss("quit")
        elif event.key == "l" and self._can_leave:
            self.dismiss("leave")
        elif event.key in ("escape", "n", "c"):
            self.dismiss("stay")
        event.stop()
