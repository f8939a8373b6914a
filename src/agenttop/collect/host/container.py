"""What a container's limits leave to this process, and how much of it is used."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agenttop.collect.cgroup import CpuUse, Limits, cpu_use, ram_used, read_limits
from agenttop.collect.host.seldom import Seldom
from agenttop.model.clock import Clock

_LIMITS_EVERY_S = 5.0
"""They stand in a dozen small files."""
_MEMORY_EVERY_S = 2.0
"""The kernel gathers `memory.stat` over all cores and all groups below."""


class Use(NamedTuple):
    """Of the limits, in a window."""

    throttled: float | None = None
    """Share of the periods in which the CPU limit stopped the group."""
    cores: float | None = None


class Container:
    """The limits that apply here and their use."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._limits = Seldom(lambda: read_limits(root), _LIMITS_EVERY_S, clock)
        self._memory = Seldom(self._ram_used, _MEMORY_EVERY_S, clock)
        self._group: str | None = None
        self._before: CpuUse | None = None
        self.look(0.0)

    def look(self, window: float) -> tuple[Limits, Use, int | None]:
        """Limits, the use of the CPU limit in the window, and bytes used of the memory limit."""
        limits = self._limits.now()
        before = self._before if limits.cpu_group == self._group else None
        self._before, self._group = cpu_use(limits), limits.cpu_group
        return limits, used(before, self._before, window), self._memory.now() if limits.ram_group else None

    def _ram_used(self) -> int | None:
        return ram_used(self._limits.now())


def used(before: CpuUse | None, after: CpuUse | None, window: float) -> Use:
    """Between two looks at one group; nothing where counters went back. A group that slept through the window
    has no periods in it, and was not stopped."""
    if before is None or after is None or window <= 0:
        return Use()
    throttled = cores = None
    if None not in (before.periods, before.throttled, after.periods, after.throttled):
        periods = (after.periods or 0) - (before.periods or 0)
        stopped = (after.throttled or 0) - (before.throttled or 0)
        if periods >= 0 and stopped >= 0:
            throttled = min(1.0, stopped / periods) if periods else 0.0
    if before.seconds is not None and after.seconds is not None and after.seconds >= before.seconds:
        cores = (after.seconds - before.seconds) / window
    return Use(throttled, cores)
