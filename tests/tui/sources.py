"""A session made of frames that a test hands out, behind the interface of a real one."""

from __future__ import annotations

from agenttop.model.clock import ManualClock
from agenttop.model.commands import Command
from agenttop.model.frames import Frame
from agenttop.stream.base import Batch
from agenttop.stream.rewind import Deck


class FrameSession:
    """A `FrameSource` that gives what `arrive` was called with, and keeps what is sent to it."""

    def __init__(self, frames: list[Frame], now: float, accepts: str | None = None) -> None:
        self._waiting = list(frames)
        self._ended: str | None = None
        self._accepts = accepts
        self.now = now
        self.sent: list[Command] = []
        self.takes = 0

    def arrive(self, *frames: Frame, now: float | None = None, ended: str | None = None) -> None:
        self._waiting += frames
        self.now = self.now if now is None else now
        self._ended = ended

    def take(self) -> Batch:
        self.takes += 1
        frames, self._waiting = self._waiting, []
        return Batch(frames=frames, now=self.now, ended=self._ended)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    @property
    def accepts(self) -> str | None:
        return self._accepts

    def close(self) -> None:
        return


def deck(frames: list[Frame], now: float, clock: ManualClock | None = None) -> tuple[Deck, FrameSession]:
    source = FrameSession(frames, now)
    return Deck(source, clock or ManualClock()), source
