"""The processes of macOS and Windows, by psutil. Less is told there: each figure that lacks is None."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Mapping

import psutil

from agenttop.collect.engine_processes.figures import Figures
from agenttop.collect.engine_processes.names import LONGEST, UNNAMED
from agenttop.collect.hints import is_own
from agenttop.collect.process import Command
from agenttop.model.text import clean

TREES_EVERY_S = 10.0
"""To find the children of one process all processes are asked for their parents."""


class PsutilProcesses:
    """A `ProcessTable`."""

    def __init__(self, now: Callable[[], float], own: int | None = None) -> None:
        """`own`: the process that is agenttop's for certain; this one."""
        self._now = now
        self._own = os.getpid() if own is None else own
        self._parents: dict[int, int] = {}
        self._roots: frozenset[int] = frozenset()
        self._due = 0.0
        self._known: dict[int, psutil.Process] = {}
        self._ours: dict[int, bool] = {}

    def parents(self, roots: Collection[int]) -> Mapping[int, int]:
        """The roots and what descends from them, at most 10 s old."""
        now = self._now()
        if now < self._due and self._roots == frozenset(roots):
            return self._parents
        self._due, self._roots, self._ours = now + TREES_EVERY_S, frozenset(roots), {}
        found: dict[int, int] = {}
        for root in roots:
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(root)
                found[root] = process.ppid()
                for each in process.children(recursive=True):
                    with contextlib.suppress(psutil.Error, OSError):
                        found[each.pid] = each.ppid()
        self._parents = found
        return found

    def exists(self, pid: int) -> bool:
        """Asked anew: only the trees of engines are known."""
        return psutil.pid_exists(pid)

    def is_own(self, pid: int) -> bool:
        """By its number, or by its command line."""
        if pid == self._own:
            return True
        if pid not in self._ours:
            self._ours[pid] = False
            with contextlib.suppress(psutil.Error, OSError):
                self._ours[pid] = is_own(Command(psutil.Process(pid).cmdline()))
        return self._ours[pid]

    def figures(self, pid: int) -> Figures | None:
        """One look."""
        try:
            process = self._known.get(pid)
            if process is None or not process.is_running():
                process = self._known[pid] = psutil.Process(pid)
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    return None
                return self._figures(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            self._known.pop(pid, None)
            return None
        except (psutil.Error, OSError):
            return Figures(started=0.0, name=UNNAMED)  # there, and not to be looked at

    def _figures(self, process: psutil.Process) -> Figures:
        times = memory = threads = parent = None
        with contextlib.suppress(psutil.AccessDenied, OSError):
            times = process.cpu_times()
        with contextlib.suppress(psutil.AccessDenied, OSError):
            memory = process.memory_info()
        with contextlib.suppress(psutil.AccessDenied, OSError):
            threads = process.num_threads()
        with contextlib.suppress(psutil.AccessDenied, OSError):
            parent = process.ppid()
        # macOS counts the pages that came from a disk; Windows counts all faults as one.
        faults = getattr(memory, "pageins", None) if sys.platform == "darwin" else None
        return Figures(
            started=process.create_time(),
            name=clean(process.name(), LONGEST) or UNNAMED,
            parent=parent,
            cpu_s=times.user + times.system if times is not None else None,
            threads=threads,
            rss_bytes=memory.rss if memory is not None else None,
            major_faults=faults,
        )

    def forget(self, pids: Collection[int]) -> None:
        """Keep nothing about any other process than these."""
        self._known = {pid: process for pid, process in self._known.items() if pid in pids}
