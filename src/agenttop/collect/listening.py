"""What listens on this host, and which engine's process it belongs to.

A socket is an engine's when its process holds it. Where the process is another user's, its sockets may not be
looked at: then the port that it names, and the same owner, make it likely, and it is asked.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from agenttop.collect import containers, procfs
from agenttop.collect.engine.kind import EngineKind
from agenttop.collect.hints import Judged, is_own, judge, port_in
from agenttop.collect.process import Command

EVERYWHERE = ("0.0.0.0", "::")
_MOST_STEPS = 64
"""Upwards in the tree of processes."""


class Port(msgspec.Struct, frozen=True):
    """A listening socket."""

    address: str
    port: int
    socket: object
    """Changes when another process takes the port."""
    user: int | None = None


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose command line is an engine's."""

    pid: int
    command: Command
    judged: Judged
    ancestors: tuple[int, ...] = ()
    """Its parent first."""
    user: int | None = None
    sockets: frozenset[object] | None = None
    """Those of the ports that it holds; None when that may not be looked at."""

    @property
    def kind(self) -> EngineKind:
        """What it is."""
        return self.judged.kind

    @property
    def names_port(self) -> bool:
        """Whether its command line says where it listens."""
        return port_in(self.command, self.kind) is not None


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What listens, and who could own it, at one moment."""

    ports: tuple[Port, ...] = ()
    engines: Mapping[int, EngineProcess] = {}
    """By pid."""
    own: frozenset[object] = frozenset()
    """Sockets of agenttop's own processes: a session's door is no engine."""
    forwards: tuple[containers.Published, ...] = ()
    """Named by the command lines of forwarding processes."""
    container_processes: frozenset[int] = frozenset()

    def host_of(self, port: Port) -> str:
        """The address by which a socket is reached from this host, as it stands in a URL."""
        host = port.address
        if host == "0.0.0.0" or (host == "::" and self._takes_ipv4(port)):
            host = "127.0.0.1"
        elif host == "::":
            host = "::1"
        return f"[{host}]" if ":" in host else host

    def _takes_ipv4(self, port: Port) -> bool:
        """Whether IPv4 leads to a socket for every IPv6 address, too; its owner may have ruled that out."""
        for other in self.ports:
            if other.port == port.port and other.address in ("0.0.0.0", "127.0.0.1"):
                return self.owner_of(other) == self.owner_of(port)
        return _connects(port.port, port.socket)

    def owner_of(self, port: Port) -> EngineProcess | None:
        """The engine's process that holds a socket.

        Of several (a server with workers that inherited it) it is the one that was there first: its command
        line still says what the workers' titles hide.
        """
        holders = [each for each in self.engines.values() if port.socket in (each.sockets or ())]
        return min(holders, key=_precedence, default=None)


def _precedence(each: EngineProcess) -> tuple[bool, bool, int, int]:
    return (not each.judged.direct, not each.names_port, len(each.ancestors), each.pid)


OWN = "agenttop"
Said = Judged | tuple[containers.Published, ...] | str | None
"""Whose a command line is: an engine's; a container's, with the ports it forwards; `OWN`; nobody's that
matters."""


class Looker:
    """Looks at processes and sockets; remembers what command lines say as long as they are there."""

    def __init__(self, own: int | None = None) -> None:
        """`own`: the process whose servers are left out; this one."""
        self._own = os.getpid() if own is None else own
        self._known: dict[bytes, Said] = {}

    def look(self) -> Scene:
        """Everything now. Raises OSError."""
        return self._look_linux() if sys.platform == "linux" else look_psutil(self._own)

    def _look_linux(self) -> Scene:
        sockets = procfs.listeners()
        inodes = {each.inode for each in sockets}
        engines: dict[int, EngineProcess] = {}
        forwards: list[containers.Published] = []
        around: set[int] = set()
        known: dict[bytes, Said] = {}
        own = procfs.sockets_of(self._own)
        for pid, raw in procfs.processes():
            said = known[raw] = self._known[raw] if raw in self._known else _said(raw)
            if isinstance(said, Judged):
                if pid != self._own:
                    engines[pid] = _engine_linux(pid, Command(procfs.words_of(raw)), said, inodes)
            elif isinstance(said, tuple):
                around.add(pid)
                forwards += said
            elif said == OWN:
                own |= procfs.sockets_of(pid)
        self._known = known
        return Scene(
            ports=tuple(Port(each.address, each.port, each.inode, each.user) for each in sockets),
            engines=engines,
            own=frozenset(own & inodes),
            forwards=tuple(forwards),
            container_processes=frozenset(around),
        )


def _said(raw: bytes) -> Said:
    command = Command(procfs.words_of(raw))
    judged = judge(command)
    if judged is not None:
        return judged
    if containers.belongs(command):
        return tuple(containers.forwarded(command))
    return OWN if is_own(command) else None


def _engine_linux(pid: int, command: Command, judged: Judged, inodes: set[int]) -> EngineProcess:
    held = procfs.sockets_of(pid)
    hidden = not held and not procfs.may_see_sockets(pid)
    return EngineProcess(
        pid=pid,
        command=command,
        judged=judged,
        ancestors=tuple(_ancestors(pid)),
        user=procfs.user_of(pid) if hidden else None,
        sockets=None if hidden else frozenset(held & inodes),
    )


def _ancestors(pid: int) -> Iterator[int]:
    for _ in range(_MOST_STEPS):
        parent = procfs.parent_of(pid)
        if parent is None or parent < 2:
            return
        yield parent
        pid = parent


def look_psutil(own: int) -> Scene:
    """Where there is no /proc. On macOS only this user's processes can be asked for their sockets."""
    import psutil

    ports: dict[object, Port] = {}
    engines: dict[int, EngineProcess] = {}
    around: set[int] = set()
    ours = {own}
    held = _held_psutil()
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = Command(process.info["cmdline"] or [])
        judged = judge(command)
        if judged is None:
            if containers.belongs(command):
                around.add(process.pid)
            elif is_own(command):
                ours.add(process.pid)
            continue
        if process.pid == own:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            mine = held.get(process.pid)
            if mine is None:
                mine = list(_listening(process.net_connections(kind="tcp"), process.pid))
            ports.update({each.socket: each for each in mine})
            engines[process.pid] = EngineProcess(
                pid=process.pid,
                command=command,
                judged=judged,
                ancestors=tuple(parent.pid for parent in process.parents() if parent.pid > 1),
                sockets=frozenset(each.socket for each in mine),
            )
    for several in held.values():
        ports.update({each.socket: each for each in several})
    return Scene(
        ports=tuple(sorted(ports.values(), key=lambda each: (":" in each.address, each.port))),
        engines=engines,
        own=frozenset(each.socket for pid in ours for each in held.get(pid, ())),
        container_processes=frozenset(around),
    )


def _held_psutil() -> dict[int, list[Port]]:
    """Every listening port by its process, where the system tells all of them; Windows does."""
    import psutil

    found: dict[int, list[Port]] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for each in psutil.net_connections(kind="tcp"):
            pid = each.pid or 0
            found.setdefault(pid, []).extend(_listening([each], pid))
    return found


def _listening(connections: Iterable[object], pid: int) -> Iterator[Port]:
    import psutil

    for each in connections:
        if getattr(each, "status", None) == psutil.CONN_LISTEN:
            address, number = each.laddr.ip, each.laddr.port  # type: ignore[attr-defined]
            yield Port(address, number, (pid, address, number))


@lru_cache(maxsize=256)
def _connects(port: int, sockets: object) -> bool:
    """Whether anybody takes an IPv4 connection at a port; tried once for a socket, and nothing is sent."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether a socket bound to this address can be reached from this host by a loopback address."""
    return address in (*EVERYWHERE, "::1") or address.startswith("127.")
