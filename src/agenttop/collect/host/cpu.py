"""How busy the cores are, and how fast they run.

Sources: proc_stat(5) and the kernel's admin-guide/pm/cpufreq. `guest` time is part of `user`; `iowait` and
`steal` are no work and stand apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from agenttop.collect.gpu.kernel_files import folders, read_number
from agenttop.collect.host.reasons import Reason
from agenttop.collect.kernel_tables import whole

_MHZ = re.compile(rb"\s*:\s*(\d{1,6}(?:\.\d{1,6})?)\s*\n")
_KINDS_OF_TIME = 9
"""The name, user, nice, system, idle, iowait, irq, softirq, steal; guest is within user."""
_MOST_TICKS = 1 << 64
_VENDOR = re.compile(rb"^vendor_id\s*:\s*([A-Za-z]{1,12})\s*$", re.MULTILINE)
_RANGE = re.compile(rb"(\d{1,5})(?:-(\d{1,5}))?")
_POLICIES = "sys/devices/system/cpu/cpufreq"
_HIGHEST_MHZ = 20_000.0


class Times(NamedTuple):
    """What a core has spent, all since the start, in any unit."""

    all: float
    idle: float
    waiting: float
    stolen: float


class Shares(NamedTuple):
    """Of a window, each 0..1."""

    busy: float
    per_core: list[float]
    waiting: float
    stolen: float


def parse_stat(raw: bytes) -> dict[int, Times]:
    """By core, from /proc/stat; a core that is off is not in it."""
    found: dict[int, Times] = {}
    for line in raw.split(b"\n"):
        if not line.startswith(b"cpu"):
            if found:
                break  # the cores come first
            continue
        words = line.split()
        try:
            core = int(words[0][3:])
            told = [int(word) for word in words[1:_KINDS_OF_TIME]]
        except ValueError:
            continue  # the sum of all, or no such line
        if len(told) < _KINDS_OF_TIME - 1:
            told += [0] * (_KINDS_OF_TIME - 1 - len(told))
        spent = sum(told)
        if 0 <= spent <= _MOST_TICKS:
            found[core] = Times(spent, told[3], told[4], told[7])
    return found


def shares(before: Mapping[int, Times], after: Mapping[int, Times]) -> Shares | None:
    """None when cores came or went in between, or no time has gone by."""
    if before.keys() != after.keys():
        return None
    per_core: list[float] = []
    spent = free = waiting = stolen = 0.0
    for core in sorted(after):
        then, now = before[core], after[core]
        whole_time, idle = now.all - then.all, now.idle - then.idle
        waits, taken = now.waiting - then.waiting, now.stolen - then.stolen
        if idle < 0 or waits < 0 or taken < 0:  # estimates, which may go back a little
            idle, waits, taken = max(0.0, idle), max(0.0, waits), max(0.0, taken)
        per_core.append(_share(whole_time - idle - waits - taken, whole_time))
        spent, free = spent + whole_time, free + idle
        waiting, stolen = waiting + waits, stolen + taken
    if spent <= 0:
        return None
    busy = _share(spent - free - waiting - stolen, spent)
    return Shares(busy, per_core, _share(waiting, spent), _share(stolen, spent))


def _share(part: float, whole_time: float) -> float:
    return min(1.0, max(0.0, part / whole_time)) if whole_time > 0 else 0.0


def vendor(root: str) -> str | None:
    """`GenuineIntel`, `AuthenticAMD`, as an x86 CPU calls its maker; None for others."""
    match = _VENDOR.search(whole(f"{root}/proc/cpuinfo") or b"")
    return match[1].decode("ascii") if match else None


def clock_now(root: str, *, virtual: bool) -> float | Reason:
    """Mean clock of the cores in MHz.

    On x86 /proc/cpuinfo has it for all cores at once; a file per core, `scaling_cur_freq`, costs 10 ms each
    on kernels before 5.18. A virtual machine without a frequency driver is told one number, which never
    changes.
    """
    policies = [name for name in folders(f"{root}/{_POLICIES}") if name.startswith("policy")]
    if virtual and not policies:
        return Reason("a virtual machine does not see the clock of its cores")
    cores = (whole(f"{root}/proc/cpuinfo") or b"").split(b"\ncpu MHz")[1:]
    told = [float(match[1]) for core in cores if (match := _MHZ.match(core))]
    if not told:
        kilohertz = (read_number(f"{root}/{_POLICIES}/{name}/scaling_cur_freq") for name in policies)
        told = [clock / 1000 for clock in kilohertz if clock]
    told = [clock for clock in told if 0 < clock <= _HIGHEST_MHZ]
    return sum(told) / len(told) if told else Reason("the kernel does not tell the clock of the cores")


def clock_highest(root: str) -> float | Reason:
    """MHz that the fastest core may reach."""
    limits = (
        read_number(f"{root}/{_POLICIES}/{name}/cpuinfo_max_freq")
        for name in folders(f"{root}/{_POLICIES}")
        if name.startswith("policy")
    )
    told = [limit / 1000 for limit in limits if limit and 0 < limit / 1000 <= _HIGHEST_MHZ]
    return max(told) if told else Reason("no frequency driver tells how fast the cores may run")


def allowed(root: str) -> int | None:
    """Logical cores this process may run on; None where these are all there are."""
    status = whole(f"{root}/proc/self/status") or b""
    listed = re.search(rb"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    online = cores_of(whole(f"{root}/sys/devices/system/cpu/online") or b"")
    if listed is None or not online:
        return None
    count = len(cores_of(listed[1]) & online)
    return count if 0 < count < len(online) else None


def cores_of(raw: bytes) -> set[int]:
    """The numbers in a list as the kernel writes it, `0-3,8`; empty for anything else."""
    found: set[int] = set()
    for part in raw.strip().split(b","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return set()
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
