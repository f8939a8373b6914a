"""Who has a graphics card open: processes that may be looked into, and whether these are all.

Without privileges the kernel lets a process look into those of its own user alone. Looking through all file
descriptors of all processes costs milliseconds, so it is done every few seconds, and of processes that have
long been there without opening a card more rarely still; in between, only the texts of those that were found
are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from agenttop.collect.gpu.intel.engines import Client, parse
from agenttop.collect.gpu.kernel_files import folders, read_bytes, target

_SEARCH_S = 5.0
_SETTLED_S = 30.0
"""A process that has been there for this long is looked through this often."""
_MOST_DESCRIPTORS = 256
"""Descriptors of graphics cards that are followed at most: a process may open any number."""
_MOST_OF_ONE = 4096
"""Descriptors of one process that are looked at."""
_LONGEST = 8192
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The namespace that has all processes of the host in it, as the kernel numbers it."""


class Seen:
    """The clients found at one look."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, Client]] = {}
        """By card, then by client number."""
        self.holders: dict[str, dict[int, int | None]] = {}
        """By card: process to bytes resident there."""


class Clients:
    """The descriptors of graphics cards among all processes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._searched: float | None = None
        self._known: dict[str, _Process] = {}
        self._nodes: frozenset[str] = frozenset()
        self.complete = False
        """Every process of the host could be looked into."""

    def look(self, at: float, nodes: Iterable[str]) -> Seen:
        """Every client of the cards whose device nodes these are (`/dev/dri/renderD128`)."""
        wanted = frozenset(nodes)
        if self._searched is None or at - self._searched >= _SEARCH_S or wanted != self._nodes:
            if wanted != self._nodes:
                self._known.clear()
            self._searched, self._nodes = at, wanted
            self._search(at)
        seen = Seen()
        for pid, path in self._found():
            raw = read_bytes(path, _LONGEST)
            client = parse(raw.decode("utf-8", "replace")) if raw is not None else None
            if client is None or client.number in seen.of.setdefault(client.bus, {}):
                continue
            seen.of[client.bus][client.number] = client
            held = seen.holders.setdefault(client.bus, {})
            local = client.local_bytes
            held[pid] = held.get(pid) if local is None else (held.get(pid) or 0) + local
        return seen

    def _found(self) -> Iterator[tuple[int, str]]:
        """(process, path of a descriptor's text)."""
        proc = f"{self._root}/proc"
        for name, process in self._known.items():
            for descriptor in process.descriptors:
                yield int(name), f"{proc}/{name}/fdinfo/{descriptor}"

    def _search(self, at: float) -> None:
        proc = f"{self._root}/proc"
        pids = [name for name in folders(proc) if name.isdigit()]
        before, self._known = self._known, {}
        left = _MOST_DESCRIPTORS
        for name in pids:
            process = before.get(name) or _Process(at)
            self._known[name] = process
            if process.due(at):
                process.search(at, f"{proc}/{name}", self._nodes)
            process.descriptors = process.descriptors[:left]
            left -= len(process.descriptors)
        # With /proc mounted to hide processes, not even the first one is seen.
        whole = target(f"{proc}/self/ns/pid") == _FIRST_NAMESPACE and "1" in self._known
        self.complete = whole and left > 0 and all(process.open for process in self._known.values())


class _Process:
    """What was found out about one process."""

    __slots__ = ("_first", "_last", "descriptors", "open")

    def __init__(self, at: float) -> None:
        self._first = at
        self._last: float | None = None
        self.descriptors: list[str] = []
        """Of graphics cards."""
        self.open = True
        """It could be looked into, or has nothing to look into."""

    def due(self, at: float) -> bool:
        """Whether to look through it now."""
        settled = at - self._first >= _SETTLED_S and not self.descriptors
        return self._last is None or not settled or at - self._last >= _SETTLED_S

    def search(self, at: float, folder: str, nodes: Collection[str]) -> None:
        """Look through its descriptors."""
        self._last = at
        names = folders(f"{folder}/fd")
        # A kernel thread has neither descriptors nor a command line; one that has a command line, and no
        # descriptor that may be seen, is somebody else's.
        self.open = bool(names) or not read_bytes(f"{folder}/cmdline", 1)
        self.descriptors = [name for name in names[:_MOST_OF_ONE] if target(f"{folder}/fd/{name}") in nodes]


def capabilities(root: str) -> int:
    """The effective capabilities of this process, as the kernel's mask; 0 where they cannot be read."""
    raw = read_bytes(f"{root}/proc/self/status") or b""
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"CapEff":
            try:
                return int(value, 16)
            except ValueError:
                return 0
    return 0
