"""What the NVIDIA driver runs in: it explains what is not told, and why a library does not open. Linux only.

Sources: /proc/version names the kernel that Microsoft builds for WSL; /proc/driver/nvidia/version is there
while the kernel module is loaded, also inside a container; the device tree of a Jetson names its chip.
"""

from __future__ import annotations

import re
from pathlib import Path

from agenttop.collect.gpu.nvidia.part import Device, Surroundings

_OLD_TEGRA = re.compile(r"nvidia,tegra(18|19|21|23)\d")
"""TX2, Xavier, Nano, Orin: their NVML answers with nothing or zeros. From Thor (tegra264) on it works."""
_VGPU = 2
"""`NVML_GPU_VIRTUALIZATION_MODE_VGPU`: a virtual GPU inside a virtual machine."""


def is_old_tegra(root: Path) -> bool:
    """Whether this is a board whose GPU is read from the kernel's files instead."""
    return _OLD_TEGRA.search(_read(root / "proc/device-tree/compatible")) is not None


def is_wsl(root: Path) -> bool:
    """Linux inside Windows."""
    return "microsoft" in _read(root / "proc/version").lower()


def around(device: Device, root: Path, wsl: bool) -> Surroundings:
    """For one device. Raises GpuLostError, DriverGoneError."""
    return Surroundings(root=root, wsl=wsl, guest=device.ask("DeviceGetVirtualizationMode") == _VGPU)


def without_devices(root: Path) -> bool:
    """The kernel module is loaded, but its device files are not here: a container without GPUs passed in."""
    loaded = (root / "proc/driver/nvidia/version").exists()
    return loaded and not (root / "dev/nvidiactl").exists()


def _read(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode(errors="replace")
    except OSError:
        return ""
