"""CPU, memory, disks and network of this host, by psutil.

Every rate is a difference of counters that this module keeps itself: psutil's own `cpu_percent` remembers the
last look per thread and returns 0.0 to a new one. Use one `HostSampler` from one thread.
"""

from __future__ import annotations

import contextlib
import platform
import re
import socket
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from agenttop.collect.cgroup import Limits, read_limits
from agenttop.model.clock import Clock
from agenttop.model.frames import HostSample
from agenttop.model.text import clean

_PRESSURE = Path("/proc/pressure")
_NOT_A_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d")
"""Linux block devices that repeat what a whole disk counts, or that are no disk."""
_NOT_A_WIRE = re.compile(r"lo\d*$|veth|docker|br-|virbr|cni|flannel|cali|ifb|Loopback|isatap|Teredo")

_LIMITS_EVERY_S = 5.0
"""A container's limits stand in a dozen small files."""

_Counters = dict[str, tuple[int, int]]
"""Device to two counters: (read, written) or (received, sent) bytes."""


class HostSampler:
    """Samples the host; the first sample covers the time since construction."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._cores = _core_times()
        self._disks = _disk_counters()
        self._net = _net_counters()
        self._swap = _read_swap().moved
        self._limits = Limits()
        self._limits_due = self._at

    def sample(self, t: float) -> HostSample:
        """One look. What this system does not tell, or could not tell this time, is None."""
        at = self._clock.monotonic()
        window = at - self._at
        self._at = at
        cores, disks, net, swap = _core_times(), _disk_counters(), _net_counters(), _read_swap()
        busy, per_core, iowait = _busy(self._cores, cores)
        read, written = _rates(self._disks, disks, window)
        received, sent = _rates(self._net, net, window)
        swapped_in, swapped_out = _rates(self._swap, swap.moved, window)
        self._cores, self._disks, self._net, self._swap = cores, disks, net, swap.moved

        load = _load()
        memory = psutil.virtual_memory()
        if at >= self._limits_due:
            self._limits, self._limits_due = read_limits(), at + _LIMITS_EVERY_S
        limits = self._limits
        return HostSample(
            t=t,
            window_s=window if window > 0 else None,
            cpu_fraction=busy,
            cpu_per_core=per_core,
            cpu_max_core_fraction=max(per_core) if per_core else None,
            iowait_fraction=iowait,
            load_1m=load[0],
            load_5m=load[1],
            load_15m=load[2],
            ram_total_bytes=memory.total,
            ram_used_bytes=max(0, memory.total - memory.available),
            ram_available_bytes=memory.available,
            ram_cached_bytes=getattr(memory, "cached", None),
            swap_total_bytes=swap.total,
            swap_used_bytes=swap.used,
            swap_in_bytes_s=swapped_in,
            swap_out_bytes_s=swapped_out,
            disk_read_bytes_s=read,
            disk_write_bytes_s=written,
            net_received_bytes_s=received,
            net_sent_bytes_s=sent,
            pressure_cpu_fraction=read_pressure(_PRESSURE / "cpu"),
            pressure_memory_fraction=read_pressure(_PRESSURE / "memory"),
            pressure_io_fraction=read_pressure(_PRESSURE / "io"),
            cpu_limit_cores=limits.cpu_cores,
            ram_limit_bytes=limits.ram_bytes,
            ram_limited_used_bytes=limits.ram_used_bytes,
        )


def host_facts() -> dict[str, str | int | None]:
    """What does not change: `host`, `os`, `cpu`, `cores_physical`, `cores_logical`, `ram_total_bytes`."""
    return {
        "host": clean(socket.gethostname(), 64) or "unknown",
        "os": clean(_os_name(), 100),
        "cpu": _cpu_name(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "ram_total_bytes": psutil.virtual_memory().total,
    }


def read_pressure(path: Path) -> float | None:
    """`some avg10` of one pressure-stall file as a fraction; None on kernels without it."""
    with contextlib.suppress(OSError, ValueError):
        match = re.search(r"^some avg10=([\d.]+)", path.read_text())
        return min(1.0, float(match[1]) / 100) if match else None
    return None


def _core_times() -> list[tuple[float, float, float]]:
    """(all, idle, iowait) seconds per logical core. `guest` time is part of `user` already."""
    times = []
    for core in psutil.cpu_times(percpu=True):
        spent = sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0)
        times.append((spent, core.idle, getattr(core, "iowait", 0.0)))
    return times


def _busy(
    before: list[tuple[float, float, float]], after: list[tuple[float, float, float]]
) -> tuple[float | None, list[float] | None, float | None]:
    """(busy share of all, per core, iowait share); all None when cores came or went in between."""
    if len(before) != len(after) or not after:
        return None, None, None
    per_core: list[float] = []
    all_spent = all_idle = all_waiting = 0.0
    for (spent0, idle0, wait0), (spent1, idle1, wait1) in zip(before, after, strict=True):
        # iowait is an estimate and may go back a little.
        spent, idle, waiting = spent1 - spent0, max(0.0, idle1 - idle0), max(0.0, wait1 - wait0)
        per_core.append(_share(spent - idle - waiting, spent))
        all_spent, all_idle, all_waiting = all_spent + spent, all_idle + idle, all_waiting + waiting
    if all_spent <= 0:
        return None, None, None
    iowait = _share(all_waiting, all_spent) if sys.platform == "linux" else None
    return _share(all_spent - all_idle - all_waiting, all_spent), per_core, iowait


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def _rates(before: _Counters, after: _Counters, window: float) -> tuple[float | None, float | None]:
    """Sum over the devices present at both looks; None when one went back (wrapped, or was reset)."""
    shared = before.keys() & after.keys()
    if window <= 0 or not shared:
        return None, None
    sums: list[float | None] = []
    for index in (0, 1):
        steps = [after[name][index] - before[name][index] for name in shared]
        sums.append(sum(steps) / window if min(steps) >= 0 else None)
    return sums[0], sums[1]


def _disk_counters() -> _Counters:
    """Whole disks only: a partition, a mapper device or a loop device would count the same bytes again."""
    with contextlib.suppress(OSError, RuntimeError, psutil.Error):
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        whole = set(_whole_disks(counters))
        return {name: (io.read_bytes, io.write_bytes) for name, io in counters.items() if name in whole}
    return {}


def _whole_disks(names: Iterable[str]) -> list[str]:
    if sys.platform != "linux":
        return list(names)
    disks = {path.name.replace("!", "/") for path in Path("/sys/block").iterdir()}  # partitions are not there
    return [name for name in names if name in disks and not _NOT_A_DISK.match(name)]


def _net_counters() -> _Counters:
    """Real interfaces where there are some: a container's bridge would count the same bytes again."""
    with contextlib.suppress(OSError, psutil.Error):
        counters = psutil.net_io_counters(pernic=True, nowrap=False) or {}
        outer = {name: io for name, io in counters.items() if not _NOT_A_WIRE.match(name)}
        real = {name: io for name, io in outer.items() if Path("/sys/class/net", name, "device").exists()}
        return {name: (io.bytes_recv, io.bytes_sent) for name, io in (real or outer).items()}
    return {}


