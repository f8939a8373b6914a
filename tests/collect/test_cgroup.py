"""Limits of a container, from trees of cgroup files as kernels lay them out."""

from __future__ import annotations

from pathlib import Path

from agenttop.collect.cgroup import Limits, read_limits

GIB = 2**30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_with_the_tightest_limit_on_a_parent(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/machine/box/app\n",
            f"{base}/machine/box/app/memory.max": "max\n",
            f"{base}/machine/box/app/cpu.max": "400000 100000\n",
            f"{base}/machine/box/memory.max": str(8 * GIB),
            f"{base}/machine/box/memory.current": str(5 * GIB),
            f"{base}/machine/box/memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file 7\n",
            f"{base}/machine/box/cpu.max": "150000 100000\n",
            f"{base}/machine/memory.max": str(16 * GIB),
            f"{base}/machine/cpu.max": "max 100000\n",
        },
    )
    assert read_limits(root) == Limits(cpu_cores=1.5, ram_bytes=8 * GIB, ram_used_bytes=3 * GIB)


def test_version_2_inside_a_container(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": str(GIB),
            "sys/fs/cgroup/memory.current": str(GIB // 2),
            "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        },
    )
    assert read_limits(root) == Limits(cpu_cores=0.5, ram_bytes=GIB, ram_used_bytes=GIB // 2)


def test_version_1_where_the_path_of_the_host_does_not_exist_inside(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.stat": f"cache 5\ntotal_inactive_file {GIB // 4}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_limits(root) == Limits(cpu_cores=2.0, ram_bytes=2 * GIB, ram_used_bytes=GIB * 3 // 4)


def test_no_limit_is_none(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/\n1:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
    )
    assert read_limits(root) == Limits()


def test_broken_and_absent_files(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == Limits()
    write(tmp_path, {"proc/self/cgroup": "nonsense\n0::/../x\n:::\n", "sys/fs/cgroup/memory.max": "many\n"})
    write(tmp_path, {"sys/fs/cgroup/cpu.max": "1\n", "sys/fs/cgroup/x/memory.max": "77\n"})
    assert read_limits(tmp_path) == Limits(ram_bytes=77)
