"""The console at the other end of stdin and stdout.

Threads, because Windows has no asyncio pipes for inherited descriptors, and because a console that
does not read must never hold up the node.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from agenttop.wire.codec import LineSplitter

BACKLOG_BYTES = 32 * 1024 * 1024
"""What a console that has stopped reading may leave lying; beyond it the oldest lines go."""


class PipeListener:
    """Writes lines to a descriptor from a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self.broken = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="pipe-writer", daemon=True)
        self._thread.start()

    def offer(self, lines: bytes) -> None:
        """Queue whole lines; never blocks."""
        with self._changed:
            if self.broken or self._closing:
                return
            self._waiting.append(lines)
            self._bytes += len(lines)
            while self._bytes > BACKLOG_BYTES and len(self._waiting) > 1:
                self._bytes -= len(self._waiting.popleft())
                self.dropped += 1
            self._changed.notify()

    def close(self, timeout: float = 2.0) -> None:
        """Write what is queued, as far as the reader takes it within `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                data = b"".join(self._waiting)
                self._waiting.clear()
                self._bytes = 0
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                self.broken = True
                return


def read_lines(descriptor: int, line: Callable[[bytes], None], end: Callable[[], None]) -> threading.Thread:
    """Read whole lines from a descriptor in a thread; `line` and `end` are called from that thread."""

    def read() -> None:
        splitter = LineSplitter()
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:
                break
            if not data:
                break
            for whole in splitter.feed(data):
                line(whole)
        end()

    thread = threading.Thread(target=read, name="pipe-reader", daemon=True)
    thread.start()
    return thread
