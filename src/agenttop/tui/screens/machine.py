"""Everything known of the machine: GPUs, host, memory, hardware, processes."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.tui.screens.scrolled import Scrolled
from agenttop.view.look import Look
from agenttop.view.panels.machine import machine
from agenttop.view.spans import Line, fit, foreign
from agenttop.view.store import Store


class MachineScreen(Scrolled):
    """It follows the session while it is open."""

    title_text = "Machine"
    closing = ("h",)

    def __init__(self, store: Store, look: Callable[[], Look]) -> None:
        super().__init__()
        self._store = store
        self._look = look

    def everything(self, room: int) -> list[Line]:
        """GPU by GPU with what held each down, then the host, its memory, who uses it, what is missing."""
        session = self._store.session
        if session is not None:
            self.title_text = f"{foreign(session.host, 30)}: GPUs, host, memory, processes"
        return [fit(line, room) for line in machine(self._store, room, self._look())]
