"""What every GPU vendor's adapter looks like.

A new vendor is one new module or package with a `GpuKind`, and a line in the entry-point group
`agenttop.gpus`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from agenttop.model.clock import Clock
from agenttop.model.frames import GPU_SUBJECT, GpuSample, Missing


class GpuOpening(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter found when it looked for its devices."""

    found: bool
    """There are devices to sample: awake, asleep, or expected back."""
    missing: list[Missing] = []
    """Devices or a driver that are there and cannot be read: why, and what would help. `what` is `gpu`.
    Empty where there is simply no such device."""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at all GPUs of a vendor gave."""

    samples: list[GpuSample] = []
    """One per GPU, and one per MIG instance. A value the device does not give is None."""
    missing: list[Missing] = []
    """Everything that is missing now, with the reason (`Reasons`): the caller sends what changed."""
    holders: dict[str, dict[int, int | None]] = {}
    """By `GpuSample.gpu`: process id (of the host, as drivers tell) to bytes held there; None where the
    driver does not tell how many. Kept from look to look by an adapter that asks more rarely."""


class GpuAdapter(Protocol):
    """The GPUs of one vendor on this host. Used from one thread of its own; no method raises."""

    vendor: str
    """nvidia, amd, intel, apple."""

    def open(self, t: float) -> GpuOpening:
        """Look for the driver and the devices; wakes none that sleeps."""
        ...

    def sample(self, t: float) -> GpuReading:
        """One look, about once a second. What is costly or hardly changes is asked more rarely in here."""
        ...

    def close(self) -> None:
        """Let go of the driver's library."""
        ...


class GpuKind(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor's adapter as it is registered."""

    name: str
    """Unique among kinds."""
    proper: str
    """As it is written: NVIDIA, AMD."""
    adapter: Callable[[Clock, Path], GpuAdapter]
    """From a clock and the folder in which /sys, /proc and /dev are found. Imports no library yet."""
    platforms: tuple[str, ...] = ("linux",)
    """Values of `sys.platform` on which it can find anything."""
    rank: int = 0
    """Lower ones are asked first. A device is listed by one kind only; see to it where two could."""


class Reasons:
    """Collects why values of one GPU are missing, in the form of frames."""

    def __init__(self, gpu: str, t: float) -> None:
        self._gpu = gpu
        self._t = t
        self.frames: list[Missing] = []

    def add(self, fields: str, why: str, fix: str | None = None) -> None:
        """One reason for several fields, separated by blanks."""
        for field in fields.split():
            what = f"{GPU_SUBJECT}{self._gpu}:{field}"
            self.frames.append(Missing(t=self._t, what=what, why=why, fix=fix))
