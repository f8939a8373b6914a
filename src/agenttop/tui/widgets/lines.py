"""A widget that shows lines of styled spans, and redraws only those that have changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from agenttop.view.spans import ROLES, Line, width

ON_CURSOR = "@"
"""Ends a role that stands on the selected row."""


class Lines(Widget):
    """Shows what `show` was last given; a line keeps its strip until its spans or the width change.

    Every role of `view.spans.ROLES` is a component class, `lines--<role>`; `lines--cursor` gives the
    background of the selected row.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in ROLES}
    ALLOW_SELECT = False

    class Pressed(Message):
        """A line was clicked."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    class Wheel(Message):
        """The wheel was turned by one notch: +1 is towards the end."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: list[Line] = []
        self._strips: list[Strip | None] = []
        self._styles: dict[str, Style] = {}

    @property
    def shown(self) -> list[Line]:
        """The lines as they were given."""
        return self._shown

    def show(self, lines: Sequence[Line]) -> int:
        """Show these lines instead. Returns how many of them differ from what was shown."""
        before, self._shown = self._shown, list(lines)
        if len(before) != len(self._shown):
            self._strips = [None] * len(self._shown)
            self.refresh()
            return len(self._shown)
        changed = [row for row, line in enumerate(self._shown) if line != before[row]]
        for row in changed:
            self._strips[row] = None
        # Whole lines: cropping strips to the cells that differ costs more than it saves (measured at
        # 200x60: 6 ms a frame for 13 kB less).
        if changed:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in changed))
        return len(changed)

    def render_line(self, y: int) -> Strip:
        """One line, from the cache where it has not changed."""
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self._style("text"))
        strip = self._strips[y]
        # Looked at here, not in `on_resize`: that comes only after the first painting in a new size.
        if strip is None or strip.cell_length != self.size.width:
            strip = self._strips[y] = self._strip(self._shown[y])
        return strip

    def _strip(self, line: Line) -> Strip:
        segments = [Segment(text, self._style(role)) for text, role in merged(line)]
        taken = width(line)
        strip = Strip(segments, taken)
        return (
            strip
            if taken == self.size.width
            else strip.adjust_cell_length(self.size.width, self._style("text"))
        )

    def notify_style_update(self) -> None:
        """The theme has changed: nothing drawn so far is right any more."""
        super().notify_style_update()
        self._styles.clear()
        self._strips = [None] * len(self._shown)

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            name = role.removesuffix(ON_CURSOR)
            style = self.get_component_rich_style(f"lines--{name if name in ROLES else 'text'}")
            if role.endswith(ON_CURSOR):
                cursor = self.get_component_rich_style("lines--cursor")
                style = style + Style(bgcolor=cursor.bgcolor)
            self._styles[role] = style
        return style

    def on_click(self, event: events.Click) -> None:
        """Pass a click on as the line it hit."""
        self.post_message(self.Pressed(event.y))

    def on_mouse_scroll_down(self) -> None:
        """Pass the wheel on."""
        self.post_message(self.Wheel(1))

    def on_mouse_scroll_up(self) -> None:
        """Pass the wheel on."""
        self.post_message(self.Wheel(-1))


FILLED = ("badge", "alarm")
"""Roles with a background of their own."""


def merged(line: Line) -> list[tuple[str, str]]:
    """The spans, neighbours of one look in one: blanks have no colour, so they go with what stands before.

    Every segment costs, all the way to the terminal; this leaves about half of them.
    """
    parts: list[tuple[str, str]] = []
    last_text, last_role = "", ""
    for text, role in line:
        if not text:
            continue
        if role == last_role or (
            last_text
            and text.isspace()
            and role not in FILLED
            and last_role not in FILLED
            and role.endswith(ON_CURSOR) == last_role.endswith(ON_CURSOR)
        ):
            last_text += text
            continue
        if last_text:
            parts.append((last_text, last_role))
        last_text, last_role = text, role
    if last_text:
        parts.append((last_text, last_role))
    return parts
