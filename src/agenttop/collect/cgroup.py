"""The CPU, memory and swap limits a container sets on this process, from the cgroup files. Linux only.

Sources: the kernel's cgroup-v1 and cgroup-v2 documents. Under v2 the files are `cpu.max` ("quota period" or
"max period", microseconds), `memory.max` and `memory.swap.max` ("max" or bytes); under v1 `cpu.cfs_quota_us`
(-1: none) over `cpu.cfs_period_us`, `memory.limit_in_bytes`, which holds a number near 2^63 when there is
none, and `memory.memsw.limit_in_bytes` for memory and swap together. The tightest limit may stand on any
parent, so every level counts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from agenttop.collect.gpu.kernel_files import read_bytes, read_number
from agenttop.collect.kernel_tables import whole

_NO_LIMIT = 2**62
_CPU_STAT = re.compile(rb"^(nr_periods|nr_throttled|usage_usec) (\d{1,20})$", re.MULTILINE)
_INACTIVE = re.compile(rb"^(total_inactive_file|inactive_file) (\d{1,20})$", re.MULTILINE)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds this process back; None where nothing does."""

    cpu_cores: float | None = None
    cpu_group: str | None = None
    """Folder of the group with that limit."""
    cpu_account: str | None = None
    """Folder in which the use of that group is counted: another one under v1."""
    ram_bytes: int | None = None
    ram_group: str | None = None
    swap_bytes: int | None = None
    """0: no swap."""


class CpuUse(NamedTuple):
    """Counters of a group: periods of its CPU limit, those in which it was stopped, CPU seconds used."""

    periods: int | None
    throttled: int | None
    seconds: float | None


class _Found:
    """Candidates, one for every level that has a limit: the least of each kind counts."""

    def __init__(self) -> None:
        self.cpu: list[tuple[float, str, str]] = []
        self.ram: list[tuple[int, str]] = []
        self.swap: list[int] = []

    def limits(self) -> Limits:
        cores, cpu_group, account = min(self.cpu, default=(None, None, None))
        ram, ram_group = min(self.ram, default=(None, None))
        return Limits(
            cpu_cores=cores,
            cpu_group=cpu_group,
            cpu_account=account,
            ram_bytes=ram,
            ram_group=ram_group,
            swap_bytes=min(self.swap, default=None),
        )


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits that apply to this process. `root` is where /proc and /sys are found."""
    mount = root / "sys/fs/cgroup"
    groups = _groups(root)
    found = _Found()
    for controllers, path in groups.items():
        if not controllers:
            for top in (mount, mount / "unified"):
                for level in _levels(top, path):
                    _add_v2(level, found)
        elif "memory" in controllers.split(","):
            for level in _levels(mount / "memory", path):
                _add_memory_v1(level, found)
        elif "cpu" in controllers.split(","):
            top = _first_existing(mount, controllers, "cpu", "cpu,cpuacct")
            accounts = _accounts(mount, groups, path)
            for level in _levels(top, path):
                account = accounts / level.relative_to(top) if accounts is not None else None
                _add_cpu_v1(level, account, found)
    return found.limits()


def cpu_use(limits: Limits) -> CpuUse | None:
    """Counters of the group that has the CPU limit, as they are now."""
    if limits.cpu_group is None:
        return None
    counted = dict(_CPU_STAT.findall(read_bytes(f"{limits.cpu_group}/cpu.stat") or b""))
    periods, throttled, usage = (
        int(counted[name]) if name in counted else None
        for name in (b"nr_periods", b"nr_throttled", b"usage_usec")
    )
    seconds = usage / 1e6 if usage is not None else None
    if usage is None:
        nanoseconds = read_number(f"{limits.cpu_account}/cpuacct.usage")
        seconds = nanoseconds / 1e9 if nanoseconds is not None and nanoseconds >= 0 else None
    return CpuUse(periods, throttled, seconds)


def ram_used(limits: Limits) -> int | None:
    """Bytes used by the group that has the memory limit, without file cache that can be dropped at once."""
    if limits.ram_group is None:
        return None
    for file, inactive in (
        ("memory.current", b"inactive_file"),
        ("memory.usage_in_bytes", b"total_inactive_file"),
    ):
        used = read_number(f"{limits.ram_group}/{file}")
        counted = dict(_INACTIVE.findall(whole(f"{limits.ram_group}/memory.stat") or b""))
        if used is not None and inactive in counted:
            return max(0, used - int(counted[inactive]))
    return None


def _groups(root: Path) -> dict[str, str]:
    """Controllers, as the kernel joins them by commas, to the group's path; none in the name of v2's."""
    found: dict[str, str] = {}
    for line in (whole(f"{root}/proc/self/cgroup") or b"").decode("utf-8", "replace").splitlines():
        number, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if colon and second and number.isdigit():
            found[controllers] = path
    return found


def _levels(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and all above it; in a container the path may not exist below its own mount."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:count])
        with contextlib.suppress(OSError, ValueError):
            if folder.is_dir():
                yield folder


def _first_existing(mount: Path, *names: str) -> Path:
    """A v1 hierarchy is mounted under its controllers' names; symbolic links stand for each of them."""
    return next((mount / name for name in names if (mount / name).is_dir()), mount / names[-1])


def _accounts(mount: Path, groups: dict[str, str], path: str) -> Path | None:
    """Where v1 counts the use of CPU, if this process is in the same group there as it is for limits."""
    for controllers, place in groups.items():
        if "cpuacct" in controllers.split(",") and place == path:
            return _first_existing(mount, controllers, "cpuacct", "cpu,cpuacct")
    return None


def _add_v2(level: Path, found: _Found) -> None:
    if limit := _limit(level, "memory.max"):
        found.ram.append((limit, str(level)))
    swap = read_number(f"{level}/memory.swap.max")  # "max" is no number: no limit
    if swap is not None and 0 <= swap < _NO_LIMIT:
        found.swap.append(swap)
    words = (read_bytes(f"{level}/cpu.max") or b"").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
        _add_quota(int(words[0]), int(words[1]), level, level, found)


def _add_cpu_v1(level: Path, account: Path | None, found: _Found) -> None:
    quota, period = read_number(f"{level}/cpu.cfs_quota_us"), read_number(f"{level}/cpu.cfs_period_us")
    if quota is not None and period is not None:
        _add_quota(quota, period, level, account, found)


def _add_quota(quota: int, period: int, level: Path, account: Path | None, found: _Found) -> None:
    if 0 < quota < _NO_LIMIT and period > 0:
        found.cpu.append((quota / period, str(level), str(account or level)))


def _add_memory_v1(level: Path, found: _Found) -> None:
    limit = _limit(level, "memory.limit_in_bytes")
    both = _limit(level, "memory.memsw.limit_in_bytes")
    if limit:
        found.ram.append((limit, str(level)))
        if both and both >= limit:
            found.swap.append(both - limit)


def _limit(level: Path, name: str) -> int | None:
    limit = read_number(f"{level}/{name}")
    return limit if limit is not None and 0 < limit < _NO_LIMIT else None
