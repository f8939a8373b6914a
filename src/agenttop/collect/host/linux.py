"""A Linux host, read from /proc and /sys. `root` stands in the place of `/` in tests."""

from __future__ import annotations

import re
from pathlib import Path

from agenttop.collect.gpu.kernel_files import read_text
from agenttop.collect.host import cpu, memory, numa
from agenttop.collect.host.container import Container
from agenttop.collect.host.counters import Counters, Flows
from agenttop.collect.host.disks import Disk, WholeDisks, busiest
from agenttop.collect.host.network import Wires
from agenttop.collect.host.power import CpuPower
from agenttop.collect.host.pressure import Pressure, read_pressure, why_none
from agenttop.collect.host.reasons import Reason, Reasons
from agenttop.collect.host.seldom import Seldom
from agenttop.collect.host.temperature import CpuTemperature
from agenttop.collect.kernel_tables import whole
from agenttop.collect.virtual import machine
from agenttop.model.clock import Clock
from agenttop.model.frames import HostSample

_CLOCK_EVERY_S = 5.0
_TEMPERATURE_EVERY_S = 2.0
_NUMA_EVERY_S = 5.0
_ALLOWED_EVERY_S = 10.0
_ZFS_EVERY_S = 5.0
_LOAD = re.compile(r"(\d{1,7}\.\d\d) (\d{1,7}\.\d\d) (\d{1,7}\.\d\d) ")


