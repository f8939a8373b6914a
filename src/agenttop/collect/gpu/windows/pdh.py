"""Windows' performance counters: the calls of pdh.dll, and no more.

Source: Microsoft's reference of `pdh.h`. Counters are added by their English names, since the others are
translated; one with a wildcard gives an array of all instances there are at that moment.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from agenttop.collect.gpu.windows.instances import Item

_MORE_DATA = 0x800007D2
_DOUBLE = 0x00000200
_NO_CAP = 0x00008000
"""A value may pass 100: the sum over several engines does."""
_VALID = (0, 1)
"""Of one value: valid, and valid and new."""
_MOST_BYTES = 16 * 1024 * 1024
_TRIES = 3


class Counters(Protocol):
    """Some counters that are collected together. Used from one thread."""

    def read(self) -> list[list[Item]]:
        """Collect now: for each counter, all instances. Raises OSError; a counter that has no value yet (most
        need two collections) has no instances."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class _Value(ctypes.Structure):
    _fields_ = (("status", ctypes.c_uint32), ("double", ctypes.c_double))


class _Instance(ctypes.Structure):
    _fields_ = (("name", ctypes.c_wchar_p), ("value", _Value))


def library() -> Any:
    """pdh.dll. Raises OSError where there is none."""
    if sys.platform == "win32":
        return ctypes.WinDLL("pdh")
    raise OSError("performance counters are a part of Windows")


class Query:
    """A query of pdh.dll."""

    def __init__(self, paths: Sequence[str], pdh: Any) -> None:
        """Raises OSError where a counter is not there."""
        self._pdh = pdh
        self._query = ctypes.c_void_p()
        self._counters: list[ctypes.c_void_p] = []
        _checked(pdh.PdhOpenQueryW(None, ctypes.c_void_p(0), ctypes.byref(self._query)), "PdhOpenQueryW")
        for path in paths:
            counter = ctypes.c_void_p()
            status = pdh.PdhAddEnglishCounterW(self._query, path, ctypes.c_void_p(0), ctypes.byref(counter))
            if status:
                self.close()
            _checked(status, path)
            self._counters.append(counter)

    def read(self) -> list[list[Item]]:
        """Collect now."""
        _checked(self._pdh.PdhCollectQueryData(self._query), "PdhCollectQueryData")
        return [self._instances(counter) for counter in self._counters]

    def close(self) -> None:
        """Close the query, and its counters with it."""
        if self._query.value:
            self._pdh.PdhCloseQuery(self._query)
            self._query = ctypes.c_void_p()

    def _instances(self, counter: ctypes.c_void_p) -> list[Item]:
        size, count = ctypes.c_uint32(0), ctypes.c_uint32(0)
        how = ctypes.c_uint32(_DOUBLE | _NO_CAP)
        buffer: ctypes.Array[ctypes.c_char] | None = None
        for _ in range(_TRIES):
            # Processes come and go between the question how much there is and the one for all of it.
            status = self._pdh.PdhGetFormattedCounterArrayW(
                counter, how, ctypes.byref(size), ctypes.byref(count), buffer
            )
            if status & 0xFFFFFFFF != _MORE_DATA:
                break
            if not 0 < size.value <= _MOST_BYTES:
                return []
            buffer = ctypes.create_string_buffer(size.value)
        if status or buffer is None or count.value * ctypes.sizeof(_Instance) > len(buffer):
            return []
        array = (_Instance * count.value).from_buffer(buffer)
        return [(item.name, item.value.double) for item in array if item.name and item.value.status in _VALID]


def _checked(status: int, what: str) -> None:
    if status:
        raise OSError(f"{what}: 0x{status & 0xFFFFFFFF:08X}")
