"""The processes of a Linux host, read from /proc by ourselves. `root` stands in the place of `/` in tests.

A look costs one read for each process that is new (and for all of them every 10 s), and two or three small
ones for each process that is told. What is shown to a process's owner alone is asked again only now and then.
The proportional size is the costly one: the kernel walks every page table for it, at 18 ms per GiB of
small pages, so it is asked once a minute and only of processes for which that stays unnoticed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from agenttop.collect.engine_processes.figures import Figures
from agenttop.collect.engine_processes.holders import Sight
from agenttop.collect.engine_processes.names import name_of
from agenttop.collect.hints import is_own
from agenttop.collect.process import Command
from agenttop.collect.procfs import words_of

PARENTS_EVERY_S = 10.0
"""All parents are read anew this often; in between those of new processes and of orphans."""
NAME_EVERY_S = 10.0
"""A process may set its title at any time; it mostly does within its first seconds."""
YOUNG_S = 10.0
REFUSED_EVERY_S = 60.0
PSS_EVERY_S = 60.0
PSS_S_PER_BYTE = 18e-3 / 2**30
"""Measured on a server of 2022, of pages of 4 KiB."""
PSS_LONGEST_S = 0.05
_TICKS_S = 1.0 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_SIZES = re.compile(rb"^(VmRSS|RssAnon|RssFile|VmSwap):\s+(\d{1,15}) kB$", re.MULTILINE)
_PSS = re.compile(rb"^Pss:\s+(\d{1,15}) kB$", re.MULTILINE)
_READ = re.compile(rb"^read_bytes: (\d{1,20})$", re.MULTILINE)
_DEVICES = re.compile(r"/dev/(?:nvidia\d|nvidia-uvm|nvidiactl|kfd|dri/|dxg)")
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the first pid namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO)."""
_LONGEST = 8192


class Stat(NamedTuple):
    """What is used of /proc/PID/stat (proc(5))."""

    short: str
    state: str
    parent: int
    major_faults: int
    ticks: int
    threads: int
    started: int


def parse_stat(raw: bytes) -> Stat | None:
    """None for what is no such line. The name stands in brackets and may hold brackets itself."""
    before, _, after = raw.rpartition(b")")
    fields = after.split()
    try:
        return Stat(
            short=before.partition(b"(")[2].decode("utf-8", "replace"),
            state=fields[0].decode("ascii", "replace"),
            parent=int(fields[1]),
            major_faults=max(0, int(fields[9])),
            ticks=max(0, int(fields[11]) + int(fields[12])),
            threads=int(fields[17]),
            started=int(fields[19]),
        )
    except (IndexError, ValueError):
        return None


class _Known:
    """What is kept of a process from look to look."""

    def __init__(self, started: int, now: float) -> None:
        self.started = started
        self.first_at = now
        self.name: str | None = None
        self.named_at = 0.0
        self.read_again_at = 0.0
        self.read_refused = False
        self.pss: int | None = None
        self.pss_at: float | None = None
        self.pss_refused = False
        self.own: bool | None = None
        self.device: bool | None = None
        self.device_at = 0.0


