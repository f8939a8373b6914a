"""The host: on the real one, and a whole look at a tree of files."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.host import HostSampler, host_facts
from agenttop.collect.host.seldom import Seldom
from agenttop.collect.own import OwnCost
from agenttop.model.clock import ManualClock, SystemClock
from agenttop.model.frames import HostSample
from tests.collect.host_trees import GIB, desktop, meminfo, two_seconds_later, write
from tests.waiting import until


def busy_for(seconds: float) -> None:
    before = sum(os.times()[:2])
    until(lambda: sum(x * x for x in range(10_000)) and sum(os.times()[:2]) - before > seconds)


def test_figures_of_this_host_are_possible() -> None:
    sampler = HostSampler(SystemClock())
    busy_for(0.1)
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


@pytest.mark.skipif(sys.platform != "linux", reason="psutil is what is read elsewhere")
def test_this_host_reads_as_psutil_reads_it() -> None:
    sampler = HostSampler(SystemClock())
    sample, memory, swap = sampler.sample(1.0), psutil.virtual_memory(), psutil.swap_memory()
    assert sample.ram_total_bytes == memory.total
    assert sample.ram_available_bytes == pytest.approx(memory.available, abs=0.5 * GIB)
    assert sample.swap_total_bytes == swap.total
    assert sample.load_1m == pytest.approx(psutil.getloadavg()[0], abs=5.0)


def test_a_sample_from_another_thread_is_no_first_sample() -> None:
    """psutil's own percentages begin at 0.0 in every new thread."""
    sampler = HostSampler(SystemClock())
    until(lambda: sum(x * x for x in range(10_000)) and sampler.sample(0).cpu_fraction)
    busy_for(0.05)
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


def look(root: Path, seconds: float = 2.0) -> tuple[HostSampler, HostSample]:
    clock = ManualClock()
    sampler = HostSampler(clock, root, "linux")
    clock.advance(seconds)
    two_seconds_later(root)
    return sampler, sampler.sample(7.0)


def test_a_whole_look(tmp_path: Path) -> None:
    _, sample = look(desktop(tmp_path))
    assert (sample.t, sample.window_s) == (7.0, 2.0)
    assert sample.cpu_per_core == [0.75, 0.0, 0.0, 0.0]
    assert sample.cpu_fraction == pytest.approx(150 / 800)
    assert (sample.iowait_fraction, sample.steal_fraction) == (pytest.approx(1 / 8), pytest.approx(1 / 8))
    assert (sample.load_1m, sample.load_5m, sample.load_15m) == (1.5, 0.75, 0.25)
    assert (sample.cpu_mhz, sample.cpu_max_mhz) == (4000.0, 5700.0)
    assert (sample.cpu_temperature_c, sample.cpu_power_w) == (71.25, 90.0)
    assert (sample.ram_total_bytes, sample.ram_available_bytes) == (64 * GIB, 48 * GIB)
    assert sample.ram_used_bytes == 16 * GIB
    assert (sample.ram_cached_bytes, sample.ram_mapped_bytes) == (40 * GIB, 30 * GIB)
    assert (sample.ram_shared_bytes, sample.ram_anonymous_bytes) == (2 * GIB, 10 * GIB)
    assert (sample.swap_total_bytes, sample.swap_used_bytes) == (8 * GIB, GIB)
    page = os.sysconf("SC_PAGE_SIZE")
    assert (sample.major_faults_s, sample.swap_in_bytes_s, sample.swap_out_bytes_s) == (250, 5 * page, 0)
    assert (sample.disk_read_bytes_s, sample.disk_write_bytes_s) == (2000 * 512, 2 * 512)
    assert (sample.disk_busy_fraction, sample.disk_busiest) == (0.75, "nvme0n1")
    assert (sample.net_received_bytes_s, sample.net_sent_bytes_s) == (1000.0, 300.0)
    assert (sample.pressure_cpu_fraction, sample.pressure_io_full_fraction) == (0.125, 0.01)
    assert (sample.pressure_memory_fraction, sample.pressure_memory_full_fraction) == (0.5, 0.25)
    assert (sample.cpus_allowed, sample.cpu_limit_cores, sample.numa_free_bytes) == (None, None, None)


def test_what_a_desktop_lacks_has_its_reason(tmp_path: Path) -> None:
    sampler, _ = look(desktop(tmp_path))
    assert [(missing.what, missing.why) for missing in sampler.missing] == [
        ("host:dram_power_w", "this CPU does not count the energy of its memory")
    ]


def test_an_empty_tree_gives_reasons_and_no_figure(tmp_path: Path) -> None:
    clock = ManualClock()
    sampler = HostSampler(clock, tmp_path, "linux")
    clock.advance(1.0)
    sample = sampler.sample(1.0)
    values = {name: getattr(sample, name) for name in HostSample.__struct_fields__}
    assert {name for name, value in values.items() if value is not None} == {"t", "window_s"}
    told = {missing.what for missing in sampler.missing}
    for field in ("ram_used_bytes", "cpu_mhz", "cpu_power_w", "pressure_io_fraction", "disk_busy_fraction"):
        assert f"host:{field}" in told
    assert all(missing.why for missing in sampler.missing)


def test_a_reason_goes_when_the_figure_comes(tmp_path: Path) -> None:
    sampler, _ = look(desktop(tmp_path))
    (tmp_path / "proc/pressure/cpu").unlink()
    (tmp_path / "proc/pressure/memory").unlink()
    (tmp_path / "proc/pressure/io").rename(tmp_path / "aside")
    assert sampler.sample(8.0).pressure_io_fraction is None
    assert "host:pressure_io_fraction" in {missing.what for missing in sampler.missing}
    (tmp_path / "aside").rename(tmp_path / "proc/pressure/io")
    assert sampler.sample(9.0).pressure_io_fraction == 0.02
    assert "host:pressure_io_fraction" not in {missing.what for missing in sampler.missing}


