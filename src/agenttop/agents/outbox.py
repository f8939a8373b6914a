"""The way out: frames are gathered, encoded together, and written by a thread.

The event loop never waits for the pipe. When nobody reads fast enough, samples are dropped (the next one
says the same, newer); what happened only once, a turn or an event, is kept however long it takes.
"""

from __future__ import annotations

import os
import queue
import threading

from agenttop.model.frames import Frame
from agenttop.wire.codec import encode

CROWDED_BYTES = 1024 * 1024
"""From this backlog on, frames that may be dropped are."""

FINISH_S = 3.0
"""How long a reader that lags gets at the end."""


class Outbox:
    """Frames in, JSON lines out to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._batch: list[bytes] = []
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._backlog = 0
        self.dropped = 0
        """Frames left out so far."""
        self.broken = False
        """Nobody will ever read: the other end is closed."""
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    @property
    def crowded(self) -> bool:
        """The reader lags."""
        return self._backlog > CROWDED_BYTES

    def add(self, frame: Frame, may_drop: bool = False) -> None:
        """Queue a frame for the next `flush`."""
        if may_drop and self.crowded:
            self.dropped += 1
        else:
            self._batch.append(encode(frame))

    def flush(self) -> None:
        """Hand everything queued to the writing thread, as one piece."""
        if not self._batch:
            return
        data = b"".join(self._batch)
        self._batch.clear()
        if self.broken:
            return
        with self._lock:
            self._backlog += len(data)
        self._queue.put(data)

    def close(self) -> None:
        """Write what is left, but not for ever."""
        self.flush()
        self._queue.put(None)
        self._thread.join(FINISH_S)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            try:
                while view and not self.broken:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                self.broken = True
            with self._lock:
                self._backlog -= len(data)
