"""macOS and Windows: psutil's counters, set by hand."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from agenttop.collect.host import HostSampler
from agenttop.model.clock import ManualClock
from agenttop.model.frames import HostSample

Io = namedtuple("Io", "read_bytes write_bytes")
Net = namedtuple("Net", "bytes_recv bytes_sent")
Mac = namedtuple("Mac", "user nice system idle")
Windows = namedtuple("Windows", "user system idle interrupt dpc")
Swap = namedtuple("Swap", "total used free percent sin sout")
Ram = namedtuple("Ram", "total available")


class Machine:
    """What psutil says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cores = [Mac(0.0, 0.0, 0.0, 0.0)] * 2
        self.disks: dict[str, Io] | None = {}
        self.nets: dict[str, Net] = {}
        self.swap = Swap(100, 40, 60, 40.0, 0, 0)
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu: self.cores)
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: self.disks)
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: self.nets)
        monkeypatch.setattr(psutil, "swap_memory", lambda: self.swap)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: Ram(1000, 300))
        monkeypatch.setattr(psutil, "getloadavg", lambda: (1.0, 2.0, 3.0))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def look(machine: Machine, system: str, **after: object) -> tuple[HostSample, dict[str, str | None]]:
    clock = ManualClock()
    sampler = HostSampler(clock, system=system)
    clock.advance(2.0)
    for name, value in after.items():
        setattr(machine, name, value)
    sample = sampler.sample(1.0)
    return sample, {missing.what.removeprefix("host:"): missing.fix for missing in sampler.missing}


def test_macos_counts_pages_of_files_as_swapped_in(machine: Machine) -> None:
    sample, missing = look(
        machine,
        "darwin",
        cores=[Mac(1.0, 0.5, 0.5, 2.0), Mac(0.0, 0.0, 0.0, 4.0)],
        disks={"disk0": Io(4000, 200)},
        swap=Swap(100, 40, 60, 40.0, 200 * 16384, 9),
    )
    assert sample.cpu_per_core == [0.5, 0.0]
    assert (sample.swap_total_bytes, sample.swap_used_bytes) == (100, 40)
    assert (sample.swap_in_bytes_s, sample.swap_out_bytes_s) == (None, None)
    assert sample.major_faults_s > 0
    assert (sample.load_1m, sample.ram_used_bytes) == (1.0, 700)
    assert {"swap_in_bytes_s", "cpu_power_w", "pressure_cpu_fraction", "ram_mapped_bytes"} <= missing.keys()
    assert "memory_pressure" not in missing


def test_windows_has_no_load_and_may_count_no_disk(machine: Machine) -> None:
    machine.cores, machine.disks = [Windows(0.0, 0.0, 0.0, 0.0, 0.0)], None
    sample, missing = look(machine, "win32", cores=[Windows(1.0, 1.0, 2.0, 0.5, 0.5)])
    assert sample.cpu_per_core == [0.5], "interrupts are within system"
    assert (sample.load_1m, sample.iowait_fraction, sample.steal_fraction) == (None, None, None)
    assert sample.disk_read_bytes_s is None
    assert missing["disk_read_bytes_s"] == "diskperf -y, as administrator"
    assert {"load_1m", "swap_in_bytes_s", "major_faults_s", "memory_pressure"} <= missing.keys()


def test_every_figure_that_is_never_there_has_a_reason(machine: Machine) -> None:
    not_always = ("cpu_limit", "ram_limit", "swap_limit", "cpus_", "numa", "ram_zfs", "disk_busiest")
    wanted = {name for name in HostSample.__struct_fields__ if not name.startswith(not_always)}
    for system in ("darwin", "win32"):
        machine.disks, machine.cores = {"0": Io(0, 0)}, [Mac(0.0, 0.0, 0.0, 0.0)] * 2
        machine.nets = {"en0": Net(0, 0)}
        sample, missing = look(machine, system, cores=[Mac(1.0, 0.0, 0.0, 1.0)] * 2)
        absent = {name for name in wanted if getattr(sample, name) is None}
        own = {"memory_pressure"} if system == "darwin" else set()  # this system is not macOS
        assert absent - missing.keys() == own
        assert not missing.keys() & (wanted - absent)


def test_a_psutil_that_fails_gives_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no disks")

    monkeypatch.setattr(psutil, "disk_io_counters", fail)
    monkeypatch.setattr(psutil, "swap_memory", fail)
    sample, missing = look(machine, "win32")
    assert (sample.disk_read_bytes_s, sample.swap_total_bytes) == (None, None)
    assert "disk_read_bytes_s" in missing
