"""Power, limits, temperatures and fans of an Intel card, from the files the kernel calls hwmon.

Source: the kernel's `sysfs-driver-intel-i915-hwmon` and `sysfs-driver-intel-xe-hwmon`, and `xe_hwmon.c`.

Rules
- i915 has one set: energy1, power1, temp1. xe numbers by what is measured: 1 the card, 2 the package, 3 its
  memory; cards without a meter for the whole have the package alone.
- Power is the step of the energy counter. Telemetry may bring it up to date more rarely than it is read: a
  counter that stands still is waited for. A failed read of xe gives 0, which no card has used.
- A limit of 0 is one that is switched off. xe writes a line to the kernel's log each time it is asked for
  such a limit, so it is not asked for again.
"""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.kernel_files import celsius, folders, plain, read_text

_LIMIT_S = 30.0
_FAN_S = 5.0
_STALE_S = 5.0
"""A meter that has stood still for longer says nothing of now."""
_MOST_W = 3000.0
_LARGEST = (1 << 63) - 1


class EnergyMeter:
    """Watts from a counter of microjoules."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._counter = 0
        self._power: float | None = None
        self.window: float | None = None
        """Seconds that the newest power is an average over."""

    def power(self, at: float, counter: int | None) -> float | None:
        """Mean power since the counter moved last; None until it has moved twice."""
        if counter is None or counter <= 0:
            self._at, self._power = None, None
            return None
        if self._at is None or counter < self._counter:
            self._at, self._counter, self._power = at, counter, None
            return None
        window = at - self._at
        if counter == self._counter or window <= 0:
            if window > _STALE_S:
                self._power = None
            return self._power
        watts = (counter - self._counter) / 1e6 / window
        self._at, self._counter, self.window = at, counter, window
        self._power = watts if watts <= _MOST_W else None
        return self._power


class Sensors:
    """The hwmon files of one card."""

    def __init__(self, device: str, driver: str) -> None:
        """`device` is the card's folder in /sys."""
        self._folder = _folder(device, driver)
        files = frozenset(folders(self._folder)) if self._folder else frozenset()
        self._energy = next((n for n in "12" if f"energy{n}_input" in files), None)
        self._card = driver == "i915" or self._energy == "1"
        chip, memory = _channels(self._folder, files, driver)
        self._chip = f"{self._folder}/temp{chip}" if chip else None
        self._memory = f"{self._folder}/temp{memory}" if memory else None
        self._fans = [f"{self._folder}/{name}" for name in sorted(files) if _is_fan(name)]
        self._limit_file = self._limit_of(files)
        self._meter = EnergyMeter()
        self._limits: dict[str, Any] = {}
        self._limits_at: float | None = None
        self._disabled = False
        self._fan: int | None = None
        self._fan_at: float | None = None

    def read(self, at: float, reasons: Reasons, integrated: bool) -> dict[str, Any]:
        """Figures of one look."""
        figures = self._power(at)
        figures["temperature_c"] = celsius(f"{self._chip}_input") if self._chip else None
        figures["mem_temperature_c"] = celsius(f"{self._memory}_input") if self._memory else None
        if self._limits_at is None or at - self._limits_at >= _LIMIT_S:
            self._limits_at = at
            self._limits = self._read_limits()
        figures |= self._limits
        if self._fans and (self._fan_at is None or at - self._fan_at >= _FAN_S):
            # The driver gives the mean since the read before, whoever did that: the first one is not ours.
            speeds = [plain(fan, 100_000) for fan in self._fans]
            known = [speed for speed in speeds if speed is not None]
            self._fan = max(known, default=None) if self._fan_at is not None else None
            self._fan_at = at
        figures["fan_rpm"] = self._fan
        self._say(figures, reasons, integrated)
        return figures

    def _power(self, at: float) -> dict[str, Any]:
        if self._energy is None:
            return {}
        counter = plain(f"{self._folder}/energy{self._energy}_input", _LARGEST)
        power = self._meter.power(at, counter)
        return {
            "power_w": power,
            "power_window_s": self._meter.window if power is not None else None,
            "power_scope": "board" if self._card else "chip",
            "energy_j": counter / 1e6 if counter else None,
            "energy_source": "counter" if counter else None,
        }

    def _read_limits(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._limit_file and not self._disabled:
            limit = plain(f"{self._folder}/{self._limit_file}", int(_MOST_W * 1e6))
            self._disabled = limit == 0
            found["power_limit_w"] = limit / 1e6 if limit else None
        rated = plain(f"{self._folder}/power{self._energy or 1}_rated_max", int(_MOST_W * 1e6))
        found["power_limit_default_w"] = rated / 1e6 if rated else None
        if self._chip:
            found["temperature_limit_c"] = celsius(f"{self._chip}_max")
        if self._memory:
            found["mem_temperature_limit_c"] = celsius(f"{self._memory}_max")
        return found

    def _limit_of(self, files: frozenset[str]) -> str | None:
        """The sustained limit of what the energy meter measures: another would not belong to the power."""
        name = f"power{self._energy or 1}_max"
        return name if name in files else None

    def _say(self, figures: dict[str, Any], reasons: Reasons, integrated: bool) -> None:
        if integrated:
            reasons.add(
                "power_w power_limit_w energy_j",
                "graphics inside a CPU have no meter of their own: their power is part of the CPU package's",
            )
            reasons.add("temperature_c", "graphics inside a CPU have the CPU's temperature")
            reasons.add("fan_rpm fan_fraction", "graphics inside a CPU have no fan of their own")
            return
        newer = "update the kernel (i915: 6.12, xe: 6.16)"
        if self._energy is None:
            reasons.add("power_w energy_j", "the kernel has no energy meter of this card", newer)
        if self._chip is None:
            reasons.add("temperature_c", "the kernel does not tell this card's temperature", newer)
        elif figures.get("temperature_limit_c") is None:
            reasons.add("temperature_limit_c", "the kernel does not tell from where the card slows down")
        if self._memory is None:
            reasons.add("mem_temperature_c", "the kernel does not tell the temperature of this card's memory")
        if not self._fans:
            reasons.add("fan_rpm fan_fraction", "the kernel does not tell this card's fan", newer)
        else:
            reasons.add("fan_fraction", "the driver tells revolutions, not how many are the most")
        if self._disabled:
            reasons.add("power_limit_w", "the sustained power limit is switched off")
        elif self._limit_file is None:
            scope = "card" if self._card else "package"
            reasons.add("power_limit_w", f"the kernel does not tell a sustained limit of the {scope}")


def _folder(device: str, driver: str) -> str | None:
    """Where the meters of the whole device are: i915 has others, of single parts, beside it."""
    for name in folders(f"{device}/hwmon"):
        if read_text(f"{device}/hwmon/{name}/name") == driver:
            return f"{device}/hwmon/{name}"
    return None


def _channels(folder: str | None, files: frozenset[str], driver: str) -> tuple[str | None, str | None]:
    """Numbers of the temperatures of (chip, memory): by label, else as the drivers number them."""
    present = [n for n in "123456789" if f"temp{n}_input" in files]
    labels = {read_text(f"{folder}/temp{n}_label"): n for n in present}
    usual = "1" if driver == "i915" else "2"
    chip = labels.get("pkg") or (usual if usual in present else None)
    memory = labels.get("vram") or ("3" if driver == "xe" and "3" in present else None)
    return chip, memory if memory != chip else None


def _is_fan(name: str) -> bool:
    return name.startswith("fan") and name.endswith("_input") and name[3:-6].isdigit()
