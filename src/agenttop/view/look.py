"""What the user looks at: the part of a picture that does not come from frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.model.frames import Event

SORTS = ("agent", "slot", "context", "rate")
"""Orders of the table of slots and agents."""


@dataclass(frozen=True, slots=True)
class Play:
    """Where and how a session is played; only the transport bar and the state words know it."""

    live: bool
    """At the newest frame, in real time: nothing to say about time."""
    playing: bool
    speed: float
    position: float
    start: float
    """The earliest moment that can be gone to."""
    duration: float
    words: tuple[str, ...] = ()
    """E.g. REPLAY, 4x, PAUSED."""
    events: Sequence[Event] = ()
    """For the marks on the bar, those to come included."""
    note: str | None = None
    """Why the last wish could not be met."""


@dataclass(frozen=True, slots=True)
class Look:
    """Choices of the user that shape the picture."""

    engine: str | None = None
    """The engine the user has chosen; None, or one that is gone: see `rows.engine_in_focus`."""
    shown: str | None = None
    """The engine shown last: it stays while nothing says that another should be."""
    row: str | None = None
    """Key of the selected row of the table; None: nothing selected."""
    sort: str = "agent"
    play: Play | None = None
    """None where time cannot be moved (a plain printout)."""
    footer: tuple[tuple[str, str], ...] = ()
    """Keys and what they do, the most important first."""
    hint: str | None = None
    """One sentence in place of the footer."""
    figures: bool = False
    """Quitting prints the figures of the run."""
