"""Processes and listening sockets of a Linux host, read from /proc by ourselves.

`psutil.net_connections` takes 145 ms on a host with two thousand sockets; this takes less than one, because
the kernel is asked for the listening ones alone where that is to be had. `root` stands in the place of `/` in
tests.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

from agenttop.collect import sockdiag
from agenttop.collect.sockdiag import Listener as Listener

_ROOT = Path("/")
_LISTENING = re.compile(
    rb"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]+ 0A \S+ \S+ \S+ +(\d+) +\d+ +(\d+)", re.MULTILINE
)
"""Address, port, user and inode of a socket in state LISTEN."""
_LONGEST = 32_768
"""Bytes of a command line that are read: an option beyond them is not seen."""


def listeners(root: Path = _ROOT) -> list[Listener]:
    """All listening TCP sockets of this network namespace, IPv4 first."""
    asked = sockdiag.listeners() if root == _ROOT else None
    return asked if asked is not None else _listed(root)


def _listed(root: Path) -> list[Listener]:
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for address, port, user, inode in _LISTENING.findall((root / "proc/net" / name).read_bytes()):
                with contextlib.suppress(ValueError):
                    found.append(Listener(_address(address), int(port, 16), int(inode), int(user)))
    return found


def processes(root: Path = Path("/")) -> Iterator[tuple[int, bytes]]:
    """(pid, command line as the kernel keeps it) of every process that has one; kernel threads have none.

    The bytes are the same as long as a process does not change its title: what was found out about them can
    be looked up.
    """
    folder = root / "proc"
    for name in os.listdir(folder):  # noqa: PTH208 - a thousand Path objects a look cost more than the rest
        if name.isdigit():
            with contextlib.suppress(OSError):
                raw = _start_of(f"{folder}/{name}/cmdline")
                if raw:
                    yield int(name), raw


def words_of(raw: bytes) -> list[str]:
    """The words of a command line as the kernel keeps it."""
    return raw.rstrip(b"\0").decode("utf-8", "replace").split("\0")


def command_lines(root: Path = Path("/")) -> Iterator[tuple[int, list[str]]]:
    """(pid, argv) of every process that has one."""
    for pid, raw in processes(root):
        yield pid, words_of(raw)


def sockets_of(pid: int, root: Path = Path("/")) -> set[int]:
    """Inodes of the sockets a process holds; empty when it may not be looked at."""
    inodes: set[int] = set()
    folder = f"{root}/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            with contextlib.suppress(OSError, ValueError):
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return inodes


def may_see_sockets(pid: int, root: Path = Path("/")) -> bool:
    """Whether this user may look at what a process holds."""
    return os.access(f"{root}/proc/{pid}/fd", os.R_OK | os.X_OK)


def parent_of(pid: int, root: Path = Path("/")) -> int | None:
    """The process that started this one, or took it over; None when it has gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name of the program stands in brackets and may hold brackets itself.
        return int(_start_of(f"{root}/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    return None


def user_of(pid: int, root: Path = Path("/")) -> int | None:
    """Number of the user a process runs as (the effective one); None when it has gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _start_of(f"{root}/proc/{pid}/status").splitlines():
            if line.startswith(b"Uid:"):
                return int(line.split()[2])
    return None


def environment(pid: int, wanted: Collection[str], root: Path = Path("/")) -> dict[str, str]:
    """The wanted variables of a process and no others: an environment may hold keys."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for entry in (root / "proc" / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            key = name.decode("ascii", "replace")
            if key in wanted:
                found[key] = value.decode("utf-8", "replace")
    return found


def _start_of(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _LONGEST)
    finally:
        os.close(handle)


@lru_cache(maxsize=1024)
def _address(text: bytes) -> str:
    """The kernel prints an address as 32-bit words in the host's byte order (little-endian)."""
    raw = bytes.fromhex(text.decode())
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    address = ipaddress.ip_address(words)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
