"""What sampling the host costs: `python benchmarks/bench_host.py [LOOKS]`.

Of this host, and of a tree of files that looks like a server with 256 logical cores, 8 NUMA nodes, 24 disks
and a container's limits. Looks are a second apart on the sampler's clock, so that what is looked at more
rarely has its share, and as fast as they go on the machine's. The tree stands on a disk: what a kernel takes
to write these files is in the figures of this host alone.

Last figures (2 cores of an EPYC, Python 3.11): this host 0.03 CPU-seconds a minute (0.5 ms a look), the
server 0.09; by psutil, with fewer figures, this host took 0.05.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.collect.host_trees import cpuinfo, desktop, diskstats, stat, write

from agenttop.collect.host import HostSampler
from agenttop.model.clock import ManualClock

LOOKS = 300
BUDGET = 0.15
CORES, NODES, DISKS = 256, 8, 24
FLAGS = " ".join(f"flag{number}" for number in range(150))


def server(root: Path) -> Path:
    """Two sockets of 64 cores with two threads each."""
    disks = {f"nvme{number}n1": (1000, 1000, 10) for number in range(DISKS)}
    files: dict[str, str | int] = {
        "proc/stat": stat(*["123456789 0 12345678 987654321 1234 0 1234 0 0 0"] * CORES),
        "proc/cpuinfo": cpuinfo(*[3000.0] * CORES, flags=FLAGS),
        "proc/diskstats": diskstats(**disks),
        "proc/self/cgroup": "0::/kubepods/pod/box\n",
        "proc/vmstat": "".join(f"nr_something_{n} {n}\n" for n in range(180)) + "pgmajfault 1\npswpin 1\n",
    }
    for name in disks:
        files[f"sys/block/{name}/queue/iostats"] = 1
    for node in range(NODES):
        text = f"Node {node} MemTotal: 1 kB\nNode {node} MemFree: 1 kB\n"
        files[f"sys/devices/system/node/node{node}/meminfo"] = text
    for level in ("kubepods", "kubepods/pod", "kubepods/pod/box"):
        group = f"sys/fs/cgroup/{level}"
        files |= {f"{group}/cpu.max": "800000 100000", f"{group}/memory.max": 1 << 36}
        files |= {f"{group}/memory.current": 1 << 35, f"{group}/memory.stat": "inactive_file 5\n"}
        files[f"{group}/cpu.stat"] = "usage_usec 1\nnr_periods 1\nnr_throttled 1\n"
    return write(desktop(root), files)


def measure(name: str, root: Path, looks: int) -> bool:
    """Whether it keeps to the budget."""
    clock = ManualClock(1000.0)
    sampler = HostSampler(clock, root)
    begun = time.process_time()
    for _ in range(looks):
        clock.advance(1.0)
        sampler.sample(clock.now)
        assert sampler.missing is not None
    spent = (time.process_time() - begun) * 60 / looks
    kept = spent < BUDGET
    verdict = "" if kept else f", over the budget of {BUDGET}"
    print(f"{name}: {spent:.3f} CPU-seconds a minute, {spent / 60 * 1e3:.2f} ms a look{verdict}")
    return kept


def main() -> int:
    """A line for each; 1 when a budget is not kept."""
    looks = int(sys.argv[1]) if len(sys.argv) > 1 else LOOKS
    with tempfile.TemporaryDirectory() as folder:
        kept = [
            measure("this host", Path("/"), looks),
            measure(f"a server with {CORES} cores", server(Path(folder)), looks),
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
