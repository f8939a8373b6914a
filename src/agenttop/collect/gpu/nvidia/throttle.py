"""Why NVIDIA clocks are held down: the bit mask in words, and time counters as shares of a window.

Source: NVML reference, `nvmlClocksEventReasons` and `nvmlPerfPolicyType_t`.
"""

from __future__ import annotations

import math

from agenttop.collect.gpu.nvidia.part import Device, FieldId, Fields, Figures, Look, Slowly
from agenttop.model.throttle import largest

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

FIELDS = {
    74: "power cap",
    76: "sync boost",
    77: "board limit",
    79: "reliability",
    269: "thermal (sw)",
    270: "thermal (hw)",
    271: "power brake",
}
"""Counters in ns to the reason they count. Left out: 78, low utilisation, which holds nothing down, and 80
and 81, which are sums of the others. 75 is the older form of 269."""
OLDER_THERMAL = 75
POLICIES = {0: "power cap", 1: "thermal (sw)", 3: "board limit", 5: "reliability"}
"""The same by the older call; sync boost is 2."""

LYING = 1.5
"""A counter that has grown by this many times the time that has passed counts something else."""
LEAST_SPAN_S = 5.0
"""Drivers refresh the counters in steps: over less than this a single step may look like a lie."""


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
        self._counters: dict[str, float] = {}
        self._first: dict[str, tuple[float, float]] = {}
        self.lying: set[str] = set()
        """Reasons whose counter has been found to count something else."""

    def shares(self, at: float, counters: dict[str, float]) -> dict[str, float]:
        """Share of the time since the look before, by reason; empty at the first look and after a pause of
        the clock. A counter that went back (the driver was loaded anew) begins again."""
        window = None if self._at is None else at - self._at
        before, self._at, self._counters = self._counters, at, counters
        shares: dict[str, float] = {}
        for reason, value in counters.items():
            grown = value - before.get(reason, math.inf)
            if grown < 0 and reason in before:
                self._first.pop(reason, None)
            first_at, first = self._first.setdefault(reason, (at, value))
            span = at - first_at
            if span >= LEAST_SPAN_S and (value - first) / 1e9 > LYING * span:
                self.lying.add(reason)
            if window and window > 0 and grown >= 0 and reason not in self.lying:
                shares[reason] = min(1.0, grown / 1e9 / window)
        return shares


def counters(device: Device, fields: Fields) -> dict[str, float]:
    """The time counters in ns, by reason: from fields, else by the older call."""
    found = {reason: fields[field][0] for field, reason in FIELDS.items() if field in fields}
    if OLDER_THERMAL in fields:
        found.setdefault("thermal (sw)", fields[OLDER_THERMAL][0])
    if not found:
        for policy, reason in POLICIES.items():
            status = device.ask("DeviceGetViolationStatus", policy)
            if status is not None:
                found[reason] = float(status.violationTime)
    return found


class Held:
    """What holds the clocks down: now, and for which share of the time."""

    def __init__(self) -> None:
        self._time = ThrottleTime()
        self._supported = Slowly(300.0)
        self._mask_told: int | None = None

    def wanted(self, at: float) -> list[FieldId]:
        """The time counters."""
        return [*FIELDS, OLDER_THERMAL]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        if self._supported.due(look.at):
            self._mask_told = device.ask("DeviceGetSupportedClocksEventReasons")
        reasons = names(_mask(device))
        if self._mask_told == 0 and not reasons:
            reasons = None  # a mask without a bit that could ever be set says nothing
        shares = self._time.shares(look.at, counters(device, look.fields))
        if reasons is None:
            look.reasons.add("throttle", "this GPU does not tell what holds its clocks down")
        if not shares and look.window:
            look.reasons.add("throttle_shares", "this driver has no counters of the time held down")
        for reason in sorted(self._time.lying):
            why = f"the counter of {reason} grows faster than time: it counts something else"
            look.reasons.add("throttle_shares", why)
        return {
            "throttle": reasons,
            "throttle_shares": shares,
            "throttle_power_fraction": largest(shares, "power"),
            "throttle_thermal_fraction": largest(shares, "thermal"),
        }

    def close(self) -> None:
        """Nothing is held."""


def _mask(device: Device) -> int | None:
    for function in ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons"):
        mask = device.ask(function)
        if mask is not None:
            return int(mask)
    return None
