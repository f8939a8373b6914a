"""What a part of an NVIDIA GPU's sample looks like: power, heat, PCIe, ... each reads what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.nvidia.nvml import Nvml

FieldId = int | tuple[int, int]
"""A field of `nvmlDeviceGetFieldValues`, or (field, scope): a link, or what a sensor covers."""

Fields = Mapping[FieldId, tuple[float, bool]]
"""Field values of one look: (value, whether it is a 32-bit counter); absent when the driver refused."""

Figures = dict[str, Any]
"""Fields of a GpuSample."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the driver runs in, as far as it explains what it does not tell."""

    root: Path = Path("/")
    """Where /proc and /sys are found."""
    wsl: bool = False
    """Linux inside Windows: the driver is that of Windows behind a window."""
    guest: bool = False
    """A virtual GPU in a virtual machine: most counters belong to the host."""


class Device:
    """One GPU as its parts ask it: a handle, and the one way in which calls go through."""

    def __init__(self, nvml: Nvml, handle: Any, index: int, surroundings: Surroundings | None = None) -> None:
        self.nvml = nvml
        self.handle = handle
        self.index = index
        self.surroundings = surroundings or Surroundings()
        self.unified = False
        """It has no memory of its own but the host's; the memory part finds out."""

    def refused(self, function: str, *arguments: Any) -> int | None:
        """The code with which a call was refused for good; None when it was not."""
        return self.nvml.refusals.get((function, (self.index, arguments)))

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call `nvml<function>` on this GPU: a value, or None. Raises GpuLostError, DriverGoneError."""
        return self.nvml.query(function, self.handle, *arguments, device=(self.index, arguments))

    def ask_each(self, function: str, *arguments: Any) -> Any:
        """The same with arguments that differ from look to look: a refusal holds for all of them."""
        return self.nvml.query(function, self.handle, *arguments, device=(self.index, ()))

    def constant(self, name: str) -> Any:
        """A constant of the library; None in one too old to know it."""
        return self.nvml.constant(name)


class Slowly:
    """Says when something is due that is not asked at every look."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._at: float | None = None

    def due(self, at: float) -> bool:
        """Whether it is, at `at`; then it is not for the next period."""
        if self._at is not None and 0 <= at - self._at < self._period_s:
            return False
        self._at = at
        return True


class Look(msgspec.Struct, frozen=True):
    """One look at one GPU."""

    t: float
    """Session time."""
    at: float
    """Monotonic seconds."""
    window: float | None
    """Seconds since the look before; None at the first."""
    fields: Fields
    """Values of all parts' fields that this look asks for."""
    so_far: Figures
    """What the parts before this one have read in this look."""
    reasons: Reasons
    """Takes why a figure is None. Told at every look, for as long as it holds."""


class Part(Protocol):
    """One group of figures. Made once per device; keeps its counters."""

    def wanted(self, at: float) -> list[FieldId]:
        """The fields this look needs: all parts' fields are asked for in one call."""
        ...

    def read(self, device: Device, look: Look) -> Figures:
        """Figures of this look. What is asked rarely comes from the last time it was asked.

        Raises GpuLostError, DriverGoneError; anything else is a defect.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds (samples, threads)."""
        ...
