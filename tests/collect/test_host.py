"""The host: on the real one, and with counters that do what real ones rarely do."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest

from agenttop.collect import host
from agenttop.collect.host import HostSampler, host_facts, read_pressure
from agenttop.collect.own import OwnCost
from agenttop.model.clock import ManualClock, SystemClock
from agenttop.model.frames import HostSample
from tests.waiting import until

Io = namedtuple("Io", "read_bytes write_bytes")
Net = namedtuple("Net", "bytes_recv bytes_sent")
Times = namedtuple("Times", "user system idle iowait guest")


def test_figures_of_this_host_are_possible() -> None:
    sampler = HostSampler(SystemClock())
    before = sum(os.times()[:2])
    until(lambda: sum(x * x for x in range(10_000)) and sum(os.times()[:2]) - before > 0.1)
    sample = sampler.sample(1.0)
    assert sample.t == 1.0
    assert sample.window_s > 0
    assert 0 < sample.cpu_fraction <= 1
    assert len(sample.cpu_per_core) == psutil.cpu_count()
    assert all(0 <= core <= 1 for core in sample.cpu_per_core)
    assert sample.cpu_max_core_fraction == max(sample.cpu_per_core) >= sample.cpu_fraction
    assert 0 < sample.ram_used_bytes < sample.ram_total_bytes
    assert sample.ram_used_bytes + sample.ram_available_bytes == sample.ram_total_bytes
    for name in HostSample.__struct_fields__:
        value = getattr(sample, name)
        if isinstance(value, float):
            assert math.isfinite(value), name
            assert value >= 0, name
        if name.endswith("_fraction") and value is not None:
            assert value <= 1, name


def test_a_sample_from_another_thread_is_no_first_sample() -> None:
    """psutil's own percentages begin at 0.0 in every new thread."""
    sampler = HostSampler(SystemClock())
    until(lambda: sum(x * x for x in range(10_000)) and sampler.sample(0).cpu_fraction)
    before = sum(os.times()[:2])
    until(lambda: sum(x * x for x in range(10_000)) and sum(os.times()[:2]) - before > 0.05)
    samples: list[HostSample] = []
    thread = threading.Thread(target=lambda: samples.append(sampler.sample(1)))
    thread.start()
    thread.join()
    assert samples[0].cpu_fraction > 0


def test_facts() -> None:
    facts = host_facts()
    assert set(facts) == {"host", "os", "cpu", "cores_physical", "cores_logical", "ram_total_bytes"}
    assert facts["cores_logical"] == os.cpu_count()
    assert facts["ram_total_bytes"] == psutil.virtual_memory().total
    assert facts["host"]
    assert facts["os"]


