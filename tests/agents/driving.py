"""A driver process as the node runs it: orders in, frames out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agenttop.agents.profile import scale
from agenttop.agents.settings import Profile
from agenttop.model.commands import Configure, DriverCommand, LaunchAgent
from agenttop.model.frames import AgentSample, Event, Frame, LoadSample, Turn
from agenttop.oslayer import child_environment
from agenttop.wire.codec import LineSplitter, decode_frame, encode
from tests.waiting import until

F = TypeVar("F", bound=Frame)


class DriverProcess:
    """Frames are gathered by a thread; `turns()`, `events()` and the like look at those so far."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self.origin = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agenttop.agents.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**child_environment(), **(env or {})},
        )
        self.frames: list[Frame] = []
        self.raw = b""
        self._reading = threading.Event()
        self._reading.set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, *orders: DriverCommand) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(encode, orders)))
        self.process.stdin.flush()

    def configure(self, url: str, profile: Profile, context: int | None = None, **fields: Any) -> None:
        fitted = scale(profile, context).profile
        order = {
            "origin": self.origin,
            "engine": url,
            "model": None,
            "api_key_env": None,
            "profile": fitted.name,
            "settings": fitted.settings(),
            "seed": 1,
            "slots_like": "llama.cpp",
        }
        self.send(Configure(**(order | fields)))

    def launch(self, count: int, at: float = 0.0, first: int = 1) -> list[str]:
        names = [f"a{number}" for number in range(first, first + count)]
        self.send(*(LaunchAgent(agent=name, number=first + index, at=at) for index, name in enumerate(names)))
        return names

    def of(self, kind: type[F]) -> list[F]:
        return [frame for frame in list(self.frames) if isinstance(frame, kind)]

    def turns(self, **having: Any) -> list[Turn]:
        return [turn for turn in self.of(Turn) if all(getattr(turn, k) == v for k, v in having.items())]

    def events(self, name: str) -> list[Event]:
        return [event for event in self.of(Event) if event.event == name]

    def agent(self, name: str) -> AgentSample | None:
        samples = [sample for sample in self.of(AgentSample) if sample.agent == name]
        return samples[-1] if samples else None

    def state(self, name: str) -> str | None:
        sample = self.agent(name)
        return sample.state if sample is not None else None

    def load(self) -> LoadSample | None:
        samples = self.of(LoadSample)
        return samples[-1] if samples else None

    def until(self, look: Callable[[], Any], what: str = "", timeout_s: float = 30.0) -> Any:
        def alive() -> Any:
            seen = look()
            assert seen or self.process.poll() is None, f"the driver has ended, waiting for {what}"
            return seen

        return until(alive, timeout_s, what)

    def stop_reading(self) -> None:
        """Let the pipe fill up."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    def close(self) -> int:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def ended(self) -> int:
        self._reading.set()
        code = self.process.wait(20)
        self._thread.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def _read(self) -> None:
        splitter = LineSplitter()
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 65536):
            self._reading.wait()
            self.raw += data
            for line in splitter.feed(data):
                frame = decode_frame(line)
                assert isinstance(frame, Frame)
                self.frames.append(frame)


@contextmanager
def driver(env: dict[str, str] | None = None) -> Iterator[DriverProcess]:
    process = DriverProcess(env)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
        if not process.process.stdin.closed:  # type: ignore[union-attr]
            try:
                process.process.stdin.close()  # type: ignore[union-attr]
            except BrokenPipeError:
                pass
        process.ended()