class LinuxProcesses:
    """A `ProcessTable`."""

    def __init__(self, now: Callable[[], float], root: str = "/", own: int | None = None) -> None:
        """`own`: the process that is agenttop's for certain; this one."""
        self._now = now
        self._proc = f"{root.rstrip('/')}/proc"
        self._own = os.getpid() if own is None else own
        self._parents: dict[int, int] = {}
        self._parents_due = 0.0
        self._ours: dict[tuple[int, int], bool] = {}
        self._known: dict[int, _Known] = {}

    def sight(self) -> Sight:
        """How far this process can see. Does not change while it runs."""
        inode = None
        with contextlib.suppress(OSError):
            inode = os.stat(f"{self._proc}/self/ns/pid").st_ino  # noqa: PTH116
        return Sight(
            host_numbers=inode == _INITIAL_PID_NAMESPACE,
            others_hidden=not os.path.isdir(f"{self._proc}/1"),  # noqa: PTH112
        )

    def parents(self, roots: Collection[int]) -> Mapping[int, int]:
        """Of every process that is seen."""
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        except OSError:
            present = set()
        now = self._now()
        known = self._parents
        if now >= self._parents_due:
            known, self._parents_due = {}, now + PARENTS_EVERY_S
        found: dict[int, int] = {}
        for pid in present:
            parent = known.get(pid)
            if parent is None or (parent not in present and parent != 0):
                stat = self._stat(pid)
                parent = stat.parent if stat is not None else None
            if parent is not None:
                found[pid] = parent
        self._parents = found
        return found

    def exists(self, pid: int) -> bool:
        """By the newest look."""
        return pid in self._parents

    def is_own(self, pid: int) -> bool:
        """By its number, or by its command line."""
        if pid == self._own:
            return True
        known = self._known.get(pid)
        if known is not None and known.own is not None:
            return known.own  # should its number have been given anew, `figures` sees it
        stat = self._stat(pid)
        if stat is None:
            return False
        key = (pid, stat.started)
        if key not in self._ours:
            raw = self._read(pid, "cmdline") or b""
            if not raw:
                return False  # it is being started
            self._ours[key] = is_own(Command(words_of(raw)))
        if known is not None and known.started == stat.started:
            known.own = self._ours[key]
        return self._ours[key]

    def figures(self, pid: int) -> Figures | None:
        """Two or three small reads."""
        stat = self._stat(pid)
        if stat is None or stat.state in ("Z", "X"):
            return None
        now = self._now()
        known = self._known.get(pid)
        if known is None or known.started != stat.started:
            known = self._known[pid] = _Known(stat.started, now)
        sizes = self._sizes(pid)
        self._ask_pss(pid, known, sizes.get(b"VmRSS"), now)
        return Figures(
            started=stat.started,
            name=self._name(pid, known, stat.short, now),
            parent=stat.parent,
            cpu_s=stat.ticks * _TICKS_S,
            threads=stat.threads if stat.threads > 0 else None,
            rss_bytes=sizes.get(b"VmRSS"),
            file_bytes=sizes.get(b"RssFile"),
            anonymous_bytes=sizes.get(b"RssAnon"),
            swapped_bytes=sizes.get(b"VmSwap"),
            major_faults=stat.major_faults,
            read_bytes=self._read_bytes(pid, known, now),
            pss_bytes=known.pss,
            read_refused=known.read_refused,
            pss_refused=known.pss_refused,
            pss_too_large=known.pss is None and not known.pss_refused and _is_large(sizes.get(b"VmRSS")),
        )

    def holds_device(self, pid: int) -> bool:
        """Whether a process has a GPU's device open; false where that may not be seen."""
        now = self._now()
        stat = self._stat(pid)
        if stat is None:
            return False
        known = self._known.get(pid)
        if known is None or known.started != stat.started:
            known = self._known[pid] = _Known(stat.started, now)
        if known.device is None or (not known.device and now - known.device_at >= PARENTS_EVERY_S):
            known.device, known.device_at = self._look_for_device(pid), now
        return known.device

    def forget(self, pids: Collection[int]) -> None:
        """Keep nothing about any other process than these."""
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}
        if len(self._ours) > 4 * len(self._parents) + 64:
            self._ours = {key: ours for key, ours in self._ours.items() if key[0] in self._parents}

    def _look_for_device(self, pid: int) -> bool:
        folder = f"{self._proc}/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    if _DEVICES.match(os.readlink(f"{folder}/{name}")):  # noqa: PTH115
                        return True
        return False

    def _name(self, pid: int, known: _Known, short: str, now: float) -> str:
        young = now - known.first_at < YOUNG_S
        if known.name is None or young or now - known.named_at >= NAME_EVERY_S:
            known.name, known.named_at = name_of(self._read(pid, "cmdline") or b"", short), now
        return known.name

    def _sizes(self, pid: int) -> dict[bytes, int]:
        raw = self._read(pid, "status") or b""
        return {field: int(kib) * 1024 for field, kib in _SIZES.findall(raw)}

    def _read_bytes(self, pid: int, known: _Known, now: float) -> int | None:
        if known.read_refused and now < known.read_again_at:
            return None
        try:
            raw = _start_of(f"{self._proc}/{pid}/io")
        except PermissionError:
            known.read_refused, known.read_again_at = True, now + REFUSED_EVERY_S
            return None
        except OSError:
            return None
        known.read_refused = False
        found = _READ.search(raw)
        return int(found[1]) if found else None

    def _ask_pss(self, pid: int, known: _Known, rss: int | None, now: float) -> None:
        if rss is None or (known.pss_at is not None and now - known.pss_at < PSS_EVERY_S):
            return
        known.pss_at, known.pss = now, None
        if _is_large(rss):
            return
        try:
            found = _PSS.search(_start_of(f"{self._proc}/{pid}/smaps_rollup"))
        except PermissionError:
            known.pss_refused = True
            return
        except OSError:
            return
        known.pss_refused = False
        known.pss = int(found[1]) * 1024 if found else None

    def _stat(self, pid: int) -> Stat | None:
        raw = self._read(pid, "stat")
        return parse_stat(raw) if raw else None

    def _read(self, pid: int, name: str) -> bytes | None:
        try:
            return _start_of(f"{self._proc}/{pid}/{name}")
        except OSError:
            return None


def _is_large(rss: int | None) -> bool:
    return rss is not None and rss * PSS_S_PER_BYTE > PSS_LONGEST_S


def _start_of(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _LONGEST)
    finally:
        os.close(handle)
