"""The listening TCP sockets of a Linux host, asked of the kernel directly (`sock_diag`, as `ss` does).

`/proc/net/tcp` lists every connection as well, and to write it the kernel walks through tables of hundreds
of thousands of entries: 12 ms a look. This is 0.3, and needs no rights. Where it is not to be had (other
systems, some sandboxes) the caller reads /proc.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache

import msgspec

_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP = 4, 20, 0x301
_ERROR, _DONE = 2, 3
_LISTEN = 1 << 10
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBxI48x")
_ANSWER = struct.Struct("=BBxx2s2x16s16x4x8x12xII")
"""Family, state, port, address, user, inode; of the rest nothing is wanted."""
_PATIENCE_S = 1.0
_MOST_BYTES = 16_000_000


class Listener(msgspec.Struct, frozen=True):
    """A TCP socket that takes connections."""

    address: str
    port: int
    inode: int
    user: int = 0
    """Number of the user who owns it."""


def listeners() -> list[Listener] | None:
    """All of this network namespace, IPv4 first; None where the kernel cannot be asked."""
    if sys.platform != "linux":
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asking:
            asking.settimeout(_PATIENCE_S)
            return [*_ask(asking, socket.AF_INET), *_ask(asking, socket.AF_INET6)]
    except (OSError, ValueError, struct.error):
        return None


def _ask(asking: socket.socket, family: int) -> list[Listener]:
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _LISTEN)
    size = _HEADER.size + len(question)
    asking.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST_DUMP, family, 0) + question)
    found: list[Listener] = []
    taken = 0
    while taken < _MOST_BYTES:
        data = asking.recv(262_144)
        taken += len(data)
        for kind, body in _messages(data):
            if kind == _DONE:
                return found
            if kind == _ERROR:
                raise OSError("the kernel does not list sockets")
            found.append(_listener(body))
    raise OSError("the list of sockets has no end")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + _HEADER.size <= len(data):
        size, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if size < _HEADER.size:
            raise ValueError("a message that is none")
        yield kind, data[place + _HEADER.size : place + size]
        place += (size + 3) & ~3


def _listener(body: bytes) -> Listener:
    family, _, port, place, user, inode = _ANSWER.unpack_from(body)
    address = _address(place[:4] if family == socket.AF_INET else place)
    return Listener(address, int.from_bytes(port, "big"), inode, user)


@lru_cache(maxsize=1024)
def _address(raw: bytes) -> str:
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
