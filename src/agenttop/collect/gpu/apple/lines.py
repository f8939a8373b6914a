"""One line of `macmon pipe` as figures. Pure.

Source: macmon's own document of its output, and samples of 0.7, 0.8.0 and 0.8.1.

Rules
- `gpu_usage` of 0.7 is `[MHz, share]`, and the share is scaled by the clock: all of the time at half the
  clock is 0.5. 0.8.0 tells the share of time apart from it (`gpu_active_ratio`), under new names; 0.8.1 has
  the old ones beside them.
- 0 degrees is a sensor that could not be read.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from agenttop.model.text import clean

_LARGEST_BYTES = 1 << 50


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one line says of the GPU. What it does not say is None."""

    active: float | None = None
    """Share of the interval in which the GPU worked."""
    scaled: float | None = None
    """The same, times the clock as a share of the fastest."""
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    power_w: float | None = None
    """Of the GPU's cores."""
    temperature_c: float | None = None
    fan_rpm: int | None = None
    fan_fraction: float | None = None
    chip: str | None = None
    cores: int | None = None


def parse(raw: bytes) -> Line | None:
    """A line; None where it is none."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not ("gpu_power" in found or "gpu_usage" in found):
        return None
    usage = found.get("gpu_usage")
    old = usage if isinstance(usage, list) and len(usage) == 2 else [None, None]
    soc = found["soc"] if isinstance(found.get("soc"), dict) else {}
    clock = _first(found.get("gpu_freq_mhz"), old[0], most=10_000)
    steps = soc.get("gpu_freqs")
    most = max((_number(step, 10_000) or 0 for step in steps), default=0) if isinstance(steps, list) else 0
    scaled = _first(found.get("gpu_scaled_ratio"), found.get("gpu_usage_ratio"), old[1], most=1.0)
    active = _number(found.get("gpu_active_ratio"), 1.0)
    if active is None and scaled is not None and (scaled == 0 or (clock and most >= clock)):
        active = min(1.0, scaled * most / clock) if scaled and clock else 0.0
    rpm, fraction = _fans(found.get("fans"))
    chip, cores = soc.get("chip_name"), _number(soc.get("gpu_cores"), 1000)
    temperatures = found.get("temp")
    temperature = temperatures.get("gpu_temp_avg") if isinstance(temperatures, dict) else None
    return Line(
        active=active,
        scaled=scaled,
        clock_mhz=None if clock is None else round(clock),
        clock_max_mhz=round(most) or None,
        power_w=_number(found.get("gpu_power"), 2000),
        temperature_c=_number(temperature, 150) or None,
        fan_rpm=rpm,
        fan_fraction=fraction,
        chip=clean(chip, 40) or None if isinstance(chip, str) else None,
        cores=round(cores) if cores else None,
    )


def _number(value: Any, most: float) -> float | None:
    """A number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= most else None


def _first(*values: Any, most: float) -> float | None:
    return next((number for value in values if (number := _number(value, most)) is not None), None)


def _fans(fans: Any) -> tuple[int | None, float | None]:
    """(revolutions a minute, share of the most) of the fastest fan."""
    each = [fan for fan in fans if isinstance(fan, dict)] if isinstance(fans, list) else []
    speeds = [(_number(fan.get("rpm"), 100_000), _number(fan.get("max_rpm"), 100_000)) for fan in each]
    shares = [min(1.0, rpm / most) for rpm, most in speeds if rpm is not None and most]
    rpms = [rpm for rpm, _ in speeds if rpm is not None]
    return (round(max(rpms)) if rpms else None), max(shares, default=None)
