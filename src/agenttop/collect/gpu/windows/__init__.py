"""AMD and Intel GPUs under Windows, by its performance counters."""

from __future__ import annotations

from pathlib import Path

from agenttop.collect.gpu.base import GpuKind, GpuOpening, GpuReading
from agenttop.model.clock import Clock


class WindowsAdapter:
    """AMD and Intel GPUs under Windows, by its performance counters."""

    vendor = "windows"

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


KIND = GpuKind(name="windows", proper="AMD or Intel", adapter=WindowsAdapter, platforms=("win32",), rank=5)
