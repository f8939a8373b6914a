"""Trees of /proc and /sys files, as kernels lay them out, for tests of the host."""

from __future__ import annotations

from pathlib import Path

GIB = 2**30


def write(root: Path, files: dict[str, str | int]) -> Path:
    """Files below `root`, with the folders they need."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def stat(*cores: str) -> str:
    """/proc/stat: `user nice system idle iowait irq softirq steal guest guest_nice` of each core."""
    lines = [f"cpu{number} {core}" for number, core in enumerate(cores)]
    return "\n".join(["cpu  1 1 1 1 1 1 1 1 1 1", *lines, "intr 5 0 1", "ctxt 7", ""])


def meminfo(**kilobytes: int) -> str:
    """/proc/meminfo."""
    return "".join(f"{name}: {size:>14} kB\n" for name, size in kilobytes.items())


def diskstats(**disks: tuple[int, int, int]) -> str:
    """/proc/diskstats: sectors read, sectors written, milliseconds at work."""
    return "".join(
        f" 259       0 {name} 10 0 {read} 5 20 0 {written} 6 0 {busy} 11 0 0 0 0 0 0\n"
        for name, (read, written, busy) in disks.items()
    )


def net_dev(**wires: tuple[int, int]) -> str:
    """/proc/net/dev: bytes received, bytes sent."""
    title = "Inter-|   Receive    |  Transmit\n face |bytes    packets\n"
    return title + "".join(
        f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
        for name, (received, sent) in wires.items()
    )


PRESSURE = """some avg10={some:.2f} avg60=1.00 avg300=0.00 total=1
full avg10={full:.2f} avg60=0.00 avg300=0.00 total=0
"""
CPUINFO = """processor\t: {core}
model name\t: AMD Ryzen 9 9950X 16-Core Processor
cpu MHz\t\t: {mhz}
physical id\t: 0
flags\t\t: fpu sse4_2 {flags}

"""


def cpuinfo(*mhz: float, flags: str = "") -> str:
    """/proc/cpuinfo of an x86."""
    return "".join(CPUINFO.format(core=core, mhz=clock, flags=flags) for core, clock in enumerate(mhz))


def desktop(root: Path) -> Path:
    """A desktop with four cores and one of everything, at the start of a window."""
    return write(
        root,
        {
            "proc/stat": stat(*["100 0 100 800 0 0 0 0 0 0"] * 4),
            "proc/cpuinfo": cpuinfo(4000, 4000, 5000, 3000),
            "proc/loadavg": "1.50 0.75 0.25 1/500 1234\n",
            "proc/meminfo": meminfo(
                MemTotal=64 << 20,
                MemFree=8 << 20,
                MemAvailable=48 << 20,
                Buffers=1 << 20,
                Cached=40 << 20,
                AnonPages=10 << 20,
                Mapped=30 << 20,
                Shmem=2 << 20,
                SReclaimable=1 << 20,
                SwapTotal=8 << 20,
                SwapFree=7 << 20,
            ),
            "proc/vmstat": "nr_free_pages 5\npswpin 100\npswpout 200\npgfault 9\npgmajfault 1000\n",
            "proc/pressure/cpu": PRESSURE.format(some=12.5, full=0),
            "proc/pressure/memory": PRESSURE.format(some=50, full=25),
            "proc/pressure/io": PRESSURE.format(some=2, full=1),
            "proc/diskstats": diskstats(
                nvme0n1=(1000, 2000, 10_000), nvme0n1p1=(1000, 2000, 10_000), sda=(0, 0, 500), loop0=(9, 9, 9)
            ),
            "sys/block/nvme0n1/queue/iostats": "1\n",
            "sys/block/sda/queue/iostats": "1\n",
            "sys/block/loop0/queue/iostats": "1\n",
            "proc/net/dev": net_dev(lo=(5, 5), eth0=(1000, 2000), docker0=(1000, 2000)),
            "sys/class/net/eth0/device/vendor": "0x8086",
            "proc/self/status": "Name:\tpython\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n",
            "proc/self/cgroup": "0::/user.slice\n",
            "sys/devices/system/cpu/online": "0-3\n",
            "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "5700000\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "1\n",
            "sys/devices/system/cpu/cpufreq/policy2/cpuinfo_max_freq": "5500000\n",
            "sys/class/hwmon/hwmon0/name": "nvme\n",
            "sys/class/hwmon/hwmon0/temp1_input": "99000\n",
            "sys/class/hwmon/hwmon1/name": "k10temp\n",
            "sys/class/hwmon/hwmon1/temp1_input": "71250\n",
            "sys/class/hwmon/hwmon1/temp1_label": "Tctl\n",
            "sys/class/powercap/intel-rapl:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
            "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "65532610987\n",
            "sys/class/powercap/intel-rapl:0:0/name": "core\n",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": "5\n",
        },
    )


def two_seconds_later(root: Path) -> None:
    """The same host, with counters that have moved on."""
    write(
        root,
        {
            "proc/stat": stat(
                "250 0 100 850 0 0 0 0 50 0",  # 150 of 200 at work, the guest's 50 within
                "100 0 100 900 100 0 0 0 0 0",  # waits for a disk half of the time
                "100 0 100 900 0 0 0 100 0 0",  # half was given to others
                "100 0 100 1000 0 0 0 0 0 0",
            ),
            "proc/vmstat": "pswpin 110\npswpout 200\npgmajfault 1500\n",
            "proc/diskstats": diskstats(
                nvme0n1=(5000, 2000, 11_500),
                nvme0n1p1=(5000, 2000, 11_500),
                sda=(0, 4, 600),
                loop0=(99, 99, 99),
            ),
            "proc/net/dev": net_dev(lo=(500, 500), eth0=(3000, 2600), docker0=(9000, 9000)),
            "sys/class/powercap/intel-rapl:0/energy_uj": "181000000\n",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": "99999999\n",
        },
    )
