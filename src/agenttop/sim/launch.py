"""A simulated engine as its owner sees it: start, address, stop."""

from __future__ import annotations

import collections
import contextlib
import json
import queue
import subprocess
import sys
import threading
from typing import IO, Self

from agenttop.errors import AgenttopError
from agenttop.model.text import clean
from agenttop.oslayer import child_environment, detached


class SimProcess:
    """`agenttop sim` as a child of this process, which it does not outlive: it reads a pipe that only this
    process holds open."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._report: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._errors: collections.deque[str] = collections.deque(maxlen=50)
        self._readers = [
            threading.Thread(target=self._read_report, name="sim-report", daemon=True),
            threading.Thread(target=self._read_errors, name="sim-errors", daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.url = ""
        self.simulated = ""

    @classmethod
    def start(
        cls,
        host: str,
        model: str,
        *,
        wire: str = "vllm",
        speedup: float = 1.0,
        seed: int = 0,
        more: list[str] | None = None,
        timeout_s: float = 30.0,
    ) -> Self:
        """Start it and wait until it says where it listens. Blocks; call it in a thread from a loop.

        Args:
            host: a preset's name, or a file.
            model: the same.
            wire: vllm or llama.cpp.
            speedup: how many times faster than life it runs.
            seed: of its noise and its text.
            more: further words of the command line.
            timeout_s: how long to wait for it.

        Raises:
            AgenttopError: it did not start; says why.
        """
        words = ["--host", host, "--model", model, "--wire", wire, "--speedup", str(speedup)]
        words += ["--seed", str(seed), *(more or [])]
        engine = cls(_spawn(words))
        try:
            engine._wait(timeout_s)
        except BaseException:
            engine.stop()
            raise
        return engine

    @property
    def pid(self) -> int:
        """Process number of the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it. Doing so twice is harmless."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for end in (process.terminate, process.kill):
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

    def _wait(self, timeout_s: float) -> None:
        try:
            line = self._report.get(timeout=timeout_s)
        except queue.Empty:
            raise AgenttopError(f"the simulated engine said nothing for {timeout_s:.0f} s") from None
        if not line:
            self._process.wait(timeout_s)
            self._readers[1].join(timeout_s)
            why = self._errors[-1].removeprefix("agenttop: ") if self._errors else "it left no message"
            raise AgenttopError(f"the simulated engine did not start: {why}")
        report = json.loads(line)
        self.url, self.simulated = str(report["url"]), str(report["simulated"])

    def _read_report(self) -> None:
        with _stream(self._process.stdout) as output:
            self._report.put(output.readline())
            output.read()

    def _read_errors(self) -> None:
        """Keep the pipe empty, else the server would block on a full one."""
        with _stream(self._process.stderr) as errors:
            for line in errors:
                if text := clean(line.decode(errors="replace"), 500):
                    self._errors.append(text)


def _spawn(words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agenttop", "sim", "--json", "--with-parent", *words]
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=child_environment(), **detached()
        )
    except OSError as error:
        raise AgenttopError(f"cannot start {sys.executable}: {error.strerror or error}") from error


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # asked for in _spawn
    return pipe