class LinuxHost:
    """Keeps the counters of the look before."""

    def __init__(self, clock: Clock, root: str) -> None:
        virtual, vendor = machine(root) is not None, cpu.vendor(root)
        nodes = numa.nodes(root)
        self._root = root
        self._times = self._read_times()
        self._whole_disks, self._wires = WholeDisks(root), Wires(root)
        self._disks = self._whole_disks.look()
        self._disk_flow, self._net_flow = Flows(_bytes_of(self._disks)), Flows(self._wires.look())
        self._events = Counters(self._read_events())
        self._power = CpuPower(root, virtual=virtual, vendor=vendor)
        self._container = Container(Path(root or "/"), clock)
        self._highest = cpu.clock_highest(root)
        self._clock_now = Seldom(lambda: cpu.clock_now(root, virtual=virtual), _CLOCK_EVERY_S, clock)
        heat = CpuTemperature(root, virtual=virtual, vendor=vendor)
        self._heat = Seldom(heat.look, _TEMPERATURE_EVERY_S, clock)
        self._numa = Seldom(lambda: numa.free(root, nodes), _NUMA_EVERY_S, clock)
        self._allowed = Seldom(lambda: cpu.allowed(root), _ALLOWED_EVERY_S, clock)
        self._zfs = Seldom(lambda: memory.zfs_cache(root), _ZFS_EVERY_S, clock)

    def sample(self, t: float, window: float, reasons: Reasons) -> HostSample:
        """One look; rates are over `window` seconds."""
        shares = self._cpu_shares()
        load = _LOAD.match(read_text(f"{self._root}/proc/loadavg") or "")
        ram = memory.parse_meminfo(whole(f"{self._root}/proc/meminfo") or b"")
        events = self._rates_of_events(window, reasons)
        read, written, busy, disk = self._disk_rates(window, reasons)
        received, sent = self._net_flow.rates(self._wires.look(), window)
        cpu_wait, ram_wait, io_wait = self._pressures(reasons)
        limits, use, ram_used = self._container.look(window)
        packages, memories = self._power.look(window)
        return HostSample(
            t=t,
            window_s=window if window > 0 else None,
            cpu_fraction=shares.busy if shares else None,
            cpu_per_core=shares.per_core if shares else None,
            cpu_max_core_fraction=max(shares.per_core) if shares else None,
            iowait_fraction=shares.waiting if shares else None,
            steal_fraction=shares.stolen if shares else None,
            cpu_mhz=reasons.take("cpu_mhz", self._clock_now.now()),
            cpu_max_mhz=reasons.take("cpu_max_mhz", self._highest),
            cpu_temperature_c=reasons.take("cpu_temperature_c", self._heat.now()),
            cpu_power_w=reasons.take("cpu_power_w", packages),
            dram_power_w=reasons.take("dram_power_w", memories),
            load_1m=float(load[1]) if load else None,
            load_5m=float(load[2]) if load else None,
            load_15m=float(load[3]) if load else None,
            ram_total_bytes=ram.total,
            ram_used_bytes=ram.used,
            ram_available_bytes=reasons.take("ram_available_bytes ram_used_bytes", memory.available(ram)),
            ram_cached_bytes=ram.cached,
            ram_mapped_bytes=ram.mapped,
            ram_shared_bytes=ram.shared,
            ram_anonymous_bytes=ram.anonymous,
            ram_zfs_cache_bytes=self._zfs.now(),
            major_faults_s=events.get(b"pgmajfault"),
            swap_total_bytes=ram.swap_total,
            swap_used_bytes=ram.swap_used,
            swap_in_bytes_s=_of_pages(events.get(b"pswpin")),
            swap_out_bytes_s=_of_pages(events.get(b"pswpout")),
            numa_free_bytes=self._numa.now(),
            disk_read_bytes_s=read,
            disk_write_bytes_s=written,
            disk_busy_fraction=busy,
            disk_busiest=disk,
            net_received_bytes_s=received,
            net_sent_bytes_s=sent,
            pressure_cpu_fraction=cpu_wait.some,
            pressure_memory_fraction=ram_wait.some,
            pressure_memory_full_fraction=ram_wait.full,
            pressure_io_fraction=io_wait.some,
            pressure_io_full_fraction=io_wait.full,
            cpus_allowed=self._allowed.now(),
            cpu_limit_cores=limits.cpu_cores,
            cpu_limit_throttled_fraction=use.throttled,
            cpu_limited_used_cores=use.cores,
            ram_limit_bytes=limits.ram_bytes,
            ram_limited_used_bytes=ram_used,
            swap_limit_bytes=limits.swap_bytes,
        )

    def _read_times(self) -> dict[int, cpu.Times]:
        return cpu.parse_stat(whole(f"{self._root}/proc/stat") or b"")

    def _read_events(self) -> dict[bytes, int]:
        return memory.parse_vmstat(whole(f"{self._root}/proc/vmstat") or b"")

    def _cpu_shares(self) -> cpu.Shares | None:
        before, self._times = self._times, self._read_times()
        return cpu.shares(before, self._times)

    def _rates_of_events(self, window: float, reasons: Reasons) -> dict[bytes, float]:
        counted = self._read_events()
        if not counted:
            fields = "major_faults_s swap_in_bytes_s swap_out_bytes_s"
            reasons.add(fields, Reason("/proc/vmstat cannot be read"))
        return self._events.rates(counted, window)

    def _disk_rates(
        self, window: float, reasons: Reasons
    ) -> tuple[float | None, float | None, float | None, str | None]:
        before, self._disks = self._disks, self._whole_disks.look()
        if not self._disks:
            fields = "disk_read_bytes_s disk_write_bytes_s disk_busy_fraction"
            reasons.add(fields, self._whole_disks.why_none())
        flow = self._disk_flow.rates(_bytes_of(self._disks), window)
        return (*flow, *busiest(before, self._disks, window))

    def _pressures(self, reasons: Reasons) -> tuple[Pressure, Pressure, Pressure]:
        cpu_wait, ram_wait, io_wait = (read_pressure(self._root, what) for what in ("cpu", "memory", "io"))
        if cpu_wait.some is None and ram_wait.some is None and io_wait.some is None:
            fields = "pressure_cpu_fraction pressure_memory_fraction pressure_memory_full_fraction"
            reasons.add(f"{fields} pressure_io_fraction pressure_io_full_fraction", why_none())
        return cpu_wait, ram_wait, io_wait


def _bytes_of(disks: dict[str, Disk]) -> dict[str, tuple[int, int]]:
    return {name: (disk.read, disk.written) for name, disk in disks.items()}


def _of_pages(rate: float | None) -> float | None:
    return rate * memory.PAGE_BYTES if rate is not None else None
