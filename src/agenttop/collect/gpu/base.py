"""What every GPU vendor's adapter looks like. A new vendor is one new file and a line in `detect.py`."""

from __future__ import annotations

from typing import Protocol

from agenttop.model.frames import GpuSample, Missing


class GpuAdapter(Protocol):
    """The GPUs of one vendor on this host. Used from one thread; no method raises."""

    vendor: str
    """nvidia, amd, intel, apple."""

    def open(self, t: float) -> list[Missing]:
        """Look for the driver and the devices. What cannot be read is said here, once, with its fix."""
        ...

    def sample(self, t: float) -> list[GpuSample]:
        """One sample per GPU. A value the device does not give is None; a lost GPU has the state `lost`."""
        ...

    def close(self) -> None:
        """Let go of the driver's library."""
        ...
