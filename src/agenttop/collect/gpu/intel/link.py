"""The PCIe link of an Intel card.

An Arc card carries a switch of its own: the graphics chip behind it always says generation 1, one lane, and
the link to the host is that of the switch's upstream port, two bridges nearer to the CPU.
Source: the chain of folders in /sys/devices that a device's own link leads to; `current_link_speed` and the
like (`sysfs-bus-pci`).
"""

from __future__ import annotations

import os
import re
from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.kernel_files import plain, read_text

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s to generation."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INTEL = "0x8086"
_WIDEST = 32
_EVERY_S = 10.0


class Link:
    """The link of one card, looked at every few seconds."""

    def __init__(self, folder: str, integrated: bool) -> None:
        """`folder` is the card's own in /sys."""
        self._folder = folder
        self._integrated = integrated
        self._at: float | None = None
        self._port: str | None = None
        self._figures: dict[str, Any] = {}

    def read(self, at: float, reasons: Reasons) -> dict[str, Any]:
        """The link now and at most."""
        why = "this chip has no counter of PCIe bytes that may be read"
        reasons.add("pcie_received_bytes_s pcie_sent_bytes_s", why)
        if self._integrated:
            reasons.add("pcie_generation pcie_width", "graphics inside a CPU have no PCIe link")
            return {}
        if self._at is None or at - self._at >= _EVERY_S:
            self._at = at
            self._port = self._port or port_of(self._folder)
            self._figures = _read(self._port)
        if self._figures.get("pcie_width") is None:
            reasons.add("pcie_generation pcie_width", "the kernel does not tell this card's PCIe link")
        return self._figures


def port_of(folder: str) -> str:
    """The folder of the port whose link is the card's, from the card's own folder."""
    chain = _chain(folder)
    behind_switch = len(chain) >= 4 and _slowest(folder)
    if behind_switch and all(read_text(f"{bridge}/vendor") == _INTEL for bridge in chain[-3:-1]):
        return chain[-3]
    return folder


def _chain(folder: str) -> list[str]:
    """Folders from the port at the CPU down to the device."""
    try:
        real = os.path.realpath(folder)
    except (OSError, ValueError):
        return []
    found: list[str] = []
    while _ADDRESS.fullmatch(os.path.basename(real)):  # noqa: PTH119
        found.append(real)
        real = os.path.dirname(real)  # noqa: PTH120
    return found[::-1]


def _slowest(folder: str) -> bool:
    return _generation(f"{folder}/max_link_speed") == 1 and plain(f"{folder}/max_link_width", _WIDEST) == 1


def _generation(path: str) -> int | None:
    return _GENERATIONS.get((read_text(path) or "").partition(" ")[0])


def _read(folder: str) -> dict[str, Any]:
    return {
        "pcie_generation": _generation(f"{folder}/current_link_speed"),
        "pcie_generation_max": _generation(f"{folder}/max_link_speed"),
        "pcie_width": plain(f"{folder}/current_link_width", _WIDEST) or None,
        "pcie_width_max": plain(f"{folder}/max_link_width", _WIDEST) or None,
    }
