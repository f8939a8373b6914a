"""Where Ray shows its metrics, and what its pages look like.

Every node of Ray has a metrics port, mostly a random one, with the metrics of all processes of the node. Ray
writes the addresses of all of them into a file for Prometheus. Only those of this host are read, at its
loopback address, and only when the file is from the user that Ray runs as: a file in a folder that everybody
may write to must not lead us to a port where a GET does harm.
"""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from agenttop.collect.engine.http import Reply
from agenttop.collect.process import ServerProcess

TEMPORARY = "RAY_TMPDIR"
"""Variable of Ray's processes."""
_FILE = "prom_metrics_service_discovery.json"
_LARGEST_FILE = 100_000
MOST_PORTS = 16


class _Targets(msgspec.Struct):
    targets: list[str] = []


def is_page(reply: Reply) -> bool:
    """Whether this is a page of metrics with Ray's own."""
    return reply.content_type == "text/plain" and b"\nray_" in b"\n" + reply.body


def ports(process: ServerProcess, root: Path = Path("/")) -> list[int]:
    """Metrics ports of this host, by the file of the Ray that `process` belongs to; empty without one."""
    temporary = process.environment.get(TEMPORARY) or "tmp"
    folder = root / temporary.lstrip("/") / "ray"
    for path in (folder / "session_latest" / _FILE, folder / _FILE):
        found = _read(path, process.pid, root)
        if found:
            return found
    return []


def _read(path: Path, pid: int, root: Path) -> list[int]:
    try:
        if path.stat().st_uid != (root / "proc" / str(pid)).stat().st_uid:
            return []
        with path.open("rb") as file:
            groups = msgspec.json.decode(file.read(_LARGEST_FILE), type=list[_Targets])
    except (OSError, ValueError, msgspec.DecodeError, RecursionError):
        return []
    found: dict[int, None] = {}
    for target in [target for group in groups for target in group.targets]:
        host, _, port = target.rpartition(":")
        if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536 and is_here(host.strip("[]")):
            found[int(port)] = None
    return list(found)[:MOST_PORTS]


def is_here(host: str) -> bool:
    """Whether an address is one of this host: only those can be bound. Names are not looked up."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        packed = socket.inet_pton(family, host)
    except (OSError, ValueError):
        return host == "localhost"
    if not any(packed):
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
