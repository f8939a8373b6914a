"""What dialogs share: a box of lines in the middle of the screen, over the live picture."""

from __future__ import annotations

from typing import TypeVar

from textual.app import ComposeResult
from textual.screen import ModalScreen

from agenttop.tui.base import ConsoleBase
from agenttop.tui.widgets.lines import Lines
from agenttop.view.rows import engine_in_focus
from agenttop.view.simulated import notice
from agenttop.view.spans import Line, box, fit_at_most, width

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A subclass says what stands in the box, and handles keys."""

    title_text = ""
    """In the upper edge."""

    _box_size = (0, 0)

    def content(self, room: int, rows: int) -> list[Line]:
        """The lines in the box, for at most `room` cells and `rows` lines."""
        raise NotImplementedError

    def note(self) -> Line:
        """In the lower edge."""
        return [("Esc", "key"), (" closes", "label")]

    def _simulated(self) -> Line:
        """A dialog may cover the line that says so."""
        if not isinstance(self.app, ConsoleBase):
            return []
        told = notice(self.app.store, engine_in_focus(self.app.store, self.app.look()))
        return [("  ", "text"), (f" {told} ", "badge")] if told is not None else []

    def compose(self) -> ComposeResult:
        """One widget of lines."""
        yield Lines()

    def on_mount(self) -> None:
        """Draw for the first time."""
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()

    def draw(self) -> None:
        """Draw the box anew; cheap when nothing has changed."""
        if not self.is_mounted:
            return
        full_width, full_height = self.app.size
        room, rows = max(10, min(full_width - 8, 100)), max(3, full_height - 4)
        body = [fit_at_most(line, room) for line in self.content(room, rows)][:rows]
        title: Line = [(self.title_text, "accent"), *self._simulated()]
        inner = max([width(line) for line in body] + [width(title) + 4, width(self.note()) + 4])
        lines = box(title, body, inner + 4, len(body) + 2, self.note())
        target = self.query_one(Lines)
        if self._box_size != (inner + 4, len(lines)):
            self._box_size = (inner + 4, len(lines))
            target.styles.width, target.styles.height = self._box_size
        target.show(lines)
