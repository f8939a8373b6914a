"""Everything known of the engine in focus."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.tui.screens.scrolled import Scrolled
from agenttop.view.engines import neighbour
from agenttop.view.look import Look
from agenttop.view.panels.details import details
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line, fit, foreign
from agenttop.view.store import Store

NOTHING = "no engine found yet"


class DetailsScreen(Scrolled):
    """It follows the session while it is open, and the keys that change the engine change it here, too."""

    title_text = "Engine"
    closing = ("i",)

    def __init__(self, store: Store, look: Callable[[], Look], focus: Callable[[str], None]) -> None:
        super().__init__()
        self._store = store
        self._look = look
        self._focus = focus

    def everything(self, room: int) -> list[Line]:
        """Identity, figures with their windows, latencies, parts, what is missing."""
        engine = engine_in_focus(self._store, self._look())
        if engine is None:
            return [[(NOTHING, "dim")]]
        self.title_text = f"{foreign(engine.name, 20)}: all that is known of it"
        # As wide for every engine, so that the box stands still from one to the next.
        return [fit(line, room) for line in details(self._store, engine, room, self._look())]

    def note(self) -> Line:
        """The keys of all scrolled dialogs, and those for another engine."""
        other: Line = []
        if len(self._store.engines) > 1:
            other = [("e", "key"), (" next engine  ", "label")]
        return [*other, *super().note()]

    def takes(self, key: str) -> bool:
        """Another engine."""
        if key not in ("e", "E"):
            return False
        engine = neighbour(self._store, self._look(), 1 if key == "e" else -1)
        if engine is not None:
            self._top = 0
            self._focus(engine.engine)
            self.draw()
        return True
