"""Temperatures, and how far they are from the point at which the clocks go down.

Sources: NVML reference. Ada and later tell the distance themselves (T.Limit); the thresholds of
`nvmlDeviceGetTemperatureThreshold` are for what came before. Field 196 is the T.Limit at which a GPU
may be slowed below its base clock, as a rule 0.
"""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.plausible import celsius

MEMORY_FIELD = 82
GPU_MAX_FIELD = 196
SLOWDOWN, MEMORY_MAX, GPU_MAX = 1, 2, 3
"""`nvmlTemperatureThresholds_t`."""
SLOW_S = 30.0
MOST_MARGIN_C = 150


class Heat:
    """Temperatures at every look, limits now and then."""

    def __init__(self) -> None:
        self._slowly = Slowly(SLOW_S)
        self._limit: float | None = None
        self._memory_limit: float | None = None
        self._zero = 0.0
        """Margin at which the clocks go down."""

    def wanted(self, at: float) -> list[FieldId]:
        """The memory's temperature and the zero of the margin."""
        return [MEMORY_FIELD, GPU_MAX_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        if self._slowly.due(look.at):
            asked = (device.ask("DeviceGetTemperatureThreshold", which) for which in (GPU_MAX, SLOWDOWN))
            most = [celsius(limit) for limit in asked]
            self._limit = min((limit for limit in most if limit is not None), default=None)
            self._memory_limit = celsius(device.ask("DeviceGetTemperatureThreshold", MEMORY_MAX))
            self._zero = _margin(look.fields.get(GPU_MAX_FIELD, (0.0, False))[0]) or 0.0
        now = celsius(_temperature(device))
        margin = _margin(device.ask("DeviceGetMarginTemperature"))
        if margin is not None:
            margin -= self._zero
        limit = now + margin if now is not None and margin is not None else self._limit
        if margin is None and now is not None and limit is not None:
            margin = limit - now
        memory = look.fields.get(MEMORY_FIELD)
        figures = {
            "temperature_c": now,
            "temperature_limit_c": limit,
            "temperature_margin_c": margin,
            "mem_temperature_c": celsius(memory[0]) if memory else None,
            "mem_temperature_limit_c": self._memory_limit,
        }
        if figures["mem_temperature_c"] is None:
            look.reasons.add("mem_temperature_c", "the driver knows of no sensor in this board's memory")
        if now is None:
            look.reasons.add("temperature_c", "this GPU does not tell its temperature")
        return figures

    def close(self) -> None:
        """Nothing is held."""


def _temperature(device: Device) -> Any:
    value = device.ask("DeviceGetTemperatureV", 0)
    return device.ask("DeviceGetTemperature", 0) if value is None else value


def _margin(value: Any) -> float | None:
    return float(value) if value is not None and abs(value) <= MOST_MARGIN_C else None
