"""A server of our own as a child process: it says in one line of JSON where it listens, and ends with us."""

from __future__ import annotations

import collections
import contextlib
import json
import queue
import subprocess
import sys
import threading
from typing import IO, Any, Self

from agenttop.errors import AgenttopError
from agenttop.model.text import clean
from agenttop.oslayer import child_environment, detached

KEPT_LINES = 200


class ServerChild:
    """A running server that this process started and owns.

    It dies with this process, however that ends: it reads a pipe that only this process holds open. It has
    a session of its own, so that Ctrl-C in the terminal reaches its owner alone.
    """

    def __init__(self, *words: str) -> None:
        """Start `python words...`; the first line it writes to stdout is its report.

        Raises:
            AgenttopError: the system refuses.
        """
        command = [sys.executable, *words]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env=child_environment(), **detached()
            )
        except OSError as error:
            raise AgenttopError(f"cannot start {sys.executable}: {error.strerror or error}") from error
        self._log: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._report: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read_report, name="server-report", daemon=True),
            threading.Thread(target=self._read_log, name="server-log", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Process number of the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    @property
    def log_tail(self) -> list[str]:
        """The newest lines of the server's stderr, oldest first."""
        return list(self._log)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the server: close its pipe, then ask, then kill. Returns when the process is gone.

        Doing it twice is harmless.
        """
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for end in (None, process.terminate, process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
                break
        for reader in self._readers:
            reader.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def report(self, timeout_s: float) -> dict[str, Any] | None:
        """What the server says of itself when it listens; None when it ended without a word.

        Raises:
            TimeoutError: it has said nothing yet.
        """
        try:
            line = self._report.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None
        if not line:
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def ending(self) -> int:
        """The exit code of a server that has ended by itself, once its log has been read to its end."""
        code = self._process.wait(5)
        self._readers[1].join(5)
        return code

    def _read_report(self) -> None:
        """Pass on the first line of stdout; empty when there was none."""
        with _stream(self._process.stdout) as output:
            self._report.put(output.readline())
            output.read()

    def _read_log(self) -> None:
        """Keep the pipe empty, else the server would block on a full one."""
        with _stream(self._process.stderr) as errors:
            for line in errors:
                if text := clean(line.decode(errors="replace"), 500):
                    self._log.append(text)


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # asked for above
    return pipe
