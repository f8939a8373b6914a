"""What agenttop itself costs: CPU and memory of this process."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil

from agenttop.model.clock import Clock, SystemClock
from agenttop.model.frames import OwnSample

_ROLLUP = Path("/proc/self/smaps_rollup")
_MEMORY_EVERY_S = 10.0
"""The kernel walks all page tables for a proportional set size: milliseconds for a big process."""


class OwnCost:
    """CPU and memory of this process; `role` says which one it is (console, node, driver)."""

    def __init__(self, role: str, clock: Clock | None = None) -> None:
        self._role = role
        self._clock = clock or SystemClock()
        self._process = psutil.Process()
        self._at = self._clock.monotonic()
        self._cpu_s = time.process_time()
        self._memory: int | None = None
        self._memory_at: float | None = None

    def sample(self, t: float) -> OwnSample:
        """CPU since the sample before (the first: since construction) and memory, at most 10 s old."""
        at, cpu_s = self._clock.monotonic(), time.process_time()
        window = at - self._at
        fraction = (cpu_s - self._cpu_s) / window if window > 0 else None
        self._at, self._cpu_s = at, cpu_s
        if self._memory_at is None or at - self._memory_at >= _MEMORY_EVERY_S:
            self._memory, self._memory_at = self._measure_memory(), at
        return OwnSample(
            t=t,
            role=self._role,
            pid=os.getpid(),
            cpu_fraction=fraction,
            window_s=window if fraction is not None else None,
            memory_bytes=self._memory,
        )

    def _measure_memory(self) -> int | None:
        """Proportional set size where the kernel tells it (Linux), else resident set size, in bytes."""
        with contextlib.suppress(OSError, ValueError):
            for line in _ROLLUP.read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        with contextlib.suppress(psutil.Error):
            return int(self._process.memory_info().rss)
        return None
