"""macmon as a child process: started once, read line by line, started anew when it ends.

Rules
- It is never run as root, and nothing is installed: it is used where it is.
- It writes into a pipe that ends with this process, and it ends with the pipe: it cannot write another line.
- A line is bounded in length, and only the newest is kept.
- One that ends is started again after a while that doubles; one that says nothing for long is ended.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Sequence

from agenttop.collect.gpu.apple.lines import Line, parse
from agenttop.model.clock import Clock

ARGUMENTS = ("pipe", "-s", "0", "-i", "1000")
WITH_CHIP = (*ARGUMENTS, "--soc-info")
"""Since 0.6.1; those before end at once."""
_PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "/opt/local/bin")
_LONGEST = 64 * 1024
_STALE_S = 5.0
_SILENT_S = 20.0
_RETRY_S, _RETRY_MAX_S = 2.0, 120.0
_END_S = 1.0
_LONGEST_STEP_S = 3.0
"""What a line tells is taken to hold for no longer than this."""


def find() -> str | None:
    """Where macmon is: on the path, or where the usual package managers put it."""
    found = shutil.which("macmon")
    if found is not None:
        return found
    return next((path for place in _PLACES if (path := shutil.which("macmon", path=place))), None)


class _Run:
    """One run of the program."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        """Raises OSError where it cannot be started."""
        self._clock = clock
        self.child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.newest: tuple[float, Line] | None = None
        """(monotonic seconds, line)."""
        self.heard = clock.monotonic()
        self.energy_j = 0.0
        self._thread = threading.Thread(target=self._read, name="macmon", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """It has ended, or closed its output."""
        return not self._thread.is_alive()

    def _read(self) -> None:
        stream = self.child.stdout
        assert stream is not None
        # Closed by the other thread at the end; a line that is torn by then is none.
        with contextlib.suppress(OSError, ValueError):
            while raw := stream.readline(_LONGEST):
                line = parse(raw)
                if line is None:
                    continue
                at = self._clock.monotonic()
                if line.power_w is not None and self.newest is not None:
                    self.energy_j += line.power_w * min(max(0.0, at - self.newest[0]), _LONGEST_STEP_S)
                self.newest, self.heard = (at, line), at

    def end(self) -> None:
        """End it, and wait for it no longer than a second or two."""
        with contextlib.suppress(OSError):
            self.child.terminate()
        try:
            self.child.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                self.child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_END_S)
        self._thread.join(_END_S)
        if self.child.stdout is not None and not self._thread.is_alive():
            self.child.stdout.close()


class Macmon:
    """macmon, kept running."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._arguments: tuple[str, ...] = WITH_CHIP
        self._run: _Run | None = None
        self._closed = False
        self._next = 0.0
        self._wait_s = _RETRY_S
        self._energy_j = 0.0
        self.failed: str | None = None
        """Why there is no line now."""

    def newest(self) -> Line | None:
        """The newest line, of a few seconds ago at most; starts the program where it does not run."""
        now = self._clock.monotonic()
        run = self._run
        if run is not None and (run.ended or now - run.heard > _SILENT_S):
            self._give_up(run, now)
            run = None
        if run is None and now >= self._next and not self._closed:
            run = self._start(now)
        if run is None or run.newest is None or now - run.newest[0] > _STALE_S:
            return None
        self._wait_s, self.failed = _RETRY_S, None
        return run.newest[1]

    @property
    def energy_j(self) -> float:
        """Power of the GPU summed up since the first line."""
        return self._energy_j + (self._run.energy_j if self._run is not None else 0.0)

    def close(self) -> None:
        """End the child, and start no other."""
        self._closed = True
        if self._run is not None:
            self._run.end()
            self._run = None

    def _start(self, now: float) -> _Run | None:
        try:
            self._run = _Run([self._path, *self._arguments], self._clock)
        except OSError as error:
            self._plan(now, f"macmon cannot be started ({error.strerror or type(error).__name__})")
        else:
            self.failed = self.failed or "macmon has not said anything yet"
        return self._run

    def _give_up(self, run: _Run, now: float) -> None:
        silent = run.newest is None
        ended = run.ended
        self._energy_j += run.energy_j
        run.end()
        self._run = None
        if silent and ended and self._arguments == WITH_CHIP:
            self._arguments = ARGUMENTS  # one before 0.6.1, perhaps
            self._next = now
            return
        self._plan(now, "macmon has ended" if ended else "macmon says nothing")

    def _plan(self, now: float, why: str) -> None:
        self.failed = why
        self._next = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)
