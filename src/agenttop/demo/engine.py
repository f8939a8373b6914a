"""The demo engine as its owner sees it: start, address, stop."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Self

from agenttop import paths
from agenttop.demo.gguf import Shape, write_tiny_gguf
from agenttop.errors import AgenttopError
from agenttop.model.text import clean
from agenttop.oslayer import child_environment, detached

MODEL_NAME = "demo-random-weights"
"""What the server reports as its model, so that nobody takes the babble for a bad engine."""

_MODEL_VERSION = 1
"""Part of the file's name: raise it when gguf.py writes something else for the same shape."""

_ERROR_LINE = re.compile(r"[\d.]+ E (.+)")
"""llama.cpp's log: time, level, module, text."""


def demo_model(folder: Path | None = None, shape: Shape | None = None) -> Path:
    """The generated model in `folder` (default: `paths.demo_cache()`), written if it is not there yet.

    Raises:
        AgenttopError: the file cannot be written.
    """
    shape = shape or Shape()
    size = f"{shape.width}x{shape.layers}x{shape.heads}x{shape.kv_heads}x{shape.feed_forward}"
    path = (folder or paths.demo_cache()) / f"demo-v{_MODEL_VERSION}-{size}-c{shape.context}.gguf"
    if not path.is_file():
        write_tiny_gguf(path, shape)
    return path


def demo_threads() -> int:
    """CPU threads for the demo model: one or two, and a core left for the rest.

    llama.cpp's threads spin while they wait for each other. Where they have to share their cores, two are
    several times slower than one.
    """
    return max(1, min(2, (os.cpu_count() or 1) - 1))


class DemoEngine:
    """A running llama.cpp server that this process started and owns.

    The server dies with this process, however it ends: it reads a pipe that only this process holds open.
    It has a session of its own, so that Ctrl-C in the terminal reaches its owner alone.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._log: collections.deque[str] = collections.deque(maxlen=200)
        self._report: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read_report, name="demo-engine-report", daemon=True),
            threading.Thread(target=self._read_log, name="demo-engine-log", daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.port = 0
        self.url = ""

    @classmethod
    def start(
        cls,
        model_path: Path | None = None,
        *,
        slots: int = 4,
        context: int = 8192,
        port: int = 0,
        threads: int | None = None,
        batch: int = 256,
        unified: bool = False,
        metrics: bool = True,
        slot_table: bool = True,
        sleep_idle_s: int | None = None,
        api_key_env: str | None = None,
        alias: str = MODEL_NAME,
        timeout_s: float = 60.0,
    ) -> Self:
        """Start the server and wait until it answers `/health`. Blocks; call it in a thread from a loop.

        Args:
            model_path: a GGUF file; None: the generated one (`demo_model`).
            slots: requests served at once.
            context: tokens of the KV cache, all slots together.
            port: 0 for any free one.
            threads: CPU threads; None: `demo_threads()`.
            batch: tokens processed in one step. llama.cpp's own 2048 would, on a CPU, hold up every slot and
                every poll for seconds while one agent's prompt is read.
            unified: one KV pool for all slots instead of an equal share for each.
            metrics: answer `/metrics`.
            slot_table: answer `/slots`.
            sleep_idle_s: unload the model after so many seconds without a request.
            api_key_env: name of the environment variable that holds the key the server is to ask for.
            alias: the model's name in its replies.
            timeout_s: how long to wait for it.

        Raises:
            AgenttopError: no xllamacpp, no room for the model, the port is taken, or it took too long.
        """
        words = ["--model", str(model_path or demo_model()), "--alias", alias]
        words += ["--slots", str(slots), "--context", str(context), "--port", str(port)]
        words += ["--threads", str(threads or demo_threads()), "--batch", str(batch)]
        words += ["--unified"] if unified else []
        words += [] if metrics else ["--no-metrics"]
        words += [] if slot_table else ["--no-slots"]
        words += ["--sleep-idle", str(sleep_idle_s)] if sleep_idle_s is not None else []
        words += ["--api-key-env", api_key_env] if api_key_env else []
        engine = cls(_spawn(words))
        try:
            engine._wait_until_ready(time.monotonic() + timeout_s)
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

    @property
    def log_tail(self) -> list[str]:
        """The newest lines of the server's log, oldest first."""
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

    def _wait_until_ready(self, deadline: float) -> None:
        try:
            line = self._report.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AgenttopError("the demo engine took too long to start", self._last_words()) from None
        if not line:
            raise self._failure()
        report = json.loads(line)
        self.port, self.url = int(report["port"]), str(report["url"])
        while not _healthy(self.port):
            if not self.running:
                raise self._failure()
            if time.monotonic() > deadline:
                raise AgenttopError(f"the demo engine at {self.url} never became healthy", self._last_words())
            time.sleep(0.05)

    def _failure(self) -> AgenttopError:
        """The server ended before it was ready; its log tells why, once it has been read to its end."""
        code = self._process.wait(5)
        self._readers[1].join(5)
        ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return AgenttopError(f"the demo engine did not start, {ending}", self._last_words())

    def _last_words(self) -> str:
        """The first error in the log, as later ones follow from it; else its last line."""
        for line in self._log:
            if found := _ERROR_LINE.match(line):
                return f"its log says: {found[1]}"
        return f"its log ends with: {self._log[-1]}" if self._log else "it left no log"

    def _read_report(self) -> None:
        """Pass on the first line of stdout; empty when there was none."""
        output = _stream(self._process.stdout)
        with output:
            self._report.put(output.readline())
            output.read()

    def _read_log(self) -> None:
        """Keep the pipe empty, else the server would block on a full one."""
        with _stream(self._process.stderr) as errors:
            for line in errors:
                text = clean(line.decode(errors="replace"), 500)
                if text:
                    self._log.append(text)


def _spawn(words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agenttop.demo.server", *words]
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


def _healthy(port: int) -> bool:
    """Whether `/health` says ok. Asked of the port itself, past any proxy that the environment names."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
