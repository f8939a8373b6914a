"""Whole disks: bytes moved, and how much of the time they worked.

Sources: the kernel's admin-guide/iostats. A sector of /proc/diskstats is 512 bytes on every disk. Its tenth
figure is the time in which requests were in flight, in milliseconds, in 32 bits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from agenttop.collect.gpu.kernel_files import folders, number, read_number
from agenttop.collect.host.reasons import Reason
from agenttop.collect.kernel_tables import whole
from agenttop.model.text import clean

_REPEATS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|zd|bcache|drbd)\d|nvme\d+c\d+n\d+$")
"""Block devices that repeat what a whole disk counts, or that are no disk. `nvme0c1n1` is one path to
`nvme0n1`."""
_SECTOR = 512
_TICKS_WRAP = 1 << 32


class Disk(NamedTuple):
    """Counters of one disk."""

    read: int
    written: int
    busy_ms: int


class WholeDisks:
    """The disks of this host; partitions, mapper and loop devices would count the same bytes again."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._whole: dict[str, bool] = {}
        self._names: frozenset[str] = frozenset()

    def look(self) -> dict[str, Disk]:
        """Counters of each, by name; empty where there are none, or they are not counted."""
        table = parse_diskstats(whole(f"{self._root}/proc/diskstats") or b"")
        if table.keys() != self._names:
            self._names = frozenset(table)
            self._whole = {name: self._is_whole(name) for name in table}
        return {name: disk for name, disk in table.items() if self._whole[name]}

    def why_none(self) -> Reason:
        """Why no disk is counted."""
        for name in folders(f"{self._root}/sys/block"):
            if not _REPEATS.match(name) and read_number(self._switch(name)) == 0:
                fix = f"echo 1 | sudo tee /sys/block/{clean(name, 40)}/queue/iostats"
                return Reason("this kernel was told not to count what disks do", fix)
        return Reason("no disk is to be seen from here")

    def _is_whole(self, name: str) -> bool:
        file = name.replace("/", "!")  # cciss/c0d0
        if _REPEATS.match(name) or not os.path.isdir(f"{self._root}/sys/block/{file}"):  # noqa: PTH112
            return False
        return read_number(self._switch(file)) != 0  # one that is not counted would say 0 for ever

    def _switch(self, file: str) -> str:
        return f"{self._root}/sys/block/{file}/queue/iostats"


def parse_diskstats(raw: bytes) -> dict[str, Disk]:
    """By name, of every block device that is counted."""
    found: dict[str, Disk] = {}
    for line in raw.split(b"\n"):
        words = line.split()
        if len(words) < 14:
            continue
        read, written, busy = number(words[5]), number(words[9]), number(words[12])
        if read is not None and written is not None and busy is not None:
            name = words[2].decode("utf-8", "replace")
            found[name] = Disk(read * _SECTOR, written * _SECTOR, busy)
    return found


def busiest(
    before: Mapping[str, Disk], after: Mapping[str, Disk], window: float
) -> tuple[float | None, str | None]:
    """(share of the window, name) of the disk that worked most; no name where none did."""
    if window <= 0:
        return None, None
    shares = {
        name: min(1.0, (disk.busy_ms - before[name].busy_ms) % _TICKS_WRAP / 1000 / window)
        for name, disk in after.items()
        if name in before and _has_gone_on(before[name].busy_ms, disk.busy_ms, window)
    }
    if not shares:
        return None, None
    name = max(sorted(shares), key=shares.__getitem__)
    return shares[name], clean(name, 40) if shares[name] > 0 else None


def _has_gone_on(before: int, after: int, window: float) -> bool:
    """Not set back: a step across the wrap is as short as the window."""
    return (after - before) % _TICKS_WRAP <= window * 2000 + 1000
