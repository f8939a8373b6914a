"""A session made of frames that a test hands out, and the console on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from textual.pilot import Pilot

from agenttop.model.clock import ManualClock
from agenttop.model.commands import Command, OwnCost
from agenttop.model.frames import Frame
from agenttop.stream.base import Batch
from agenttop.stream.rewind import Deck
from agenttop.tui.app import Console


class FrameSession:
    """A `FrameSource` that gives what `arrive` was called with, and keeps what is sent to it."""

    def __init__(self, frames: Sequence[Frame], now: float, refuses: str | None = None) -> None:
        self._waiting = list(frames)
        self._ended: str | None = None
        self.refuses = refuses
        self.now = now
        self.received: list[Command] = []

    def arrive(self, *frames: Frame, now: float | None = None, ended: str | None = None) -> None:
        self._waiting += frames
        self.now = self.now if now is None else now
        self._ended = ended

    def take(self) -> Batch:
        frames, self._waiting = self._waiting, []
        return Batch(frames=frames, now=self.now, ended=self._ended)

    def send(self, command: Command) -> None:
        self.received.append(command)

    @property
    def sent(self) -> list[Command]:
        """Commands of the user: the console's own cost left out."""
        return [command for command in self.received if not isinstance(command, OwnCost)]

    @property
    def accepts(self) -> str | None:
        return self.refuses

    def close(self) -> None:
        return


@dataclass
class Running:
    """A console that runs, and what a test needs around it."""

    console: Console
    pilot: Pilot[str]
    session: FrameSession
    clock: ManualClock

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def arrive(self, *frames: Frame, now: float, ended: str | None = None) -> None:
        """Frames come, time goes on, the console drains."""
        self.clock.advance(max(0.0, now - self.session.now))
        self.session.arrive(*frames, now=now, ended=ended)
        self.console.drain()
        await self.pilot.pause()

    @property
    def screen(self) -> str:
        """What the terminal shows, as text."""
        # Private, and only here: Textual has no public way to the lines of a screen.
        strips = self.console.screen._compositor.render_strips(self.console.size)
        return "\n".join(strip.text.rstrip() for strip in strips).rstrip() + "\n"

    @property
    def toasts(self) -> list[str]:
        return [notification.message for notification in self.console._notifications]


@asynccontextmanager
async def console_on(
    frames: Sequence[Frame],
    now: float,
    size: tuple[int, int] = (120, 40),
    *,
    refuses: str | None = None,
    deck: Deck | None = None,
    clock: ManualClock | None = None,
    **options: object,
) -> AsyncIterator[Running]:
    """The real console over a real deck; only the node is missing."""
    clock = clock or ManualClock(100.0)
    session = FrameSession(frames, now, refuses)
    console = Console(deck or Deck(session, clock), clock=clock, **options)  # type: ignore[arg-type]
    async with console.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        console.drain()
        await pilot.pause()
        yield Running(console, pilot, session, clock)
