"""When an idle GPU of a laptop is left alone, so that the kernel can power it down.

An open library keeps such a GPU awake: 5 to 15 W of a battery, for a monitor. Only cards that the kernel may
power down (`power/control` is `auto`) come to rest, and only when nothing uses them: no kernel ran and
no memory beyond the driver's own was held for a minute. An engine holds memory, so its card never rests.

Source: the kernel's runtime power management, `/sys/bus/pci/devices/*/power/{control,runtime_status}`.
"""

from __future__ import annotations

from pathlib import Path

from agenttop.model.frames import GpuSample

IDLE_S = 60.0
"""Idle for so long, a card is left alone."""
ALONE_S = 30.0
"""A card that has not been powered down within this is used by somebody else: it is read again."""
AGAIN_S = 600.0
"""So long it is not tried again after that."""
UNUSED_BYTES = 64 * 1024**2
"""Memory that a card holds which nobody uses, beyond what the driver says it reserves."""


class Rest:
    """Of one card."""

    def __init__(self, root: Path, bus: str) -> None:
        self._folder = root / "sys/bus/pci/devices" / bus / "power"
        self._idle_since: float | None = None
        self._alone_since: float | None = None
        self._not_before = 0.0
        self.may = _word(self._folder / "control") == "auto"
        """Whether the kernel may power it down."""

    @property
    def suspended(self) -> bool:
        """Powered down now. Reading this wakes nothing."""
        return _word(self._folder / "runtime_status") == "suspended"

    def due(self, at: float, sample: GpuSample) -> bool:
        """Whether it is to be left alone from now on."""
        if not self.may or not _idle(sample):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = at
        if at - self._idle_since < IDLE_S or at < self._not_before:
            return False
        self._alone_since = at
        return True

    def over(self, at: float) -> bool:
        """Whether a card that is left alone is to be read again: it has woken, or never fell asleep."""
        if self.suspended:
            self._alone_since = None
            return False
        if self._alone_since is not None and at - self._alone_since < ALONE_S:
            return False
        if self._alone_since is not None:
            self._not_before = at + AGAIN_S
        self._idle_since = self._alone_since = None
        return True


def _idle(sample: GpuSample) -> bool:
    used = sample.mem_used_bytes
    return sample.state == "ok" and sample.util_fraction == 0 and used is not None and used < UNUSED_BYTES


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
