"""The CPU and memory limits a container sets on this process, from the cgroup files. Linux only.

Sources: the kernel's cgroup-v1 and cgroup-v2 documents. Under v2 the files are `cpu.max` ("quota period" or
"max period", microseconds) and `memory.max` ("max" or bytes); under v1 `cpu.cfs_quota_us` (-1: none) over
`cpu.cfs_period_us`, and `memory.limit_in_bytes`, which holds a number near 2^63 when there is none. The
tightest limit may stand on any parent, so every level counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

_NO_LIMIT = 2**62


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds this process back; None where nothing does."""

    cpu_cores: float | None = None
    ram_bytes: int | None = None
    ram_used_bytes: int | None = None
    """Used by the group with that limit, without file cache that can be dropped at once."""


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits that apply to this process. `root` is where /proc and /sys are found."""
    try:
        groups = (root / "proc/self/cgroup").read_text()
    except OSError:
        return Limits()
    cores: list[float] = []
    ram: list[tuple[int, Path]] = []
    mount = root / "sys/fs/cgroup"
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for top in (mount, mount / "unified"):
                for level in _levels(top, path):
                    _collect_v2(level, cores, ram)
        elif "memory" in controllers.split(","):
            for level in _levels(mount / "memory", path):
                _add_memory(level, "memory.limit_in_bytes", ram)
        elif "cpu" in controllers.split(","):
            for level in _levels(_first_existing(mount, controllers), path):
                _collect_cpu_v1(level, cores)
    if not ram:
        return Limits(cpu_cores=min(cores, default=None))
    limit, level = min(ram, key=lambda pair: pair[0])
    return Limits(cpu_cores=min(cores, default=None), ram_bytes=limit, ram_used_bytes=_used(level))


def _levels(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and all above it; in a container the path may not exist below its own mount."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:count])
        if folder.is_dir():
            yield folder


def _first_existing(mount: Path, controllers: str) -> Path:
    for name in (controllers, "cpu", "cpu,cpuacct"):
        if (mount / name).is_dir():
            return mount / name
    return mount / "cpu"


def _collect_v2(level: Path, cores: list[float], ram: list[tuple[int, Path]]) -> None:
    _add_memory(level, "memory.max", ram)
    with contextlib.suppress(OSError, ValueError):
        quota, period = (level / "cpu.max").read_text().split()
        if quota != "max" and int(period) > 0:
            cores.append(int(quota) / int(period))


def _collect_cpu_v1(level: Path, cores: list[float]) -> None:
    with contextlib.suppress(OSError, ValueError):
        quota = int((level / "cpu.cfs_quota_us").read_text())
        period = int((level / "cpu.cfs_period_us").read_text())
        if quota > 0 and period > 0:
            cores.append(quota / period)


def _add_memory(level: Path, name: str, ram: list[tuple[int, Path]]) -> None:
    with contextlib.suppress(OSError, ValueError):
        limit = int((level / name).read_text())  # "max" is a ValueError: no limit
        if 0 < limit < _NO_LIMIT:
            ram.append((limit, level))


def _used(level: Path) -> int | None:
    for current, inactive in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        with contextlib.suppress(OSError, ValueError):
            used = int((level / current).read_text())
            for line in (level / "memory.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == inactive:
                    used -= int(value)
            return max(0, used)
    return None
