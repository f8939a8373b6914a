"""What macOS itself tells of its GPU, without privileges.

Source: `sysctl` (`hw.optional.arm64`, `machdep.cpu.brand_string`, `kern.osproductversion`,
`iogpu.wired_limit_mb`); the accelerator's `PerformanceStatistics` in the I/O registry, read with `ioreg`, a
part of macOS; Metal's `recommendedMaxWorkingSetSize`.
"""

from __future__ import annotations

import ctypes
import plistlib
import subprocess
import sys
from typing import Any, Protocol
from xml.parsers.expat import ExpatError

import msgspec

from agenttop.model.text import clean

_LARGEST = 1 << 50
_MOST_BYTES = 8 * 1024 * 1024
_BROKEN = (ValueError, ExpatError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a broken property list raises."""
_IOREG = ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator", "-a")
_WORKING_SET = """
import ctypes
ctypes.CDLL("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics")
metal = ctypes.CDLL("/System/Library/Frameworks/Metal.framework/Metal")
objc = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
objc.sel_registerName.restype = ctypes.c_void_p
objc.sel_registerName.argtypes = [ctypes.c_char_p]
ask = ctypes.cast(objc.objc_msgSend, ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p))
device = metal.MTLCreateSystemDefaultDevice()
print(ask(device, objc.sel_registerName(b"recommendedMaxWorkingSetSize")) if device else 0)
"""
"""Asked in a process of its own: a mistake with a framework ends that one."""


class System(Protocol):
    """What is asked of macOS. No method raises."""

    def number(self, name: str) -> int | None:
        """A number of sysctl."""
        ...

    def text(self, name: str) -> str | None:
        """A text of sysctl."""
        ...

    def registry(self) -> bytes | None:
        """The accelerators of the I/O registry, as a property list. Takes tens of milliseconds."""
        ...

    def working_set(self) -> int | None:
        """Bytes that Metal lets the GPU use well. Takes about a tenth of a second."""
        ...


class MacSystem:
    """The running macOS."""

    def __init__(self) -> None:
        # Not there on other systems: then everything is None.
        self._sysctl: Any = (
            getattr(ctypes.CDLL(None), "sysctlbyname", None) if sys.platform != "win32" else None
        )

    def number(self, name: str) -> int | None:
        """A number of 4 or 8 bytes."""
        raw = self._raw(name)
        return int.from_bytes(raw, sys.byteorder) if raw is not None and len(raw) in (4, 8) else None

    def text(self, name: str) -> str | None:
        """A text, cleaned."""
        raw = self._raw(name)
        return clean(raw.rstrip(b"\0").decode("utf-8", "replace"), 60) or None if raw else None

    def _raw(self, name: str) -> bytes | None:
        if self._sysctl is None:
            return None
        size = ctypes.c_size_t(256)
        buffer = ctypes.create_string_buffer(size.value)
        if self._sysctl(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
            return None
        return buffer.raw[: size.value]

    def registry(self) -> bytes | None:
        """By ioreg."""
        return _output(_IOREG, 5.0)

    def working_set(self) -> int | None:
        """By Metal, in a process of its own."""
        command = (sys.executable, "-c", _WORKING_SET)
        raw = ((_output(command, 10.0) if sys.platform == "darwin" else None) or b"").strip()
        found = int(raw) if raw.isdigit() and len(raw) <= 16 else 0
        return found if 0 < found < _LARGEST else None


def _output(command: tuple[str, ...], timeout_s: float) -> bytes | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) <= _MOST_BYTES else None


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """What the I/O registry says of the GPU."""

    model: str | None = None
    cores: int | None = None
    busy: float | None = None
    """Share of the driver's own, short interval in which the GPU worked."""
    used_bytes: int | None = None
    """Memory that the GPU has in use: of Metal's programs, all of them."""


def accelerator_of(raw: bytes | None) -> Accelerator | None:
    """The first accelerator of a property list that has statistics; None where there is none."""
    if raw is None:
        return None
    try:
        found = plistlib.loads(raw)
    except _BROKEN:
        return None
    for entry in found if isinstance(found, list) else []:
        statistics = entry.get("PerformanceStatistics") if isinstance(entry, dict) else None
        if isinstance(statistics, dict):
            model, cores = entry.get("model"), _whole(entry.get("gpu-core-count"), 1000)
            if isinstance(model, bytes):
                model = model.rstrip(b"\0").decode("utf-8", "replace")
            percent = _whole(statistics.get("Device Utilization %"), 100)
            return Accelerator(
                model=clean(model, 40) or None if isinstance(model, str) else None,
                cores=cores or None,
                busy=None if percent is None else percent / 100,
                used_bytes=_whole(statistics.get("In use system memory"), _LARGEST),
            )
    return None


def _whole(value: Any, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None
