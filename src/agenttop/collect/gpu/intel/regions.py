"""How large a card's memory is and how much of it is used, asked of the driver.

Source: `include/uapi/drm/i915_drm.h` (DRM_I915_QUERY_MEMORY_REGIONS) and `xe_drm.h`
(DRM_XE_DEVICE_QUERY_MEM_REGIONS). Both are questions that change nothing and need no privilege; the driver
tells how much is used only to those who hold CAP_PERFMON, and to others says that all of it is free.

Rules
- The device is opened for the question and closed again: an opening kept would be a client of the card.
- Never asked of a card that sleeps: opening it could wake it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

import msgspec

from agenttop.oslayer import device_request

_I915_QUERY = 0xC010_6479
_XE_DEVICE_QUERY = 0xC028_6440
"""Numbers of the requests: direction, size of the structure, `d`, and the driver's own number."""
_MEMORY_REGIONS = {"i915": 4, "xe": 1}
_HEADER = {"i915": 16, "xe": 8}
_REGION_BYTES = 88
_REGION = {"i915": "<HHIQQ", "xe": "<HHIQQ"}
"""Class, instance, (reserved or page size), bytes in all, and bytes free (i915) or used (xe)."""
_ON_CARD = 1
_MOST_BYTES = 64 * 1024
_LARGEST = 1 << 50


class Memory(msgspec.Struct, frozen=True):
    """The memory on a card."""

    total: int
    """Bytes."""
    used: int
    """Bytes; 0 also for those who may not know."""


Query = Callable[[str, str], bytes | None]
"""From a device node and the driver's name to the driver's list of regions; None where it gives none."""


def ask(node: str, driver: str) -> bytes | None:
    """The driver's own answer. Never raises."""
    try:
        handle = os.open(node, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError):
        return None
    try:
        return _i915(handle) if driver == "i915" else _xe(handle)
    except (OSError, ValueError):
        return None
    finally:
        os.close(handle)


def _i915(handle: int) -> bytes | None:
    item = bytearray(struct.pack("<QiIQ", _MEMORY_REGIONS["i915"], 0, 0, 0))
    query = bytearray(struct.pack("<IIQ", 1, 0, _address(item)))
    device_request(handle, _I915_QUERY, query)
    size = struct.unpack_from("<i", item, 8)[0]
    if not _HEADER["i915"] <= size <= _MOST_BYTES:
        return None
    answer = bytearray(size)
    struct.pack_into("<Q", item, 16, _address(answer))
    device_request(handle, _I915_QUERY, query)
    return bytes(answer) if struct.unpack_from("<i", item, 8)[0] == size else None


def _xe(handle: int) -> bytes | None:
    query = bytearray(struct.pack("<QIIQQQ", 0, _MEMORY_REGIONS["xe"], 0, 0, 0, 0))
    device_request(handle, _XE_DEVICE_QUERY, query)
    size = struct.unpack_from("<I", query, 12)[0]
    if not _HEADER["xe"] <= size <= _MOST_BYTES:
        return None
    answer = bytearray(size)
    struct.pack_into("<Q", query, 16, _address(answer))
    device_request(handle, _XE_DEVICE_QUERY, query)
    return bytes(answer)


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def memory_of(answer: bytes | None, driver: str) -> Memory | None:
    """What the list says of the memory on the card; None where there is none, or it makes no sense."""
    header = _HEADER.get(driver)
    if answer is None or header is None or len(answer) < header:
        return None
    count = struct.unpack_from("<I", answer)[0]
    if count > (len(answer) - header) // _REGION_BYTES:
        return None
    total = used = 0
    for index in range(count):
        kind, _, _, size, left = struct.unpack_from(_REGION[driver], answer, header + index * _REGION_BYTES)
        if kind == _ON_CARD:
            if not 0 < size < _LARGEST or left > size:
                return None
            total += size
            used += size - left if driver == "i915" else left
    return Memory(total, used) if total else None
