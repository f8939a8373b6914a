"""The servers that a front has started on this host: its descendants that listen at a port of their own.

A front (Ollama, llama-swap, a llama.cpp router) runs a server per model at a port of its choosing. Which ones
are its own is told by the process tree, never by a port alone: a command line names the port (`--port`), and
that very process must listen there, on loopback or on every address. Where its sockets may not be looked at
(another user's process), a listener of the same user at that port has to do.

Slow (tens of milliseconds): call it in a thread, every 10 s or so. `root` stands in the place of `/` in
tests.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from agenttop.collect import procfs
from agenttop.collect.hints import kind_of
from agenttop.collect.process import Command, ServerProcess

_ROOT = Path("/")
MOST = 64
"""Children of one front; what lies beyond is no front."""


def children_of(pid: int, root: Path = _ROOT) -> tuple[ServerProcess, ...]:
    """The servers among the descendants of a process, in the order of their ports. Never raises."""
    try:
        on_linux = sys.platform == "linux" or root != _ROOT
        return _children_linux(pid, root) if on_linux else _children_psutil(pid)
    except OSError:
        return ()


def port_of(process: ServerProcess) -> int | None:
    """Where a child listens, by its command line."""
    port = process.command.number("--port")
    return port if port is not None and 0 < port < 65536 else None


def _children_linux(pid: int, root: Path) -> tuple[ServerProcess, ...]:
    listeners: dict[int, list[procfs.Listener]] = {}
    for each in procfs.listeners(root):
        if _is_here(each.address):
            listeners.setdefault(each.port, []).append(each)
    found: dict[int, ServerProcess] = {}
    for child in _descendants(pid, root):
        port = port_of(child)
        if port is None or port in found or port not in listeners:
            continue
        if _listens(child.pid, listeners[port], root):
            wanted = _variables(child.command)
            variables = procfs.environment(child.pid, wanted, root) if wanted else {}
            found[port] = msgspec.structs.replace(child, environment=variables)
    return tuple(found[port] for port in sorted(found))[:MOST]


def _listens(pid: int, listeners: Iterable[procfs.Listener], root: Path) -> bool:
    if procfs.may_see_sockets(pid, root):
        held = procfs.sockets_of(pid, root)
        return any(each.inode in held for each in listeners)
    user = procfs.user_of(pid, root)
    return any(each.user == user for each in listeners)


def _descendants(pid: int, root: Path) -> Iterator[ServerProcess]:
    by_parent: dict[int, list[int]] = {}
    commands: dict[int, bytes] = {}
    for each, raw in procfs.processes(root):
        parent = procfs.parent_of(each, root)
        if parent is not None:
            by_parent.setdefault(parent, []).append(each)
            commands[each] = raw
    seen = {pid}
    todo = [pid]
    while todo:
        for each in by_parent.get(todo.pop(), ()):
            if each not in seen:
                seen.add(each)
                todo.append(each)
                yield ServerProcess(pid=each, command=Command(procfs.words_of(commands[each])))


def _children_psutil(pid: int) -> tuple[ServerProcess, ...]:
    """Elsewhere: only this user's processes can be asked for their sockets."""
    import psutil

    found: dict[int, ServerProcess] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for each in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                child = ServerProcess(pid=each.pid, command=Command(each.cmdline()))
                port = port_of(child)
                listens = {
                    connection.laddr.port
                    for connection in each.net_connections(kind="tcp")
                    if connection.status == psutil.CONN_LISTEN and _is_here(connection.laddr.ip)
                }
                if port is not None and port in listens and port not in found:
                    variables = _only(_environment(each), _variables(child.command))
                    found[port] = msgspec.structs.replace(child, environment=variables)
    return tuple(found[port] for port in sorted(found))[:MOST]


def _environment(process: object) -> Mapping[str, str]:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        if isinstance(process, psutil.Process):
            return process.environ()
    return {}


def _is_here(address: str) -> bool:
    """Whether a listener can be reached by the loopback address of this host."""
    return address in ("0.0.0.0", "::") or address.startswith("127.")


def _variables(command: Command) -> frozenset[str]:
    """Those that the child's own kind names."""
    kind = kind_of(command)
    return kind.look.environment if kind is not None else frozenset()


def _only(environment: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in wanted}
