"""What every source of frames looks like to the console: it pulls, a few times a second."""

from __future__ import annotations

from typing import Protocol

import msgspec

from agenttop.model.commands import Command
from agenttop.model.frames import Frame

BROKE_OFF = "ended unexpectedly"
"""How `Batch.ended` words that nobody meant the session to end."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What has arrived since the last `take`."""

    frames: list[Frame]
    now: float
    """Session time these frames bring the reader to: the playhead."""
    reset: bool = False
    """Forget everything first: `frames` rebuild the state at `now` from nothing (after a seek)."""
    ended: str | None = None
    """Why no more will come: one sentence. None while the source lives."""


class FrameSource(Protocol):
    """A session, wherever it is played from."""

    def take(self) -> Batch:
        """Never blocks. Frames in order of `t`."""
        ...

    def send(self, command: Command) -> None:
        """Pass a command on. A source that cannot obey (a recording) ignores it and says so in `accepts`."""
        ...

    @property
    def accepts(self) -> str | None:
        """None when commands are obeyed, else one sentence why not."""
        ...

    def close(self) -> None:
        """Let go of the session."""
        ...


class Transport(Protocol):
    """The part of a source that can move in time; only the transport bar knows it."""

    @property
    def duration(self) -> float:
        """Session time of the last frame known; grows while a session is being recorded."""
        ...

    @property
    def playing(self) -> bool:
        """Whether time passes."""
        ...

    @property
    def speed(self) -> float:
        """Session seconds per second."""
        ...

    def play(self, on: bool) -> None:
        """Let time pass, or stop it."""
        ...

    def set_speed(self, speed: float) -> None:
        """Session seconds per second from now on."""
        ...

    def seek(self, t: float) -> None:
        """Move the playhead."""
        ...

    def next_event(self, direction: int) -> None:
        """Seek to the next (+1) or previous (-1) event."""
        ...
