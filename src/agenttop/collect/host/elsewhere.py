"""macOS and Windows, by psutil, as far as what it tells there is what it is called.

What psutil gives and is not shown: on Windows the load average, which is emulated and 0 for the first
seconds, and swap counters, which are always 0; on macOS `sin` and `sout` of the swap, which count pages read
from any file. There these are major faults.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from typing import NamedTuple

import psutil

from agenttop.collect.host import cpu
from agenttop.collect.host.counters import Counters, Flows
from agenttop.collect.host.network import INSIDE
from agenttop.collect.host.reasons import Reason, Reasons
from agenttop.model.clock import Clock
from agenttop.model.frames import HostSample

_LINUX_ALONE = Reason("told by Linux alone")
_EVERYWHERE = (
    "iowait_fraction steal_fraction cpu_mhz cpu_power_w dram_power_w ram_mapped_bytes ram_shared_bytes"
    " ram_anonymous_bytes ram_cached_bytes disk_busy_fraction pressure_cpu_fraction pressure_memory_fraction"
    " pressure_io_fraction pressure_memory_full_fraction pressure_io_full_fraction"
)
_MACOS = {
    "cpu_temperature_c": Reason("macOS tells no temperature of the CPU to others"),
    "swap_in_bytes_s swap_out_bytes_s": Reason("macOS counts it together with pages of files"),
}
_WINDOWS = {
    "cpu_temperature_c": Reason("Windows tells no temperature of the CPU"),
    "load_1m load_5m load_15m": Reason("Windows has no load average"),
    "swap_in_bytes_s swap_out_bytes_s major_faults_s": Reason("not told by Windows through psutil"),
}
_LEVELS = {1: "normal", 2: "warn", 4: "critical"}
"""sys/event.h: NOTE_MEMORYSTATUS_PRESSURE_NORMAL, _WARN, _CRITICAL."""


class _Swap(NamedTuple):
    total: int | None = None
    used: int | None = None
    paged_in: int | None = None
    """Bytes read from files and from the swap since the start (macOS)."""


class PsutilHost:
    """Keeps the counters of the look before."""

    def __init__(self, clock: Clock, system: str) -> None:
        """`system`: `darwin` or `win32`."""
        self._system = system
        self._times = _core_times()
        self._disks, self._net = Flows(_disk_counters()), Flows(_net_counters())
        self._faults = Counters(self._page_ins(_read_swap()))
        self._highest = _highest_mhz()

    def sample(self, t: float, window: float, reasons: Reasons) -> HostSample:
        """One look; rates are over `window` seconds."""
        before, self._times = self._times, _core_times()
        shares = cpu.shares(before, self._times)
        ram, swap, load = psutil.virtual_memory(), _read_swap(), self._load()
        disks = _disk_counters()
        read, written = self._disks.rates(disks, window)
        received, sent = self._net.rates(_net_counters(), window)
        self._explain(reasons, disks=bool(disks))
        return HostSample(
            t=t,
            window_s=window if window > 0 else None,
            cpu_fraction=shares.busy if shares else None,
            cpu_per_core=shares.per_core if shares else None,
            cpu_max_core_fraction=max(shares.per_core) if shares else None,
            cpu_max_mhz=reasons.take("cpu_max_mhz", self._highest),
            load_1m=load[0],
            load_5m=load[1],
            load_15m=load[2],
            ram_total_bytes=ram.total,
            ram_used_bytes=max(0, ram.total - ram.available),
            ram_available_bytes=ram.available,
            swap_total_bytes=swap.total,
            swap_used_bytes=swap.used,
            major_faults_s=self._faults.rates(self._page_ins(swap), window).get("pages"),
            disk_read_bytes_s=read,
            disk_write_bytes_s=written,
            net_received_bytes_s=received,
            net_sent_bytes_s=sent,
            memory_pressure=memory_pressure() if self._system == "darwin" else None,
        )

    def _page_ins(self, swap: _Swap) -> dict[str, int]:
        if self._system != "darwin" or swap.paged_in is None:
            return {}
        return {"pages": swap.paged_in // mmap.PAGESIZE}

    def _load(self) -> tuple[float | None, float | None, float | None]:
        if self._system != "win32":
            with contextlib.suppress(OSError, AttributeError):
                one, five, fifteen = psutil.getloadavg()
                return one, five, fifteen
        return None, None, None

    def _explain(self, reasons: Reasons, *, disks: bool) -> None:
        reasons.add(_EVERYWHERE, _LINUX_ALONE)
        for fields, reason in (_WINDOWS if self._system == "win32" else _MACOS).items():
            reasons.add(fields, reason)
        if self._system != "darwin":
            reasons.add("memory_pressure", Reason("told by macOS alone"))
        if not disks:
            fix = "diskperf -y, as administrator" if self._system == "win32" else None
            reasons.add("disk_read_bytes_s disk_write_bytes_s", Reason("no disk is counted", fix))


def memory_pressure() -> str | None:
    """What macOS says of its memory; "available" bytes do not tell it there."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, AttributeError):
            level, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
            name = b"kern.memorystatus_vm_pressure_level"
            failed = ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(level), ctypes.byref(size), None, 0)
            return None if failed else _LEVELS.get(level.value)
    return None


def _core_times() -> dict[int, cpu.Times]:
    """`interrupt` and `dpc` of Windows are within `system`."""
    return {
        number: cpu.Times(
            core.user + core.system + core.idle + getattr(core, "nice", 0.0), core.idle, 0.0, 0.0
        )
        for number, core in enumerate(psutil.cpu_times(percpu=True))
    }


def _highest_mhz() -> float | Reason:
    with contextlib.suppress(OSError, RuntimeError, AttributeError, NotImplementedError, psutil.Error):
        told = psutil.cpu_freq()
        if told is not None and told.max > 0:
            return float(told.max)
    return Reason("the system does not tell how fast the cores may run")


def _disk_counters() -> dict[str, tuple[int, int]]:
    with contextlib.suppress(OSError, RuntimeError, psutil.Error):
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        return {name: (io.read_bytes, io.write_bytes) for name, io in counters.items()}
    return {}


def _net_counters() -> dict[str, tuple[int, int]]:
    with contextlib.suppress(OSError, psutil.Error):
        counters = psutil.net_io_counters(pernic=True, nowrap=False) or {}
        outer = {name: io for name, io in counters.items() if not INSIDE.match(name)}
        return {name: (io.bytes_recv, io.bytes_sent) for name, io in outer.items()}
    return {}


def _read_swap() -> _Swap:
    with contextlib.suppress(OSError, RuntimeError, psutil.Error):
        swap = psutil.swap_memory()
        return _Swap(swap.total, swap.used, swap.sin)
    return _Swap()