class Machine:
    """psutil's counters, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cores = [Times(0.0, 0.0, 0.0, 0.0, 0.0)] * 2
        self.disks: dict[str, Io] = {}
        self.nets: dict[str, Net] = {}
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu: self.cores)
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: self.disks)
        monkeypatch.setattr(psutil, "net_io_counters", lambda **_: self.nets)
        monkeypatch.setattr(host, "_whole_disks", lambda names: [n for n in names if n != "sda1"])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def look(machine: Machine, seconds: float = 2.0, **after: Any) -> HostSample:
    clock = ManualClock()
    sampler = HostSampler(clock)
    clock.advance(seconds)
    for name, value in after.items():
        setattr(machine, name, value)
    return sampler.sample(1.0)


def test_waiting_for_a_disk_is_not_work_and_guests_are_not_counted_twice(machine: Machine) -> None:
    sample = look(machine, cores=[Times(1.0, 0.5, 0.5, 2.0, 1.0), Times(0.0, 0.0, 3.0, 0.0, 0.0)])
    # core 0: 4 s in all, for the guest's second is part of user; 0.5 idle, 2 waiting
    assert sample.cpu_per_core == [pytest.approx(1.5 / 4.0), 0.0]
    assert sample.cpu_fraction == pytest.approx(1.5 / 7.0)
    if sys.platform == "linux":
        assert sample.iowait_fraction == pytest.approx(2.0 / 7.0)


def test_a_core_that_comes_or_goes_leaves_the_window_unknown(machine: Machine) -> None:
    sample = look(machine, cores=[Times(1.0, 0.0, 1.0, 0.0, 0.0)])
    assert (sample.cpu_fraction, sample.cpu_per_core, sample.cpu_max_core_fraction) == (None, None, None)


def test_an_estimate_of_waiting_that_goes_back_gives_no_negative_share(machine: Machine) -> None:
    machine.cores = [Times(1.0, 1.0, 1.0, 1.0, 0.0)]
    sample = look(machine, cores=[Times(2.0, 1.0, 1.0, 0.9, 0.0)])
    assert sample.iowait_fraction == 0.0
    assert 0 <= sample.cpu_fraction <= 1


def test_rates_of_whole_disks(machine: Machine) -> None:
    machine.disks = {"sda": Io(0, 0), "sda1": Io(0, 0), "sdb": Io(50, 0)}
    sample = look(machine, disks={"sda": Io(4000, 200), "sda1": Io(4000, 200), "sdb": Io(50, 100)})
    assert (sample.disk_read_bytes_s, sample.disk_write_bytes_s) == (2000.0, 150.0)


def test_a_counter_that_wraps_leaves_only_its_own_rate_unknown(machine: Machine) -> None:
    machine.disks = {"sda": Io(4_000_000_000, 0)}
    sample = look(machine, disks={"sda": Io(5, 100)})
    assert (sample.disk_read_bytes_s, sample.disk_write_bytes_s) == (None, 50.0)


def test_a_disk_that_appears_does_not_count_its_past(machine: Machine) -> None:
    machine.disks = {"sda": Io(0, 0)}
    sample = look(machine, disks={"sda": Io(10, 10), "usb": Io(10**12, 10**12)})
    assert sample.disk_read_bytes_s == 5.0


def test_no_disks_is_unknown_not_zero(machine: Machine) -> None:
    sample = look(machine)
    assert (sample.disk_read_bytes_s, sample.net_sent_bytes_s) == (None, None)


def test_the_loopback_and_bridges_do_not_count(machine: Machine) -> None:
    machine.nets = {name: Net(0, 0) for name in ("lo", "lo0", "docker0", "veth12", "uplink7")}
    sample = look(machine, nets={name: Net(100, 60) for name in machine.nets})
    assert (sample.net_received_bytes_s, sample.net_sent_bytes_s) == (50.0, 30.0)


def test_two_looks_at_one_moment(machine: Machine) -> None:
    machine.disks = {"sda": Io(0, 0)}
    sample = look(machine, seconds=0.0, disks={"sda": Io(10, 10)})
    assert (sample.window_s, sample.disk_read_bytes_s) == (None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="partitions are told apart by /sys/block")
def test_partitions_and_loop_devices_are_no_whole_disks() -> None:
    names = [path.name for path in Path("/sys/block").iterdir()]
    whole = host._whole_disks([*names, "sda1", "nvme0n1p2", "no-such"])
    assert set(whole) <= set(names)
    assert not any(name.startswith(("loop", "dm-", "zram", "ram")) for name in whole)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=90.00 avg60=0 avg300=0 total=0\n",
            0.125,
        ),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.0),
        ("", None),
        ("Operation not supported", None),
    ],
)
def test_pressure(tmp_path: Path, text: str, expected: float | None) -> None:
    (tmp_path / "cpu").write_text(text)
    assert read_pressure(tmp_path / "cpu") == expected
    assert read_pressure(tmp_path / "absent") is None


def test_own_cost() -> None:
    clock = ManualClock()
    own = OwnCost("node", clock)
    before = time.process_time()
    until(lambda: sum(x * x for x in range(10_000)) and time.process_time() - before > 0.05)
    clock.advance(1.0)
    sample = own.sample(7.0)
    assert (sample.t, sample.role, sample.pid, sample.window_s) == (7.0, "node", os.getpid(), 1.0)
    assert 0.05 < sample.cpu_fraction < 20
    assert 1_000_000 < sample.memory_bytes <= psutil.Process().memory_info().rss * 1.5


def test_own_memory_is_measured_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    own = OwnCost("console", clock)
    measured = []
    monkeypatch.setattr(own, "_measure_memory", lambda: measured.append(clock.now) or len(measured))
    for _ in range(25):
        clock.advance(1.0)
        assert own.sample(clock.now).memory_bytes == len(measured)
    assert measured == [1.0, 11.0, 21.0]


def test_own_memory_where_the_kernel_does_not_share_it_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("agenttop.collect.own._ROLLUP", tmp_path / "absent")
    assert OwnCost("driver").sample(0.0).memory_bytes > 1_000_000
