"""Which Jetson a board is, and where its GPU's files are.

Source: `/proc/device-tree/{compatible,model}`; the GPU driver's `load` beside its device (per mille), whose
place has changed with every release of the system, and the clock's folder in `/sys/class/devfreq`.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.gpu.kernel_files import folders, read_bytes, read_text
from agenttop.model.text import clean

_CHIPS = {"tegra210": "gm20b", "tegra186": "gp10b", "tegra194": "gv11b", "tegra234": "ga10b"}
"""Chip of the board to its GPU: Nano and TX1, TX2, Xavier, Orin. Thor (tegra264) has NVML."""
_NAMES = ("gpu", "gpu.0", "gm20b", "gp10b", "gv11b", "ga10b")
"""What comes after the address in the names of GPU devices: `17000000.gpu`, `57000000.gpu`."""
_PLACES = ("sys/devices", "sys/devices/platform", "sys/devices/platform/bus@0")


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One Jetson."""

    chip: str
    """tegra234, ..."""
    gpu: str
    """ga10b, ..."""
    name: str
    """As the board calls itself."""
    device: str | None
    """The GPU's folder, where its load is."""
    clock: str | None
    """The folder of its clock."""


def board(root: str) -> Board | None:
    """The Jetson this is; None where it is none, or one whose GPU NVML tells of."""
    compatible = (read_bytes(f"{root}/proc/device-tree/compatible") or b"").split(b"\0")
    words = {word.decode("ascii", "replace") for word in compatible}
    chip = next((chip for chip in _CHIPS if f"nvidia,{chip}" in words), None)
    if chip is None:
        return None
    model = (read_text(f"{root}/proc/device-tree/model") or "").rstrip("\0")
    return Board(
        chip=chip,
        gpu=_CHIPS[chip],
        name=clean(model, 60) or f"NVIDIA Jetson ({chip})",
        device=_device(root),
        clock=_clock(root),
    )


def _device(root: str) -> str | None:
    for place in _PLACES:
        for name in folders(f"{root}/{place}"):
            if _is_gpu(name) and "load" in folders(f"{root}/{place}/{name}"):
                return f"{root}/{place}/{name}"
    return None


def _clock(root: str) -> str | None:
    place = f"{root}/sys/class/devfreq"
    return next((f"{place}/{name}" for name in folders(place) if _is_gpu(name)), None)


def _is_gpu(name: str) -> bool:
    return name in _NAMES or name.partition(".")[2] in _NAMES
