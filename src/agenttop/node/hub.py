"""Every frame passes here once: into the recording, into the recent history, out to each console."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from agenttop.model.frames import Event, Frame, RecordingState
from agenttop.node.notice import Noticer
from agenttop.stream.history import History
from agenttop.wire.codec import encode


class Listener(Protocol):
    """One console, however it is connected. Must not block."""

    def offer(self, lines: bytes) -> None:
        """Whole lines to pass on; a listener that cannot keep up drops them and counts."""
        ...


class Sink(Protocol):
    """What the hub needs of a recorder (`record.write.Recorder`)."""

    failure: str | None

    def add(self, frame: Frame) -> None:
        """Take in a frame."""
        ...

    def commit(self) -> None:
        """Make everything taken in last."""
        ...

    def close(self) -> None:
        """Commit and close."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        ...


class Hub:
    """Publishes frames in the order in which they are handed in."""

    def __init__(self, now: Callable[[], float], sink: Sink | None, path: str | None) -> None:
        self._now = now
        self._sink = sink
        self._path = path
        self._listeners: list[Listener] = []
        self._observers: list[Callable[[list[Frame]], None]] = []
        self._noticer = Noticer()
        self.history = History()
        self.state = RecordingState(t=0.0, state="off" if sink is None else "on", path=path)

    @property
    def listeners(self) -> int:
        """Consoles connected now."""
        return len(self._listeners)

    def publish(self, frames: Iterable[Frame]) -> None:
        """Record the frames, and the events they give rise to, and pass them on."""
        out: list[Frame] = []
        for frame in frames:
            out.append(frame)
            out.extend(self._noticer.notice(frame))
        self._record(out)
        for frame in out:
            self.history.add(frame)
        for observer in self._observers:
            observer(out)
        if self._listeners:
            lines = b"".join(map(encode, out))
            for listener in self._listeners:
                listener.offer(lines)

    def event(
        self,
        name: str,
        text: str,
        *,
        source: str = "node",
        severity: str = "info",
        subject: str | None = None,
    ) -> None:
        """Publish one event, now."""
        self.publish(
            [Event(t=self._now(), event=name, text=text, source=source, severity=severity, subject=subject)]
        )

    def join(self, listener: Listener) -> None:
        """A console arrives: it gets the recent past, then everything."""
        lines = b"".join(map(encode, self.history.rebuild()))
        if lines:
            listener.offer(lines)
        self._listeners.append(listener)

    def observe(self, observer: Callable[[list[Frame]], None]) -> Callable[[], None]:
        """Hand every frame published from now on to a part of this process, too. Returns what ends it."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def part(self, listener: Listener) -> None:
        """A console has gone."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def commit(self) -> None:
        """Once a second: everything published so far is in the file after this.

        In a thread: it waits for the disk (milliseconds, on a bad day seconds).
        """
        sink = self._sink
        if sink is None:
            return
        await asyncio.to_thread(sink.commit)
        if sink.failure and self._sink is sink:
            self._stop_recording(sink.failure)

    def announce_recording(self) -> None:
        """Publish where the recording is and how large."""
        size = self._sink.size_bytes if self._sink is not None else self.state.size_bytes
        self.state = RecordingState(
            t=self._now(), state=self.state.state, path=self._path, size_bytes=size, why=self.state.why
        )
        self.publish([self.state])

    def close(self) -> None:
        """Close the recording in order."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _record(self, frames: list[Frame]) -> None:
        if self._sink is None:
            return
        for frame in frames:
            self._sink.add(frame)
        if self._sink.failure:
            self._stop_recording(self._sink.failure)

    def _stop_recording(self, why: str) -> None:
        # The session goes on: a full disk must not end a run.
        size = self._sink.size_bytes if self._sink is not None else None
        self._sink = None
        self.state = RecordingState(t=self._now(), state="stopped", path=self._path, size_bytes=size, why=why)
        self.publish([self.state])
        self.event("recording.stopped", f"recording stopped: {why}", severity="bad")
