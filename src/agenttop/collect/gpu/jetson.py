"""Jetson boards before Thor: NVML tells nothing there, the kernel's own files do."""

from __future__ import annotations

from pathlib import Path

from agenttop.collect.gpu.base import GpuKind, GpuOpening, GpuReading
from agenttop.model.clock import Clock


class JetsonAdapter:
    """Jetson boards before Thor: NVML tells nothing there, the kernel's own files do."""

    vendor = "nvidia"

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = root

    def open(self, t: float) -> GpuOpening:
        """Look for the devices."""
        return GpuOpening(found=False)

    def sample(self, t: float) -> GpuReading:
        """One look."""
        return GpuReading()

    def close(self) -> None:
        """Let go of everything."""


KIND = GpuKind(name="jetson", proper="NVIDIA Jetson", adapter=JetsonAdapter, platforms=("linux",), rank=1)
