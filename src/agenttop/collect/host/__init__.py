"""CPU, memory, disks and network of this host.

Linux is read from /proc and /sys by ourselves (`linux.py`); macOS and Windows by psutil (`elsewhere.py`).
Every rate is a difference of counters that are kept here: psutil's own `cpu_percent` remembers the last look
per thread and returns 0.0 to a new one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

from agenttop.collect.host.elsewhere import PsutilHost
from agenttop.collect.host.facts import host_facts
from agenttop.collect.host.linux import LinuxHost
from agenttop.collect.host.reasons import Reasons
from agenttop.model.clock import Clock
from agenttop.model.frames import HostSample, Missing

__all__ = ["HostSampler", "host_facts"]


class _Host(Protocol):
    def sample(self, t: float, window: float, reasons: Reasons) -> HostSample: ...


class HostSampler:
    """Samples the host; the first sample covers the time since construction. Use one from one thread."""

    def __init__(self, clock: Clock, root: Path = Path("/"), system: str = sys.platform) -> None:
        """`root` is where /proc and /sys are found, `system` one of `sys.platform`."""
        self._clock = clock
        self._at = clock.monotonic()
        self._host: _Host
        if system == "linux":
            self._host = LinuxHost(clock, root.as_posix().rstrip("/"))
        else:
            self._host = PsutilHost(clock, system)
        self._missing: list[Missing] = []

    @property
    def missing(self) -> list[Missing]:
        """What the last sample lacks for a reason that is known: `host:<field>`."""
        return self._missing

    def sample(self, t: float) -> HostSample:
        """One look. What this system does not tell, or could not tell this time, is None."""
        at = self._clock.monotonic()
        window, self._at = at - self._at, at
        reasons = Reasons()
        sample = self._host.sample(t, window, reasons)
        self._missing = reasons.missing(t)
        return sample
