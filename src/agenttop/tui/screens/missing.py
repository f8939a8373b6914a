"""What is missing on the screen, why, and what would provide it."""

from __future__ import annotations

from textual import events

from agenttop.model.frames import Missing
from agenttop.tui.screens.dialog import Dialog
from agenttop.view.spans import Line, foreign, wrap
from agenttop.view.store import Store


class MissingScreen(Dialog[None]):
    """A list; it follows the session while it is open."""

    title_text = "What is missing, and why"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._top = 0

    def content(self, room: int, rows: int) -> list[Line]:
        """Each with its reason and, where there is one, the way to get it."""
        lines: list[Line] = []
        for missing in sorted(self._store.missing.values(), key=lambda missing: missing.what):
            lines.append(_named(self._store, missing))
            lines += [[("  ", "text"), *line] for line in wrap(foreign(missing.why or "", 300), room - 2)]
            if missing.fix:
                lines += [
                    [("  ", "text"), *line] for line in wrap(foreign(missing.fix, 300), room - 2, "accent")
                ]
        if not lines:
            return [[("nothing: all that can be measured here is shown", "text")]]
        self._top = max(0, min(self._top, len(lines) - rows))
        return lines[self._top : self._top + rows]

    def on_key(self, event: events.Key) -> None:
        """Scroll, or close."""
        moves = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        if event.key in moves:
            self._top += moves[event.key]
            self.draw()
        elif event.key in ("escape", "q", "w", "enter"):
            self.dismiss(None)
        event.stop()


HERE = ("gpu", "host")
"""What is missing of the machine itself, not of an engine."""


def _named(store: Store, missing: Missing) -> Line:
    """The field, and whose it is: `version  of llama.cpp at http://127.0.0.1:8080`.

    Beside a simulated engine it is said of the machine's own figures that they are the machine's.
    """
    subject, field = missing.subject_and_field
    engine = store.engines.get(subject) if subject is not None else None
    if subject is not None:
        name = f"{foreign(engine.name, 20)} at " if engine is not None else ""
        return [(foreign(field, 40), "strong"), (f"  of {name}{foreign(subject, 60)}", "label")]
    line: Line = [(foreign(field, 80), "strong")]
    simulated = any(engine.simulated for engine in store.engines.values())
    if simulated and field.split(":")[0] in HERE:
        line.append(("  of this machine, not of the simulated one", "label"))
    return line
