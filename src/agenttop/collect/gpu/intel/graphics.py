"""Clock of an Intel card, what holds it down, and how long its graphics unit has slept.

Source: `xe_gt_freq.c`, `xe_gt_throttle.c`, `xe_gt_idle.c`, and i915's `intel_gt_sysfs_pm.c`. xe keeps a
folder for each unit of each tile (`tile0/gt0`), and its media unit is none of ours; i915 keeps one for the
graphics unit, and before kernel 5.18 its files stand beside the card itself.

The clock is the one the hardware runs at (`act`), not the one asked for (`cur`); 0 is a unit that sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.kernel_files import folders, number, plain, read_bytes, read_number, read_text
from agenttop.model.text import clean

THROTTLE = {
    "pl1": "power limit (sustained)",
    "pl2": "power limit (burst)",
    "pl4": "power limit (peak)",
    "psys_pl1": "power limit (platform, sustained)",
    "psys_pl2": "power limit (platform, burst)",
    "psys_crit": "power limit (platform, critical)",
    "iccmax": "current (peak)",
    "vr_tdc": "current (regulator)",
    "fastvmode": "current (regulator, fast)",
    "thermal": "thermal",
    "soc_thermal": "thermal (chip)",
    "soc_avg_thermal": "thermal (chip, average)",
    "mem_thermal": "thermal (memory)",
    "vr_thermal": "thermal (regulator)",
    "vr_thermalert": "thermal (regulator)",
    "ratl": "thermal (running average)",
    "prochot": "prochot",
    "p0_freq": "highest state",
}
"""The drivers' names to words of `model.throttle`."""
_MOST_MHZ = 10_000
_LIMITS_S = 10.0


class Unit:
    """One graphics unit: where its files are."""

    def __init__(self, actual: str, hardware_most: str, allowed_most: str, idle: str, throttle: str) -> None:
        """`throttle` is what the files of reasons begin with, folder and all."""
        self.actual = actual
        self.hardware_most = hardware_most
        self.allowed_most = allowed_most
        self.idle = idle
        folder, _, prefix = throttle.rpartition("/")
        names = [name for name in folders(folder) if name.startswith(prefix)]
        self.status = next((f"{folder}/{name}" for name in names if name.endswith("status")), None)
        self.reasons = {
            name.rpartition("reason_")[2]: f"{folder}/{name}"
            for name in names
            if "reason_" in name and not name.endswith("status")
        }

    def held(self) -> list[str] | None:
        """What holds the clock down now; None where the driver does not say."""
        if self.status is None:
            return None
        status = number(read_bytes(self.status))
        if status is None:
            return None
        if status == 0:
            return []
        named = [word_of(name) for name, path in self.reasons.items() if read_number(path) == 1]
        return named or ["not named by the driver"]


def word_of(reason: str) -> str:
    """The driver's name of a reason in words."""
    return THROTTLE.get(reason) or clean(reason.replace("_", " "), 40)


def units(device: str, card: str | None, driver: str) -> list[Unit]:
    """The graphics units of a card. `card` is its folder below `drm`."""
    if driver == "xe":
        return _xe(device)
    if card is None:
        return []
    first = f"{card}/gt/gt0"
    if folders(first):
        return [
            Unit(
                f"{first}/rps_act_freq_mhz",
                f"{first}/rps_RP0_freq_mhz",
                f"{first}/rps_max_freq_mhz",
                f"{first}/rc6_residency_ms",
                f"{first}/throttle_reason_",
            )
        ]
    return [
        Unit(
            f"{card}/gt_act_freq_mhz",
            f"{card}/gt_RP0_freq_mhz",
            f"{card}/gt_max_freq_mhz",
            f"{card}/power/rc6_residency_ms",
            f"{card}/throttle_reason_",
        )
    ]


def _xe(device: str) -> list[Unit]:
    found = []
    for tile in folders(device):
        if tile.startswith("tile") and tile[4:].isdigit():
            for name in folders(f"{device}/{tile}"):
                unit = f"{device}/{tile}/{name}"
                media = (read_text(f"{unit}/gtidle/name") or "").endswith("-mc")
                if name.startswith("gt") and name[2:].isdigit() and not media:
                    clock = f"{unit}/freq0"
                    idle = f"{unit}/gtidle/idle_residency_ms"
                    files = (f"{clock}/act_freq", f"{clock}/rp0_freq", f"{clock}/max_freq", idle)
                    found.append(Unit(*files, f"{clock}/throttle/"))
    return found


class Graphics:
    """The graphics units of one card from look to look."""

    def __init__(self, found: Sequence[Unit]) -> None:
        self._units = found
        self._idle: list[int | None] = []
        self._idle_at: float | None = None
        self._most: tuple[int | None, int | None] = (None, None)
        self._most_at: float | None = None
        self.awake_fraction: float | None = None
        """Share of the time since the look before in which some unit was not asleep: no unit can have worked
        for longer. None where that is not told."""

    def read(self, at: float, reasons: Reasons) -> dict[str, Any]:
        """Figures of one look."""
        clocks = [plain(unit.actual, _MOST_MHZ) for unit in self._units]
        clock = max((value for value in clocks if value is not None), default=None)
        if self._most_at is None or at - self._most_at >= _LIMITS_S:
            self._most_at = at
            self._most = (
                self._largest([unit.hardware_most for unit in self._units]),
                self._largest([unit.allowed_most for unit in self._units]),
            )
        hardware, allowed = self._most
        throttle = self._throttle(clock, hardware, allowed)
        self.awake_fraction = self._awake(at)
        if clock is None:
            reasons.add("sm_clock_mhz", "the driver does not tell the clock")
        if throttle is None:
            why = "the driver does not tell what holds the clock down"
            reasons.add("throttle", why, "update the kernel (i915: 5.19, xe: 6.8)")
        why = "the driver tells what holds the clock down at the moment of a look, and counts no time"
        reasons.add("throttle_power_fraction throttle_thermal_fraction", why)
        return {"sm_clock_mhz": clock, "sm_clock_max_mhz": hardware or allowed, "throttle": throttle}

    def _largest(self, paths: Sequence[str]) -> int | None:
        values = [plain(path, _MOST_MHZ) for path in paths]
        return max((value for value in values if value), default=None)

    def _throttle(self, clock: int | None, hardware: int | None, allowed: int | None) -> list[str] | None:
        told = [unit.held() for unit in self._units]
        if not told or all(reasons is None for reasons in told):
            return None
        if clock == 0:
            return []  # it sleeps: whatever the register says, nothing is held down
        held = list(dict.fromkeys(word for reasons in told if reasons is not None for word in reasons))
        if clock and hardware and allowed and allowed < hardware and clock >= allowed:
            held.append("user clocks")
        return held

    def _awake(self, at: float) -> float | None:
        before, self._idle = self._idle, [plain(unit.idle, 1 << 62) for unit in self._units]
        window = None if self._idle_at is None else at - self._idle_at
        self._idle_at = at
        if window is None or window <= 0 or len(before) != len(self._idle):
            return None
        shares = []
        for then, now in zip(before, self._idle, strict=True):
            if then is None or now is None or now < then:
                return None
            shares.append(max(0.0, 1 - (now - then) / 1000 / window))
        return max(shares, default=None)
