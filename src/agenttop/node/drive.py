"""One driver process, seen from the node: started, given orders, watched to its end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

from agenttop.model.commands import DriverCommand, Shutdown
from agenttop.model.frames import Frame
from agenttop.oslayer import child_environment, detached
from agenttop.wire.codec import LineSplitter, Unknown, WireError, decode_frame, encode

SHUTDOWN_S = 5.0


class Worker:
    """Frames come through `publish`, its death, when nobody asked for it, through `gone`."""

    def __init__(
        self, publish: Callable[[Worker, list[Frame]], None], gone: Callable[[Worker, int | None], None]
    ) -> None:
        self._publish = publish
        self._gone = gone
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._early: list[DriverCommand] = []
        """Orders given before it stood."""
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """Process number while it runs."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process. Raises OSError when the system refuses."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agenttop.agents.driver",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=child_environment(),
            **detached(),
        )
        self._reader = asyncio.create_task(self._read(self._process))
        early, self._early = self._early, []
        self.send(*early)

    def send(self, *commands: DriverCommand) -> None:
        """Pass orders on; to a process that has died they are lost, its death is reported by `gone`."""
        process = self._process
        if process is None and self._reader is None:
            self._early += commands
        elif process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(b"".join(map(encode, commands)))

    async def stop(self) -> None:
        """Cancel everything it does and wait for its end; kill it if it does not listen."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        self.send(Shutdown())
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), SHUTDOWN_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        splitter = LineSplitter()
        assert process.stdout is not None
        while data := await process.stdout.read(65536):
            frames = [frame for line in splitter.feed(data) if (frame := _frame(line)) is not None]
            if frames:
                self._publish(self, frames)
        code = await process.wait()
        self._process = None
        if not self._stopping:
            self._gone(self, code)


def _frame(line: bytes) -> Frame | None:
    try:
        frame = decode_frame(line)
    except WireError:
        return None
    return None if isinstance(frame, Unknown) else frame
