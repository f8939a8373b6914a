"""How busy the GPU is, and how fast it runs: utilisation, clocks, state, fans."""

from __future__ import annotations

from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.plausible import number, percent

SM, MEMORY = 1, 2
SLOW_S = 15.0
MOST_FANS = 8


class Board:
    """Utilisation, clocks and performance state at every look; maxima and fans now and then."""

    def __init__(self) -> None:
        self._slowly = Slowly(SLOW_S)
        self._slow: Figures = {}

    def wanted(self, at: float) -> list[FieldId]:
        """None."""
        return []

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        if self._slowly.due(look.at):
            self._slow = {
                "sm_clock_max_mhz": number(device.ask("DeviceGetMaxClockInfo", SM), 10_000),
                "mem_clock_max_mhz": number(device.ask("DeviceGetMaxClockInfo", MEMORY), 50_000),
                "fan_fraction": _fan(device),
                "fan_rpm": _turns(device),
            }
        use = device.ask("DeviceGetUtilizationRates")
        figures = {
            "util_fraction": percent(getattr(use, "gpu", None)),
            "mem_util_fraction": percent(getattr(use, "memory", None)),
            "sm_clock_mhz": number(device.ask("DeviceGetClockInfo", SM), 10_000),
            "mem_clock_mhz": number(device.ask("DeviceGetClockInfo", MEMORY), 50_000),
            "performance_state": number(device.ask("DeviceGetPerformanceState"), 15),
            **self._slow,
        }
        if figures["fan_fraction"] is None:
            look.reasons.add("fan_fraction fan_rpm", "no fan that the driver knows of")
        return figures

    def close(self) -> None:
        """Nothing is held."""


def _fan(device: Device) -> float | None:
    """The fastest fan; some boards turn one faster than the other."""
    fans = number(device.ask("DeviceGetNumFans"), MOST_FANS)
    if fans:
        speeds = [percent(device.ask("DeviceGetFanSpeed_v2", fan)) for fan in range(fans)]
        return max((speed for speed in speeds if speed is not None), default=None)
    return percent(device.ask("DeviceGetFanSpeed")) if fans is None else None


def _turns(device: Device) -> int | None:
    """Of the first fan; the call came late and takes a struct that older packages do not know."""
    told = device.ask("DeviceGetFanSpeedRPM")
    return number(getattr(told, "speed", told), 20_000)