class _Swap(NamedTuple):
    total: int | None
    used: int | None
    moved: _Counters


def _read_swap() -> _Swap:
    with contextlib.suppress(OSError, RuntimeError, psutil.Error), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # psutil warns where /proc/vmstat is not readable
        swap = psutil.swap_memory()
        # psutil has no counters on Windows and says 0
        moved = {} if sys.platform == "win32" else {"swap": (swap.sin, swap.sout)}
        return _Swap(swap.total, swap.used, moved)
    return _Swap(None, None, {})


def _load() -> tuple[float | None, float | None, float | None]:
    with contextlib.suppress(OSError, AttributeError):
        one, five, fifteen = psutil.getloadavg()
        return one, five, fifteen
    return None, None, None


def _os_name() -> str:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
            return f"{name}, kernel {platform.release()}"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return f"{platform.system()} {platform.release()} {platform.version()}"


def _cpu_name() -> str | None:
    if sys.platform == "linux":
        for path in ("/proc/cpuinfo", "/proc/device-tree/model"):
            with contextlib.suppress(OSError):
                text = Path(path).read_text(errors="replace")
                match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)", text, re.MULTILINE)
                found = match[1] if match else (text if "device-tree" in path else "")
                if found.strip("\0 \n"):
                    return clean(found.strip("\0"), 100)
    return clean(platform.processor() or platform.machine(), 100) or None
