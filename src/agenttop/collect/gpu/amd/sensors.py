"""The driver's hwmon folder: temperatures with their limits, power, clocks, fan.

Source: the kernel's `Documentation/gpu/amdgpu/thermal.rst`. Millidegrees, microwatts, hertz.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.gpu.amd.files import Files
from agenttop.collect.gpu.kernel_files import folders

_LABELS = ("edge", "junction", "mem")
_MOST_W = 5000
_SLOW_S = 30.0
_MEDIUM_S = 5.0


class Limits(msgspec.Struct):
    """What hardly changes; read every half a minute."""

    crit_c: dict[str, float] = {}
    """By sensor: from here the device lowers its clocks."""
    default_w: float | None = None


class Rare(msgspec.Struct):
    """What changes slowly; read every few seconds."""

    cap_w: float | None = None
    fan_rpm: int | None = None
    fan_fraction: float | None = None


class Sensors:
    """One card's sensors."""

    def __init__(self, card: Files) -> None:
        self._card = card
        self._folder = ""
        self._labels: dict[str, str] = {}
        self._limits_due = self._rare_due = 0.0
        self.limits, self.rare = Limits(), Rare()
        self.find()

    def find(self) -> None:
        """Look for the folder: it has another number after the driver was loaded again."""
        self._folder = ""
        for name in folders(f"{self._card.folder}/hwmon"):
            if name.startswith("hwmon"):
                self._folder = f"hwmon/{name}/"
                break
        self._labels = {}
        for index, usual in enumerate(_LABELS, 1):
            if self._folder:
                label = self._card.text(f"{self._folder}temp{index}_label")
                label = label or ("edge" if index == 1 else "")
                if label in _LABELS:
                    self._labels[label] = f"temp{index}"
                elif usual == "edge":
                    self._labels[usual] = "temp1"
        self._limits_due = self._rare_due = 0.0

    @property
    def there(self) -> bool:
        """The driver has such a folder."""
        return bool(self._folder)

    @property
    def has_fan(self) -> bool:
        """The driver tells a fan: it never does for an APU."""
        return self.there and self._card.has(f"{self._folder}fan1_input")

    @property
    def has_north_bridge(self) -> bool:
        """It tells the voltage of a north bridge, which only an APU has."""
        return self.there and self._card.text(f"{self._folder}in1_label") == "vddnb"

    def celsius(self, sensor: str) -> float | None:
        """edge, junction, mem; 0 is what a sensor says that is not there."""
        if (name := self._labels.get(sensor)) is None:
            return None
        return self._degrees(f"{name}_input")

    def power(self) -> tuple[float | None, bool]:
        """(watts, whether it is of this instant): the average first, which is what the limit is held to."""
        if not self.there:
            return None, False
        average = self._watts("power1_average")
        if average is not None:
            return average, False
        return self._watts("power1_input"), True

    def energy_j(self) -> float | None:
        """The driver's own counter, where there is one."""
        micro = self._card.value(f"{self._folder}energy1_input", 1 << 63) if self.there else None
        return micro / 1e6 if micro else None

    def clock_mhz(self, index: int) -> int | None:
        """1: of the shaders, 2: of the memory."""
        hertz = self._card.value(f"{self._folder}freq{index}_input", 20_000_000_000) if self.there else None
        return None if hertz is None else round(hertz / 1e6)

    def slowly(self, at: float) -> None:
        """Read what changes slowly, where it is due."""
        if not self.there:
            return
        if at >= self._limits_due:
            self._limits_due = at + _SLOW_S
            found = {label: self._degrees(f"{name}_crit") for label, name in self._labels.items()}
            self.limits = Limits(
                crit_c={label: limit for label, limit in found.items() if limit is not None and limit >= 40},
                default_w=self._watts("power1_cap_default") or None,
            )
        if at >= self._rare_due:
            self._rare_due = at + _MEDIUM_S
            pwm = self._card.value(f"{self._folder}pwm1", 255)
            self.rare = Rare(
                cap_w=self._watts("power1_cap") or None,
                fan_rpm=self._card.value(f"{self._folder}fan1_input", 30_000),
                fan_fraction=None if pwm is None else pwm / 255,
            )

    def why(self, *names: str) -> tuple[str, str | None]:
        """Why these files tell nothing."""
        if not self.there:
            return "the driver shows no sensors of this card (hwmon)", None
        why, fix = self._card.why(*(f"{self._folder}{name}" for name in names))
        return why.replace(self._folder, ""), fix

    def why_celsius(self, sensor: str) -> tuple[str, str | None]:
        """Why this temperature is missing."""
        if self.there and sensor not in self._labels:
            return "this chip has no such sensor", None
        return self.why(f"{self._labels.get(sensor, 'temp1')}_input")

    def _watts(self, name: str) -> float | None:
        micro = self._card.value(f"{self._folder}{name}", _MOST_W * 1_000_000)
        return None if micro is None else micro / 1e6

    def _degrees(self, name: str) -> float | None:
        milli = self._card.value(f"{self._folder}{name}", 150_000, -40_000)
        return milli / 1000 if milli else None
