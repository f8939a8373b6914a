"""Power, its limits, and energy that is believed only as far as the power bears it out.

Sources: NVML reference: field 186 is the power of this instant; `nvmlDeviceGetPowerUsage` an average over a
second on Ampere and later (but GA100), an instant before. One published test found the energy counter of a
board at a sixth of what it drew, so the counter is held against the sum of the power readings.
"""

from __future__ import annotations

import re
from typing import Any

from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.plausible import thousandth

INSTANT_FIELD = 186
ENERGY_FIELD = 83
MOST_W = 5_000
MOST_J = 1e12
SLOW_S = 10.0

AMPERE = 7
"""`nvmlDeviceArchitecture_t`: from here on the power reading is an average."""
GA100 = re.compile(r"\b(A100|A800|A30|PG506)\b")
"""Ampere boards whose reading is an instant all the same."""


class Power:
    """Power at every look, limits now and then."""

    def __init__(self, name: str) -> None:
        """`name` of the GPU: the meaning of the older reading depends on the chip."""
        self._name = name
        self._slowly = Slowly(SLOW_S)
        self._slow: Figures = {}
        self._average: bool | None = None

    def wanted(self, at: float) -> list[FieldId]:
        """The power of this instant."""
        return [INSTANT_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        if self._slowly.due(look.at):
            default = thousandth(device.ask("DeviceGetPowerManagementDefaultLimit"), MOST_W)
            limit = thousandth(device.ask("DeviceGetEnforcedPowerLimit"), MOST_W)
            self._slow = {"power_limit_w": limit or None, "power_limit_default_w": default or None}
            self._average = _is_average(device, self._name)
        instant = thousandth(look.fields.get(INSTANT_FIELD, (None, False))[0], MOST_W)
        power, window = instant, 0.0 if instant is not None else None
        if power is None:
            power = thousandth(device.ask("DeviceGetPowerUsage"), MOST_W)
            window = None if power is None or self._average is None else float(self._average)
        if power is None:
            look.reasons.add("power_w energy_j", "this GPU does not tell its power")
        if self._slow["power_limit_w"] is None:
            look.reasons.add("power_limit_w", "this GPU has no power limit that the driver tells")
        scope = None if power is None else "chip" if device.unified else "board"
        return {"power_w": power, "power_window_s": window, "power_scope": scope, **self._slow}

    def close(self) -> None:
        """Nothing is held."""


def _is_average(device: Device, name: str) -> bool | None:
    architecture: Any = device.ask("DeviceGetArchitecture")
    if architecture is None or not 0 < architecture < 0xFFFFFFFF:
        return None
    return bool(architecture >= AMPERE) and GA100.search(name) is None


CHECK_S, CHECK_J = 30.0, 500.0
"""A stretch is judged once it is this long and that much energy has been used in it."""
AGREES = 0.75, 1.33
"""Counter over sum, within which they agree: readings once a second miss what happens between."""
LONGEST_GAP_S = 5.0
"""Over a longer pause between two looks nothing is known of the power."""
WHY_NOT_BELIEVED = "the energy counter does not agree with the power: energy is the sum of power readings"


class Energy:
    """Joules: the device's counter, or the sum of its power where there is none that can be believed."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._power: float | None = None
        self._begun: tuple[float, float, float] | None = None
        """Of the stretch that is judged: when it began, counter and sum then."""
        self._counter: float | None = None
        self._wrong = 0
        """Stretches in a row in which the two did not agree."""

    @property
    def believed(self) -> bool:
        """Whether the counter is: two stretches in a row speak against it, one may be chance."""
        return self._wrong < 2

    def wanted(self, at: float) -> list[FieldId]:
        """The counter."""
        return [ENERGY_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look; after the power has been read."""
        power = look.so_far.get("power_w")
        if power is not None and self._power is not None and look.window and look.window <= LONGEST_GAP_S:
            self._sum += (self._power + power) / 2 * look.window
        gap = look.window is None or look.window > LONGEST_GAP_S or power is None
        self._power = power
        told = look.fields.get(ENERGY_FIELD)
        value = told[0] if told else device.ask("DeviceGetTotalEnergyConsumption")
        counter = thousandth(value, MOST_J) or None  # one that stands at nothing does not count
        self._judge(look.at, counter, gap)
        self._counter = counter
        if counter is not None and self.believed:
            return {"energy_j": counter, "energy_source": "counter"}
        if power is None:
            return {}
        if counter is not None:
            look.reasons.add("energy_source", WHY_NOT_BELIEVED)
        return {"energy_j": self._sum, "energy_source": "power"}

    def close(self) -> None:
        """Nothing is held."""

    def _judge(self, at: float, counter: float | None, gap: bool) -> None:
        went_back = counter is not None and self._counter is not None and counter < self._counter
        if counter is None or gap or went_back or self._begun is None:
            self._begun = None if counter is None else (at, counter, self._sum)
            return
        begun, counted, summed = self._begun
        used = self._sum - summed
        if at - begun < CHECK_S or used < CHECK_J:
            return
        agrees = AGREES[0] <= (counter - counted) / used <= AGREES[1]
        self._wrong = 0 if agrees and self.believed else self._wrong + (not agrees)
        self._begun = (at, counter, self._sum)
