"""What is read of one process, before it is a difference to the look before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one process. None: this system, or this process, does not tell it."""

    started: float
    """When it was started, in the unit of the system: tells it from a later one of the same number."""
    name: str
    parent: int | None = None
    cpu_s: float | None = None
    """Since its start, of all its threads, without its children."""
    threads: int | None = None
    rss_bytes: int | None = None
    file_bytes: int | None = None
    anonymous_bytes: int | None = None
    swapped_bytes: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    pss_bytes: int | None = None
    read_refused: bool = False
    """Its reads are shown to its owner alone."""
    pss_refused: bool = False
    pss_too_large: bool = False
    """It was not asked: the kernel would walk page tables for longer than is worth it."""


class ProcessTable(Protocol):
    """The processes of this system. Used from one thread; no method raises."""

    def parents(self, roots: Collection[int]) -> Mapping[int, int]:
        """Process to parent. All there are, or at least the roots with all that descend from them."""
        ...

    def exists(self, pid: int) -> bool:
        """Whether a process is seen from here, by the look of `parents` or anew."""
        ...

    def is_own(self, pid: int) -> bool:
        """Whether a process is agenttop's."""
        ...

    def figures(self, pid: int) -> Figures | None:
        """One look at a process; None when it has gone (a zombie has)."""
        ...

    def forget(self, pids: Collection[int]) -> None:
        """Keep nothing about any other process than these."""
        ...
