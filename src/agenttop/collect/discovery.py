"""Engines on this host, found by their processes and their ports.

A process whose command line names an engine is taken at its word. A usual port whose process cannot be seen
is asked once, with the harmless requests of `recognise`; what answers there as no engine is not asked again
until another socket listens. Slow (tens of milliseconds, seconds when a port has to be asked): call it in a
thread, every 10 s or so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

import msgspec

from agenttop.collect import procfs
from agenttop.collect.engine.kind import EngineKind
from agenttop.collect.engine.url import port_of
from agenttop.collect.hints import USUAL_PORTS, kind_of, port_in
from agenttop.collect.process import Command, ServerProcess

_ASK_AGAIN = 6
"""How often a port that gave no verdict (it was loading, or silent) is asked before it is let be."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An engine on this host."""

    url: str
    hint: str
    """What it seems to be, e.g. `llama.cpp`."""
    pid: int | None = None
    everywhere: bool = False
    """It listens on every address of this host, and `url` is only one of its names."""

    def is_at(self, url: str, names: Collection[str]) -> bool:
        """Whether `url` (normalised) leads to this engine; `names` are `names_of_this_host`."""
        if url == self.url:
            return True
        parts = urlsplit(url)
        return self.everywhere and parts.port == port_of(self.url) and (parts.hostname or "") in names


class _Port(msgspec.Struct, frozen=True):
    port: int
    address: str
    socket: object
    """Changes when another process takes the port."""
    pid: int | None = None
    command: Command = Command()


class Finder:
    """Remembers which ports have been asked in vain."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, object], str | None] = {}
        self._asked: dict[tuple[int, object], int] = {}

    def find(self) -> list[Found]:
        """All engines of this host that can be seen now, in the order of their ports."""
        found: dict[int, Found] = {}
        ports = _listening()
        for port, kind in _of_engines(ports):
            found.setdefault(
                port.port,
                Found(
                    url=_url(port),
                    hint=kind.name,
                    pid=port.pid,
                    everywhere=port.address in _EVERYWHERE,
                ),
            )
        engine_pids = {each.pid for each in found.values()}
        for port in ports:
            if port.port in found or port.port not in USUAL_PORTS:
                continue
            if (port.pid is not None and port.pid in engine_pids) or not _is_loopback(port.address):
                continue
            name = self._verdict(port)
            if name is not None:
                everywhere = port.address in _EVERYWHERE
                found[port.port] = Found(url=_url(port), hint=name, pid=port.pid, everywhere=everywhere)
        return [found[port] for port in sorted(found)]

    def _verdict(self, port: _Port) -> str | None:
        key = (port.port, port.socket)
        if key not in self._verdicts:
            sure, name = _ask(_url(port))
            self._asked[key] = self._asked.get(key, 0) + 1
            if not sure and self._asked[key] < _ASK_AGAIN:
                return name
            self._verdicts[key] = name
        return self._verdicts[key]


_finder = Finder()


def find_engines() -> list[Found]:
    """Engines on this host. Never raises."""
    return _finder.find()


def names_of_this_host() -> frozenset[str]:
    """Addresses and names, in lower case, by which this host can be reached from itself. Never raises."""
    import psutil

    names = {"localhost", "127.0.0.1", "::1"}
    with contextlib.suppress(OSError, psutil.Error):
        for addresses in psutil.net_if_addrs().values():
            names |= {address.address.partition("%")[0] for address in addresses}
    with contextlib.suppress(OSError):
        names.add(socket.gethostname())
    return frozenset(name.lower() for name in names)


def process_at(url: str) -> ServerProcess | None:
    """The process that listens at an address of this host; None when it cannot be seen."""
    for every_process in (False, True):
        for port in _listening(every_process):
            if port.port == port_of(url) and port.pid is not None:
                return _process(port.pid, port.command)
    return None


def _ask(url: str) -> tuple[bool, str | None]:
    """(whether the verdict is final, name of the engine or None)."""
    from agenttop.collect.engine.base import UnrecognisedError
    from agenttop.collect.engine.http import EngineError
    from agenttop.collect.engine.recognise import recognise

    async def ask() -> str:
        adapter = await recognise(url)
        await adapter.client.close()
        return adapter.name

    try:
        return True, asyncio.run(ask())
    except UnrecognisedError as verdict:
        if verdict.state in ("loading", "unauthorised"):
            return True, verdict.name if verdict.name != "unknown" else None
        return verdict.state == "unsupported", None
    except EngineError:
        return False, None
    except Exception:  # noqa: BLE001 - one odd port must not end the search; it is no engine
        return True, None


def _of_engines(ports: list[_Port]) -> Iterator[tuple[_Port, EngineKind]]:
    """The ports at which engines serve. Others an engine holds, for its own workers, are left alone."""
    by_pid: dict[int, list[_Port]] = {}
    for port in ports:
        if port.pid is not None:
            by_pid.setdefault(port.pid, []).append(port)
    for owned in by_pid.values():
        kind = kind_of(owned[0].command)
        if kind is None:
            continue
        named = port_in(owned[0].command, kind)
        wanted = (named,) if named is not None else kind.look.ports
        serving = [port for port in owned if port.port in wanted]
        if not serving and len({port.port for port in owned}) == 1:
            serving = owned[:1]
        yield from ((port, kind) for port in serving)


def _listening(every_process: bool = False) -> list[_Port]:
    """Listening ports, with their process where it is an engine's, or, `every_process`, any that is seen."""
    try:
        return (
            _listening_linux(every_process) if sys.platform == "linux" else _listening_psutil(every_process)
        )
    except OSError:
        return []


def _listening_linux(every_process: bool) -> list[_Port]:
    sockets = procfs.listeners()
    inodes = {each.inode for each in sockets}
    owners: dict[int, tuple[int, Command]] = {}
    for pid, argv in procfs.command_lines():
        command = Command(argv)
        if pid != os.getpid() and (every_process or kind_of(command) is not None):
            for inode in procfs.sockets_of(pid) & inodes:
                # A child that inherited the socket does not displace the engine.
                if inode not in owners or kind_of(owners[inode][1]) is None:
                    owners[inode] = (pid, command)
    ports: list[_Port] = []
    for each in sockets:
        port = _Port(each.port, each.address, each.inode, *owners.get(each.inode, ()))
        ports.append(port)
    return ports


def _listening_psutil(every_process: bool) -> list[_Port]:
    """Elsewhere: only this user's processes can be asked for their sockets."""
    import psutil

    ports: list[_Port] = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = Command(process.info["cmdline"] or [])
        if process.pid == os.getpid() or not (every_process or kind_of(command) is not None):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    address, number = connection.laddr.ip, connection.laddr.port
                    ports.append(_Port(number, address, process.pid, process.pid, command))
    return ports


def _process(pid: int, command: Command) -> ServerProcess:
    kind = kind_of(command)
    wanted = kind.look.environment if kind is not None else frozenset()
    variables = procfs.environment(pid, wanted) if sys.platform == "linux" else {}
    return ServerProcess(pid=pid, command=command, environment=variables)


_EVERYWHERE = ("0.0.0.0", "::")


def _is_loopback(address: str) -> bool:
    return address in (*_EVERYWHERE, "::1") or address.startswith("127.")


def _url(port: _Port) -> str:
    if port.address in _EVERYWHERE or port.address.startswith("127."):
        return f"http://127.0.0.1:{port.port}"
    host = f"[{port.address}]" if ":" in port.address else port.address
    return f"http://{host}:{port.port}"
