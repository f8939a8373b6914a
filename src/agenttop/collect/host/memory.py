"""RAM, swap and page faults, from /proc/meminfo and /proc/vmstat.

Sources: the kernel's filesystems/proc. A memory-mapped model is in `Cached` as long as it is in RAM, and in
`Mapped` as far as a running program has touched it; both count as available. `Shmem` is in `Cached`, but
cannot be dropped. ZFS keeps a cache of its own, which is in none of them.
"""

from __future__ import annotations

import os
import re

import msgspec

from agenttop.collect.host.reasons import Reason
from agenttop.collect.kernel_tables import whole

_LARGEST = 1 << 60
_LONGEST = 24
"""Digits of a counter, and what ends them."""
_EVENTS = (b"pgmajfault", b"pswpin", b"pswpout")
_ARC = re.compile(rb"^size\s+4\s+(\d{1,20})$", re.MULTILINE)
"""A line of a kstat: name, type (4: an unsigned number of 64 bits), value."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes, as they are now."""

    total: int | None = None
    available: int | None = None
    cached: int | None = None
    mapped: int | None = None
    shared: int | None = None
    anonymous: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None

    @property
    def used(self) -> int | None:
        """Total less available."""
        if self.total is None or self.available is None:
            return None
        return max(0, self.total - self.available)

    @property
    def swap_used(self) -> int | None:
        """Of the swap."""
        if self.swap_total is None or self.swap_free is None:
            return None
        return max(0, self.swap_total - self.swap_free)


def parse_meminfo(raw: bytes) -> Memory:
    """Of /proc/meminfo. Where more is available than there is, what is free counts: in a container of LXC
    the total is the container's, the rest may be the host's."""
    found: dict[bytes, int] = {}
    for line in raw.split(b"\n"):
        name, _, rest = line.partition(b":")
        words = rest.split()
        if len(words) == 2 and words[1] == b"kB" and words[0].isdigit() and len(words[0]) <= 18:
            size = int(words[0]) * 1024
            if size < _LARGEST:
                found[name] = size
    total = found.get(b"MemTotal") or None
    available = found.get(b"MemAvailable")
    if total is not None and available is not None and available > total:
        free = found.get(b"MemFree")
        available = free if free is not None and free <= total else None
    return Memory(
        total=total,
        available=available,
        cached=found.get(b"Cached"),
        mapped=found.get(b"Mapped"),
        shared=found.get(b"Shmem"),
        anonymous=found.get(b"AnonPages"),
        swap_total=found.get(b"SwapTotal"),
        swap_free=found.get(b"SwapFree"),
    )


def parse_vmstat(raw: bytes) -> dict[bytes, int]:
    """Pages since the start: `pgmajfault`, `pswpin`, `pswpout`."""
    found: dict[bytes, int] = {}
    for name in _EVENTS:
        _, line, rest = (b"\n" + raw).partition(b"\n" + name + b" ")
        count = rest[:_LONGEST].partition(b"\n")[0]
        if line and count.isdigit():
            found[name] = int(count)
    return found


def zfs_cache(root: str) -> int | None:
    """Bytes that ZFS keeps in its cache (ARC); None without ZFS."""
    match = _ARC.search(whole(f"{root}/proc/spl/kstat/zfs/arcstats") or b"")
    size = int(match[1]) if match else None
    return size if size is not None and size < _LARGEST else None


def available(memory: Memory) -> int | Reason:
    """Bytes available, or why they are not known."""
    if memory.available is not None:
        return memory.available
    if memory.total is None:
        return Reason("/proc/meminfo cannot be read")
    return Reason("the kernel does not tell how much memory is available")
