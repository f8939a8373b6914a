"""A session that arrives as JSON lines: from a child process or over an attached session's socket."""

from __future__ import annotations

import contextlib
import math
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable

from agenttop.errors import AgenttopError
from agenttop.model.clock import Clock
from agenttop.model.commands import Command
from agenttop.model.door import Door, Knock
from agenttop.model.frames import Bye, Frame, Session
from agenttop.oslayer import child_environment, connect_to_unix_socket, detached
from agenttop.stream.base import BROKE_OFF, Batch
from agenttop.wire.codec import LineSplitter, Unknown, WireError, decode_frame, encode

WAITING_FRAMES = 400_000
"""Bound on frames not yet taken: a console that is suspended for hours keeps the newest."""


class LineSource:
    """Frames read by a thread, taken by the screen; commands written as they come."""

    def __init__(
        self,
        read: Callable[[], bytes],
        write: Callable[[bytes], None],
        clock: Clock,
        *,
        lost: str,
    ) -> None:
        self._read = read
        self._write = write
        self._clock = clock
        self._lost = lost
        self._waiting: deque[Frame] = deque(maxlen=WAITING_FRAMES)
        self._anchor: tuple[float, float] | None = None
        self._rate = 1.0
        """Session seconds per second, as the session's first frame says."""
        self._ended: str | None = None
        self._ended_at: float | None = None
        self._wake = threading.Event()
        self.unreadable = 0
        """Lines that were no frames."""
        self._thread = threading.Thread(target=self._pump, name="frame-reader", daemon=True)
        self._thread.start()

    def take(self) -> Batch:
        """What has arrived; never blocks."""
        self._wake.clear()
        ended = self._ended  # read before the frames: whatever came before the end is then in them
        frames: list[Frame] = []
        while self._waiting:
            frames.append(self._waiting.popleft())
        return Batch(frames=frames, now=self._now(), ended=ended)

    def wait(self, seconds: float) -> None:
        """Sleep until something arrives, at most `seconds`."""
        if not self._waiting:
            self._wake.wait(seconds)

    @property
    def accepts(self) -> str | None:
        """Why commands are not obeyed: the session has ended."""
        return self._ended

    def send(self, command: Command) -> None:
        """Pass a command on; one that cannot be delivered is dropped, the end shows in `take`."""
        if self._ended is None:
            with contextlib.suppress(OSError, ValueError):
                self._write(encode(command))

    def close(self) -> None:
        """Let go of the session; does not end it."""

    def _now(self) -> float:
        if self._anchor is None:
            return 0.0
        t, arrived = self._anchor
        until = self._ended_at if self._ended_at is not None else self._clock.monotonic()
        return t + max(0.0, until - arrived) * self._rate

    def _pump(self) -> None:
        splitter = LineSplitter()
        farewell: str | None = None
        while True:
            try:
                data = self._read()
            except (OSError, ValueError):
                data = b""
            if not data:
                break
            for line in splitter.feed(data):
                farewell = self._line(line) or farewell
            self._wake.set()
        self._ended_at = self._clock.monotonic()
        self._ended = farewell or self._lost
        self._wake.set()

    def _line(self, line: bytes) -> str | None:
        try:
            frame = decode_frame(line)
        except WireError:
            self.unreadable += 1
            return None
        if isinstance(frame, Unknown):
            return None  # from a newer node; its recording keeps it
        if isinstance(frame, Bye):
            return frame.why
        if isinstance(frame, Session) and 0 < frame.speedup < math.inf:
            self._rate = frame.speedup
        # Bursts of history carry old times: the anchor only ever moves forward.
        if self._anchor is None or frame.t >= self._anchor[0]:
            self._anchor = (frame.t, self._clock.monotonic())
        self._waiting.append(frame)
        return None


class ChildSource(LineSource):
    """A node started as a child of this console, out of reach of the terminal's signals."""

    def __init__(self, argv: list[str], clock: Clock, *, stderr: int | None = subprocess.DEVNULL) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=child_environment(),
            bufsize=0,
            **detached(),
        )
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        self._stdin = stdin

        def write(data: bytes) -> None:
            stdin.write(data)

        super().__init__(
            lambda: stdout.read(65536) or b"",
            write,
            clock,
            lost=f"the node {BROKE_OFF}; what it recorded up to then is whole",
        )

    def close(self) -> None:
        """Hang up. The node decides what follows: it goes on while agents run."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def wait_exit(self, timeout: float) -> int | None:
        """Exit code of the node, or None when it still runs after `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None


class AttachSource(LineSource):
    """A session that is already running on this host, entered through its door."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._socket = _connect(door)
        self._socket.sendall(_knock(door))
        super().__init__(
            lambda: self._socket.recv(65536),
            self._socket.sendall,
            clock,
            lost=f"session {door.session} ended or let go of this console",
        )

    def close(self) -> None:
        """Leave; the session decides whether it goes on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _connect(door: Door) -> socket.socket:
    try:
        if door.unix is not None:
            return connect_to_unix_socket(door.unix)
        connection = socket.create_connection(("127.0.0.1", door.port or 0), timeout=5)
    except OSError as error:
        raise AgenttopError(
            f"session {door.session} does not answer: {error}", "see `agenttop list` for sessions that run"
        ) from error
    connection.settimeout(None)
    return connection


def _knock(door: Door) -> bytes:
    import msgspec

    return msgspec.json.encode(Knock(token=door.token)) + b"\n"
