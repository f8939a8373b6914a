"""Why NVIDIA clocks are held down: the bit mask in words, and time counters as shares of a window.

Source: NVML reference, `nvmlClocksEventReasons` and `nvmlPerfPolicyType_t`.
"""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.nvidia.nvml import Nvml

REASONS = {
    0x002: "user clocks",
    0x004: "power cap",
    0x008: "hw slowdown",
    0x010: "sync boost",
    0x020: "thermal (sw)",
    0x040: "thermal (hw)",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bit 0x001, idle, is left out: an idle GPU is not held down."""

POWER_FIELDS = (74, 77, 271)
"""Counters in ns: software power cap, board limit, hardware power brake."""
THERMAL_FIELDS = (75, 269, 270)
"""Counters in ns: thermal policy, software and hardware thermal slowdown."""
_POLICIES = {"power": 0, "thermal": 1}


def names(mask: int | None) -> list[str] | None:
    """The reasons in a mask, lowest bit first; an unknown bit is shown as a number."""
    if mask is None:
        return None
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~0x001 & ~sum(REASONS)
    return [*known, f"0x{rest:x}"] if rest else known


class ThrottleTime:
    """The time counters of one GPU, from look to look."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._counters: dict[int | str, float] = {}

    def shares(self, at: float, counters: dict[int | str, float]) -> tuple[float | None, float | None]:
        """(power, thermal) share of the time since the look before; None where no counter tells.

        The reasons of one kind overlap in time, so the largest counts, not their sum.
        """
        window = None if self._at is None else at - self._at
        before, self._at, self._counters = self._counters, at, counters
        if window is None or window <= 0:
            return None, None
        shares: list[float | None] = []
        for keys in ((*POWER_FIELDS, "power"), (*THERMAL_FIELDS, "thermal")):
            steps = [counters[key] - before[key] for key in keys if key in counters and key in before]
            grown = [step for step in steps if step >= 0]
            shares.append(min(1.0, max(grown) / 1e9 / window) if grown else None)
        return shares[0], shares[1]


def violation_times(nvml: Nvml, handle: Any, device: object) -> dict[int | str, float]:
    """The older call for the same counters, for drivers without the fields: ns by `power`, `thermal`."""
    found: dict[int | str, float] = {}
    for name, policy in _POLICIES.items():
        status = nvml.query("DeviceGetViolationStatus", handle, policy, device=(device, name))
        if status is not None:
            found[name] = float(status.violationTime)
    return found
