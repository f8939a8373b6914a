"""Limits of a container, from trees of cgroup files as kernels lay them out, and from real groups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.cgroup import CpuUse, Limits, cpu_use, ram_used, read_limits
from agenttop.collect.host.container import Use, used
from tests.collect.host_trees import GIB, write

BASE = "sys/fs/cgroup"


def brief(limits: Limits) -> tuple[float | None, int | None, int | None]:
    return limits.cpu_cores, limits.ram_bytes, limits.swap_bytes


def test_version_2_with_the_tightest_limit_on_a_parent(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/machine/box/app\n",
            f"{BASE}/machine/box/app/memory.max": "max\n",
            f"{BASE}/machine/box/app/cpu.max": "400000 100000\n",
            f"{BASE}/machine/box/app/memory.swap.max": f"{2 * GIB}\n",
            f"{BASE}/machine/box/memory.max": str(8 * GIB),
            f"{BASE}/machine/box/memory.current": str(5 * GIB),
            f"{BASE}/machine/box/memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file 7\n",
            f"{BASE}/machine/box/cpu.max": "150000 100000\n",
            f"{BASE}/machine/box/cpu.stat": "usage_usec 2500000\nnr_periods 100\nnr_throttled 30\n",
            f"{BASE}/machine/memory.max": str(16 * GIB),
            f"{BASE}/machine/memory.swap.max": f"{GIB}\n",
            f"{BASE}/machine/cpu.max": "max 100000\n",
        },
    )
    limits = read_limits(root)
    assert brief(limits) == (1.5, 8 * GIB, GIB)
    assert ram_used(limits) == 3 * GIB
    assert cpu_use(limits) == CpuUse(100, 30, 2.5)


def test_version_2_inside_a_container(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            f"{BASE}/memory.max": str(GIB),
            f"{BASE}/memory.swap.max": "0\n",
            f"{BASE}/memory.current": str(GIB // 2),
            f"{BASE}/memory.stat": "inactive_file 0\n",
            f"{BASE}/cpu.max": "50000 100000\n",
        },
    )
    limits = read_limits(root)
    assert brief(limits) == (0.5, GIB, 0)
    assert ram_used(limits) == GIB // 2
    assert cpu_use(limits) == CpuUse(None, None, None)


def test_version_2_in_a_group_outside_of_the_namespace(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/../../app\n", f"{BASE}/memory.max": str(GIB)})
    assert read_limits(root).ram_bytes == GIB


def test_version_1_where_the_path_of_the_host_does_not_exist_inside(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n",
            f"{BASE}/memory/memory.limit_in_bytes": str(2 * GIB),
            f"{BASE}/memory/memory.memsw.limit_in_bytes": str(3 * GIB),
            f"{BASE}/memory/memory.usage_in_bytes": str(GIB),
            f"{BASE}/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB // 4}\n",
            f"{BASE}/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            f"{BASE}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            f"{BASE}/cpu,cpuacct/cpu.stat": "nr_periods 7\nnr_throttled 3\nthrottled_time 99\n",
            f"{BASE}/cpu,cpuacct/cpuacct.usage": "1500000000\n",
        },
    )
    limits = read_limits(root)
    assert brief(limits) == (2.0, 2 * GIB, GIB)
    assert ram_used(limits) == GIB * 3 // 4
    assert cpu_use(limits) == CpuUse(7, 3, 1.5)


def test_version_1_with_hierarchies_of_their_own(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "2:cpuacct:/a/b\n1:cpu:/a/b\n",
        f"{BASE}/cpu/a/cpu.cfs_quota_us": "50000\n",
        f"{BASE}/cpu/a/cpu.cfs_period_us": "100000\n",
        f"{BASE}/cpu/a/cpu.stat": "nr_periods 1\nnr_throttled 1\n",
        f"{BASE}/cpu/a/b/cpu.cfs_quota_us": "-1\n",
        f"{BASE}/cpu/a/b/cpu.cfs_period_us": "100000\n",
        f"{BASE}/cpuacct/cpuacct.usage": "9000000000\n",
        f"{BASE}/cpuacct/a/cpuacct.usage": "2000000000\n",
        f"{BASE}/cpuacct/a/b/cpuacct.usage": "1000000000\n",
    }
    limits = read_limits(write(tmp_path, files))
    assert limits.cpu_cores == 0.5
    assert cpu_use(limits) == CpuUse(1, 1, 2.0), "of the group with the limit"
    write(tmp_path, {"proc/self/cgroup": "2:cpuacct:/other\n1:cpu:/a/b\n"})
    assert cpu_use(read_limits(tmp_path)) == CpuUse(1, 1, None), "what is counted is another group"


def test_no_limit_is_none(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/\n1:cpu:/\n0::/\n",
            f"{BASE}/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{BASE}/memory/memory.memsw.limit_in_bytes": "9223372036854771712\n",
            f"{BASE}/cpu/cpu.cfs_quota_us": "-1\n",
            f"{BASE}/cpu/cpu.cfs_period_us": "100000\n",
            f"{BASE}/memory.max": "max\n",
            f"{BASE}/memory.swap.max": "max\n",
        },
    )
    assert read_limits(root) == Limits()
    assert (cpu_use(Limits()), ram_used(Limits())) == (None, None)


def test_broken_and_absent_files(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == Limits()
    write(tmp_path, {"proc/self/cgroup": "nonsense\n0::/../x\n:::\n", f"{BASE}/memory.max": "many\n"})
    write(tmp_path, {f"{BASE}/cpu.max": "1\n", f"{BASE}/x/memory.max": "77\n"})
    limits = read_limits(tmp_path)
    assert brief(limits) == (None, 77, None)
    assert ram_used(limits) is None, "how much is used is not told"
    write(tmp_path, {f"{BASE}/x/memory.current": "5\n", f"{BASE}/x/memory.stat": "anon 1\n"})
    assert ram_used(limits) is None, "what of it is cache is not told"


@pytest.mark.parametrize(
    "text", ["0 100000", "-5 100000", "100000 0", "1 2 3", "a b", "max", "", "9" * 30 + " 1"]
)
def test_quotas_that_are_none(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", f"{BASE}/cpu.max": text})
    assert read_limits(root).cpu_cores is None


@given(st.binary(max_size=120))
def test_nonsense_in_every_file(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    root = tmp_path_factory.mktemp("cgroup")
    write(
        root, {"proc/self/cgroup": "0::/\n", f"{BASE}/memory.max": str(GIB), f"{BASE}/cpu.max": "1000 1000"}
    )
    for name in ("memory.current", "memory.stat", "cpu.stat", "memory.swap.max"):
        (root / BASE / name).write_bytes(raw)
    limits = read_limits(root)
    ram_used(limits)
    cpu_use(limits)
    (root / "proc/self/cgroup").write_bytes(b"0::" + raw)
    read_limits(root)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (CpuUse(10, 2, 1.0), CpuUse(30, 7, 4.0), Use(0.25, 1.5)),
        (CpuUse(10, 2, 1.0), CpuUse(10, 2, 1.0), Use(0.0, 0.0)),
        (CpuUse(10, 2, 1.0), CpuUse(3, 0, 0.5), Use(None, None)),
        (CpuUse(None, None, 1.0), CpuUse(None, None, 2.0), Use(None, 0.5)),
        (CpuUse(10, 0, None), CpuUse(12, 3, None), Use(1.0, None)),
        (None, CpuUse(1, 1, 1.0), Use()),
        (CpuUse(1, 1, 1.0), None, Use()),
    ],
)
def test_what_is_used_in_a_window(before: CpuUse | None, after: CpuUse | None, expected: Use) -> None:
    assert used(before, after, 2.0) == expected
    assert used(before, after, 0.0) == Use()


@contextlib.contextmanager
def real_groups() -> Iterator[list[Path]]:
    """Groups of this kernel with a limit of 0.2 cores and 1 GiB, under either version; skipped where none may
    be made."""
    mount, name = Path("/sys/fs/cgroup"), f"agenttop-test-{os.getpid()}"
    one = (mount / "cgroup.controllers").exists()
    groups = [mount / name] if one else [mount / kind / name for kind in ("cpu", "cpuacct", "memory")]
    made: list[Path] = []
    try:
        try:
            for group in groups:
                group.mkdir()
                made.append(group)
            files = {"cpu.max": "20000 100000", "memory.max": GIB} if one else {"cpu.cfs_quota_us": 20000}
            for file, limit in files.items():
                (groups[0] / file).write_text(str(limit))
            if not one:
                (groups[2] / "memory.limit_in_bytes").write_text(str(GIB))
        except OSError as error:
            pytest.skip(f"no group with limits may be made here: {error}")
        yield groups
    finally:
        for group in made:
            group.rmdir()


INSIDE = """
import os, pathlib, sys, time
for group in sys.argv[1:]:
    pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
from agenttop.collect.host import HostSampler
from agenttop.model.clock import SystemClock
sampler = HostSampler(SystemClock())
end = time.monotonic() + 1.0
while time.monotonic() < end:
    pass
sample = sampler.sample(1.0)
print(sample.cpu_limit_cores, sample.cpu_limit_throttled_fraction, sample.cpu_limited_used_cores)
print(sample.ram_limit_bytes, sample.ram_limited_used_bytes, sample.ram_total_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has them")
def test_a_real_group_that_is_stopped_by_its_limit() -> None:
    with real_groups() as groups:
        done = subprocess.run(
            [sys.executable, "-c", INSIDE, *map(str, groups)], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    cpu, ram = (line.split() for line in done.stdout.splitlines())
    cores, throttled, taken = map(float, cpu)
    assert cores == 0.2
    assert throttled > 0.3
    assert 0.05 < taken < 0.5
    limit, held, total = map(int, ram)
    assert limit == GIB
    assert 0 < held < GIB < total
