"""The demo engine as its owner sees it: start, address, stop."""

from __future__ import annotations

import http.client
import os
import re
import time
from pathlib import Path
from typing import Self

from agenttop import paths
from agenttop.child import ServerChild
from agenttop.demo.gguf import Shape, write_tiny_gguf
from agenttop.errors import AgenttopError

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


class DemoEngine(ServerChild):
    """A llama.cpp server on the generated model, as a child of this process."""

    def __init__(self, words: list[str]) -> None:
        super().__init__("-m", "agenttop.demo.server", *words)
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
        engine = cls(words)
        try:
            engine._wait_until_ready(time.monotonic() + timeout_s)
        except BaseException:
            engine.stop()
            raise
        return engine

    def _wait_until_ready(self, deadline: float) -> None:
        try:
            report = self.report(deadline - time.monotonic())
        except TimeoutError:
            raise AgenttopError("the demo engine took too long to start", self._last_words()) from None
        if report is None:
            raise self._failure()
        self.port, self.url = int(report["port"]), str(report["url"])
        while not _healthy(self.port):
            if not self.running:
                raise self._failure()
            if time.monotonic() > deadline:
                raise AgenttopError(f"the demo engine at {self.url} never became healthy", self._last_words())
            time.sleep(0.05)

    def _failure(self) -> AgenttopError:
        """The server ended before it was ready; its log tells why, once it has been read to its end."""
        code = self.ending()
        ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return AgenttopError(f"the demo engine did not start, {ending}", self._last_words())

    def _last_words(self) -> str:
        """The first error in the log, as later ones follow from it; else its last line."""
        log = self.log_tail
        for line in log:
            if found := _ERROR_LINE.match(line):
                return f"its log says: {found[1]}"
        return f"its log ends with: {log[-1]}" if log else "it left no log"


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
