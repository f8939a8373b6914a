"""Which graphics adapters Windows knows, from its registry.

Source: `HKLM\\SOFTWARE\\Microsoft\\DirectX\\{...}` (a record per adapter with its LUID, vendor and sizes of
memory), and the class key of display adapters with `HardwareInformation.qwMemorySize`. Records of adapters
that are gone stay there: their LUID has no counters.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from agenttop.model.text import clean

VENDORS = {0x1002: "amd", 0x8086: "intel", 0x5143: "qualcomm", 0x4D4F4351: "qualcomm"}
"""Vendors whose adapters are told here. NVIDIA's are left to NVML, Microsoft's are drawn by the CPU."""
_DIRECTX = r"SOFTWARE\Microsoft\DirectX"
_CLASS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
_LARGEST = 1 << 50
_MOST_KEYS = 256

Values = dict[str, Any]
"""Values of one registry key, by name."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter."""

    luid: int
    vendor: str
    name: str
    pci_id: str | None = None
    driver: str | None = None
    dedicated_bytes: int | None = None
    """Memory of its own."""
    shared_bytes: int | None = None
    """RAM it may use besides."""


def records(directx: list[Values], classes: list[Values]) -> list[Record]:
    """The adapters of known vendors, by LUID. Pure: from the values of both kinds of keys."""
    found: dict[int, Record] = {}
    for values in directx:
        luid, vendor = _whole(values.get("AdapterLuid")), VENDORS.get(_whole(values.get("VendorId")) or 0)
        if not luid or vendor is None:
            continue
        name = _text(values.get("Description"))
        number, device = _whole(values.get("VendorId")), _whole(values.get("DeviceId"))
        found[luid] = Record(
            luid=luid,
            vendor=vendor,
            name=name or f"{vendor.capitalize()} GPU",
            pci_id=f"{number:04x}:{device:04x}" if number and device and device <= 0xFFFF else None,
            driver=_version(values.get("DriverVersion")),
            dedicated_bytes=_size(values.get("DedicatedVideoMemory")) or _class_size(name, classes),
            shared_bytes=_size(values.get("SharedSystemMemory")),
        )
    return [found[luid] for luid in sorted(found)]


def _class_size(name: str | None, classes: list[Values]) -> int | None:
    """What the driver has written down of an adapter of that name; None where two of them differ."""
    sizes = {
        size
        for values in classes
        if name is not None and _text(values.get("DriverDesc")) == name
        if (size := _size(values.get("HardwareInformation.qwMemorySize"))) is not None
    }
    return sizes.pop() if len(sizes) == 1 else None


def _whole(value: Any) -> int | None:
    """A number: Windows has it as such, or as the bytes of one."""
    if isinstance(value, bytes) and len(value) in (4, 8):
        return int.from_bytes(value, "little")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _size(value: Any) -> int | None:
    size = _whole(value)
    return size if size is not None and 0 < size < _LARGEST else None


def _text(value: Any) -> str | None:
    return clean(value, 60) or None if isinstance(value, str) else None


def _version(value: Any) -> str | None:
    packed = _whole(value)
    if not packed or packed >= 1 << 64:
        return None
    return ".".join(str(packed >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def read() -> list[Record]:
    """The adapters of this Windows; empty elsewhere. Never raises."""
    return records(list(_keys(_DIRECTX)), list(_keys(_CLASS)))


if sys.platform == "win32":
    import winreg

    def _keys(path: str) -> Iterator[Values]:
        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as folder:
            for index in range(_MOST_KEYS):
                name = winreg.EnumKey(folder, index)  # ends with an OSError after the last
                with contextlib.suppress(OSError), winreg.OpenKey(folder, name) as key:
                    yield dict(_values(key))

    def _values(key: winreg.HKEYType) -> Iterator[tuple[str, Any]]:
        with contextlib.suppress(OSError):
            for index in range(_MOST_KEYS):
                name, value, _ = winreg.EnumValue(key, index)
                yield name, value

else:

    def _keys(path: str) -> Iterator[Values]:
        """There is no registry."""
        yield from ()
