"""The graphics cards the kernel lists on its PCI bus, without any vendor's library. Linux only.

Source: `/sys/bus/pci/devices/*/{vendor,class,power/runtime_status}`. Reading these files wakes no card.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes: VGA, 3D, other display, processing accelerator (data-centre parts)."""


class Card(msgspec.Struct, frozen=True):
    """One card on the bus."""

    bus_id: str
    """`0000:01:00.0`."""
    vendor: str
    suspended: bool
    """Powered down by the kernel; opening it with a vendor's library would wake it."""


def cards(root: Path = Path("/")) -> list[Card]:
    """Every card of a known vendor, in the order of the bus. `root` is where /sys is found."""
    found: list[Card] = []
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return found
    for device in devices:
        vendor = VENDORS.get(_read(device / "vendor"))
        if vendor is not None and _read(device / "class").startswith(_DISPLAY_CLASSES):
            found.append(Card(device.name, vendor, _read(device / "power/runtime_status") == "suspended"))
    return found


def _read(path: Path) -> str:
    # sysfs may fail with more than OSError: a driver may hand out bytes that are no text.
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
