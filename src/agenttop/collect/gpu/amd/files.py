"""The files of one card: read raw, and why a read failed remembered.

A driver may answer a read with any error number, with bytes that are no number, or with an error that means
that the card is gone. A file that is missing says something else than one that may not be read.
"""

from __future__ import annotations

import contextlib
import errno
import os

from agenttop.collect.gpu.kernel_files import number

_GONE = frozenset({errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN, errno.EIO})
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})
_JUNK = -1
"""In place of an error number: the file was read, and holds no such number."""

_ALL_ONES = frozenset({2**32 - 1, 2**64 - 1})
_ABSENT_S = 30.0
"""A file that is not there is looked for again after this long."""

_WHY = {
    errno.ENOENT: "the driver does not tell it for this chip",
    errno.EBUSY: "the driver is busy with the card (a reset?)",
    _JUNK: "the driver's answer cannot be right",
}


class Files:
    """Files below one folder, by name. Nothing raises; a read that fails is None."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._failed: dict[str, int] = {}
        """By name: the error number of the last read; a read that went well takes it away."""
        self._absent: dict[str, float] = {}
        """By name of a file that is not there: when it is looked for again."""
        self._at = 0.0
        self._reads = self._gone = 0
        """Reads since `begin`, and those among them that said that the device does not answer."""

    def begin(self, at: float) -> None:
        """A new look."""
        self._at = at
        self._reads = self._gone = 0

    def lost(self) -> bool:
        """Every read of this look said that the device does not answer, or its folder is gone."""
        return self._gone == self._reads if self._reads else not os.path.isdir(self.folder)  # noqa: PTH112

    def raw(self, name: str, most: int = 4096) -> bytes | None:
        """What a file holds, in one read."""
        if self._at < self._absent.get(name, self._at):
            return None
        try:
            handle = os.open(f"{self.folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                value = os.read(handle, most)
            finally:
                with contextlib.suppress(OSError):
                    os.close(handle)
        except OSError as error:
            code = error.errno or errno.EIO
        except ValueError:
            code = _JUNK
        else:
            self._reads += 1
            self._failed.pop(name, None)
            self._absent.pop(name, None)
            return value
        if code == errno.ENOENT:
            self._absent[name] = self._at + _ABSENT_S
        else:
            self._reads += 1
            self._gone += code in _GONE
        self._failed[name] = code
        return None

    def text(self, name: str) -> str:
        """The same as text; empty where it cannot be read."""
        return (self.raw(name) or b"").decode("utf-8", "replace").strip()

    def value(self, name: str, largest: int, least: int = 0) -> int | None:
        """A whole number within bounds."""
        raw = self.raw(name)
        if raw is None:
            return None
        found = number(raw)
        if found is None or not least <= found <= largest or found in _ALL_ONES:
            self._failed[name] = _JUNK
            return None
        return found

    def has(self, name: str) -> bool:
        """Whether the last read of it did not find it missing."""
        return self._failed.get(name) != errno.ENOENT

    def failed(self, name: str) -> int | None:
        """Error number of the last read of it, or -1 for what is no number; None where it went well."""
        return self._failed.get(name)

    def why(self, *names: str) -> tuple[str, str | None]:
        """(why none of these could be read, what would help): of the first that is there, if one is."""
        name = next((name for name in names if self.has(name)), names[0])
        code = self._failed.get(name, errno.ENOENT)
        if code in _NO_PERMISSION:
            return f"{name} may not be read", "give this user the right to read it"
        return _WHY.get(code, f"the driver refuses {name} ({os.strerror(code)})"), None
