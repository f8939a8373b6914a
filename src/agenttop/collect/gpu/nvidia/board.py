"""Utilisation, memory, clocks, temperature, power and what holds the clocks down."""

from __future__ import annotations

import math
from typing import Any

from agenttop.collect.gpu.nvidia import throttle
from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look
from agenttop.collect.gpu.nvidia.plausible import celsius, number, percent, thousandth

_MEMORY_TEMPERATURE_FIELD = 82


class Board:
    """The figures of the board itself."""

    def __init__(self) -> None:
        self._throttle = throttle.ThrottleTime()

    def wanted(self, at: float) -> list[FieldId]:
        """Time counters of the throttle reasons, and the memory's temperature."""
        return [*throttle.POWER_FIELDS, *throttle.THERMAL_FIELDS, _MEMORY_TEMPERATURE_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        use = device.ask("DeviceGetUtilizationRates")
        used, total = _memory(device)
        power_share, thermal_share = self._held_down(device, look)
        memory_c = look.fields.get(_MEMORY_TEMPERATURE_FIELD)
        return {
            "util_fraction": percent(getattr(use, "gpu", None)),
            "mem_util_fraction": percent(getattr(use, "memory", None)),
            "mem_used_bytes": used,
            "mem_total_bytes": total,
            "sm_clock_mhz": number(device.ask("DeviceGetClockInfo", 1), 10_000),
            "sm_clock_max_mhz": number(device.ask("DeviceGetMaxClockInfo", 1), 10_000),
            "mem_clock_mhz": number(device.ask("DeviceGetClockInfo", 2), 50_000),
            "power_w": thousandth(device.ask("DeviceGetPowerUsage"), 5_000),
            "power_limit_w": thousandth(device.ask("DeviceGetEnforcedPowerLimit"), 5_000),
            "temperature_c": celsius(_temperature(device)),
            "mem_temperature_c": celsius(memory_c[0]) if memory_c else None,
            "fan_fraction": percent(device.ask("DeviceGetFanSpeed")),
            "energy_j": thousandth(device.ask("DeviceGetTotalEnergyConsumption"), math.inf),
            "performance_state": number(device.ask("DeviceGetPerformanceState"), 15),
            "throttle": throttle.names(_mask(device)),
            "throttle_power_fraction": power_share,
            "throttle_thermal_fraction": thermal_share,
        }

    def close(self) -> None:
        """Nothing is held."""

    def _held_down(self, device: Device, look: Look) -> tuple[float | None, float | None]:
        wanted = (*throttle.POWER_FIELDS, *throttle.THERMAL_FIELDS)
        counters: dict[int | str, float] = {key: look.fields[key][0] for key in wanted if key in look.fields}
        if not counters:
            counters = throttle.violation_times(device.nvml, device.handle, device.index)
        return self._throttle.shares(look.at, counters)


def _memory(device: Device) -> tuple[int | None, int | None]:
    """(used, total) bytes. The first form of the call counts memory reserved by the driver as used.

    A total of 0 is a GPU that shares the host's memory: not known here.
    """
    version = device.constant("nvmlMemory_v2")
    info = device.ask("DeviceGetMemoryInfo", version) if version else None
    info = info or device.ask("DeviceGetMemoryInfo")
    if info is None or not info.total:
        return None, None
    return min(int(info.used), int(info.total)), int(info.total)


def _temperature(device: Device) -> Any:
    value = device.ask("DeviceGetTemperatureV", 0)
    return device.ask("DeviceGetTemperature", 0) if value is None else value


def _mask(device: Device) -> int | None:
    for function in ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons"):
        mask = device.ask(function)
        if mask is not None:
            return int(mask)
    return None
