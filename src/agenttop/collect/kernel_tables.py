"""Whole tables of the kernel, such as /proc/diskstats, which come in pieces of a page.

Attributes of sysfs are one read long: `gpu/kernel_files.py` reads those.
"""

from __future__ import annotations

import contextlib
import os

_PIECE = 65_536
_MOST = 4 * 2**20
"""/proc/cpuinfo of a server with 512 logical cores has 0.8 MB."""


def whole(path: str) -> bytes | None:
    """All of a file; None where it cannot be read. An empty one is empty bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError):
        return None
    pieces: list[bytes] = []
    room = _MOST
    try:
        while room > 0 and (piece := os.read(handle, min(_PIECE, room))):
            pieces.append(piece)
            room -= len(piece)
    except (OSError, ValueError):
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
    return b"".join(pieces)