def test_two_looks_at_one_moment(tmp_path: Path) -> None:
    _, sample = look(desktop(tmp_path), seconds=0.0)
    assert (sample.window_s, sample.disk_read_bytes_s, sample.disk_busy_fraction) == (None, None, None)
    assert (sample.cpu_power_w, sample.major_faults_s) == (None, None)


def test_a_container_with_limits_shows_them(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/box"
    root = write(
        desktop(tmp_path),
        {
            "proc/self/cgroup": "0::/box\n",
            "proc/self/status": "Cpus_allowed_list:\t1,3\n",
            f"{group}/cpu.max": "150000 100000\n",
            f"{group}/cpu.stat": "usage_usec 1000000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n",
            f"{group}/memory.max": 8 * GIB,
            f"{group}/memory.swap.max": 0,
            f"{group}/memory.current": 5 * GIB,
            f"{group}/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
        },
    )
    clock = ManualClock()
    sampler = HostSampler(clock, root, "linux")
    clock.advance(2.0)
    write(root, {f"{group}/cpu.stat": "usage_usec 3900000\nnr_periods 30\nnr_throttled 9\n"})
    sample = sampler.sample(1.0)
    assert (sample.cpu_limit_cores, sample.cpus_allowed) == (1.5, 2)
    assert sample.cpu_limit_throttled_fraction == pytest.approx(5 / 20)
    assert sample.cpu_limited_used_cores == pytest.approx(1.45)
    assert (sample.ram_limit_bytes, sample.ram_limited_used_bytes) == (8 * GIB, 3 * GIB)
    assert sample.swap_limit_bytes == 0
    assert sample.ram_total_bytes == 64 * GIB, "what the host has stands beside it"


def test_a_limit_that_is_taken_away_is_seen_to_be_gone(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    root = write(desktop(tmp_path), {f"{group}/cpu.max": "50000 100000", f"{group}/memory.max": GIB})
    clock = ManualClock()
    sampler = HostSampler(clock, root, "linux")
    assert sampler.sample(1.0).cpu_limit_cores == 0.5
    write(root, {f"{group}/cpu.max": "max 100000", f"{group}/memory.max": "max"})
    clock.advance(6.0)
    sample = sampler.sample(2.0)
    assert (sample.cpu_limit_cores, sample.ram_limit_bytes, sample.ram_limited_used_bytes) == (None,) * 3
    assert (sample.cpu_limited_used_cores, sample.cpu_limit_throttled_fraction) == (None, None)


def test_numa_nodes_and_the_cache_of_zfs(tmp_path: Path) -> None:
    node = "sys/devices/system/node/node{}/meminfo"
    root = write(
        desktop(tmp_path),
        {
            node.format(0): "Node 0 MemTotal: 33554432 kB\nNode 0 MemFree:  1048576 kB\n",
            node.format(10): "Node 10 MemTotal: 100 kB\nNode 10 MemFree: 3 kB\n",
            node.format(2): "Node 2 MemTotal: 33554432 kB\nNode 2 MemFree: 2097152 kB\n",
            "proc/spl/kstat/zfs/arcstats": "13 1 0x01 147 39984\nname type data\nsize 4 9663676416\nc 4 5\n",
        },
    )
    _, sample = look(root)
    assert sample.numa_free_bytes == [GIB, 2 * GIB, 3 * 1024]
    assert sample.ram_zfs_cache_bytes == 9 * GIB


def test_in_a_container_of_lxc_more_may_be_available_than_there_is(tmp_path: Path) -> None:
    sizes = meminfo(MemTotal=1000, MemFree=400, MemAvailable=64 << 20)
    _, sample = look(write(desktop(tmp_path), {"proc/meminfo": sizes}))
    assert (sample.ram_total_bytes, sample.ram_used_bytes) == (1000 * 1024, 600 * 1024)


def files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(number=st.integers(0, 200), raw=st.binary(max_size=200), keep=st.integers(0, 60))
def test_whatever_a_file_says_no_figure_is_impossible(
    tmp_path_factory: pytest.TempPathFactory, number: int, raw: bytes, keep: int
) -> None:
    root = desktop(tmp_path_factory.mktemp("host"))
    files = files_below(root)
    clock = ManualClock()
    sampler = HostSampler(clock, root, "linux")
    clock.advance(2.0)
    two_seconds_later(root)
    file = files[number % len(files)]
    file.write_bytes(file.read_bytes()[:keep] + raw)
    for _ in range(2):
        clock.advance(6.0)
        sample = sampler.sample(1.0)
        for name in HostSample.__struct_fields__:
            value = getattr(sample, name)
            if isinstance(value, int | float):
                assert math.isfinite(value), name
                assert value >= 0, name
            if name.endswith("_fraction") and value is not None:
                assert value <= 1, name


def test_what_costs_more_is_looked_at_more_rarely() -> None:
    clock = ManualClock()
    looks: list[float] = []

    def slow() -> int:
        looks.append(clock.now)
        clock.advance(0.25)
        return len(looks)

    seldom = Seldom(slow, 5.0, clock)
    begun = clock.now
    while clock.now < begun + 60.0:
        clock.advance(1.0)
        seldom.now()
    assert [round(moment - looks[0]) for moment in looks] == [0, 25, 50]


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
