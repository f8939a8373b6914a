"""What holds the clocks of an AMD GPU down: bits in words, and counters as shares of a window.

Three kinds of chips tell it in three ways:
- Radeon cards from `gpu_metrics` 1.3 on, and APUs of 2.2 to 2.4: `indep_throttle_status`, a mask of what
  is so now (kernel: `amdgpu_smu.h`, SMU_THROTTLER_*_BIT). Time is not counted.
- Instinct from 1.6 on: counters of firmware cycles in each state, and of all cycles. Their ratio is a share.
- APUs of 3.0: counters in cycles of a firmware timer, of which neither the length nor the total is handed
  out (`smu14_driver_if_v14_0_0.h`: "PM_TIMER cycles", and MetricsCounter is left out of `gpu_metrics`). What
  has grown did occur; for how long cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping

from agenttop.collect.gpu.amd.metrics import Metrics

_BITS = {
    0: "power cap (PPT0)",
    1: "power cap (PPT1)",
    2: "power cap (PPT2)",
    3: "power cap (PPT3)",
    4: "power cap (sustained)",
    5: "power cap (fast)",
    6: "power cap (slow)",
    7: "power cap (slow, APU)",
    16: "current limit (gfx)",
    17: "current limit (soc)",
    18: "current limit (memory)",
    19: "current limit (vdd)",
    20: "current limit (cvip)",
    21: "peak current (cpu)",
    22: "peak current (gfx)",
    23: "current limit (apcc)",
    32: "thermal (gpu)",
    33: "thermal (cpu cores)",
    34: "thermal (memory)",
    35: "thermal (edge)",
    36: "thermal (hotspot)",
    37: "thermal (soc)",
    38: "thermal (vr gfx)",
    39: "thermal (vr soc)",
    40: "thermal (vr memory)",
    41: "thermal (vr memory)",
    42: "thermal (liquid)",
    43: "thermal (liquid)",
    44: "thermal (vrhot)",
    45: "thermal (vrhot)",
    46: "prochot (cpu)",
    47: "prochot (gpu)",
    56: "ppm",
    57: "reliability (fit)",
}
_HOTSPOT = 36
_PACKAGE_POWER = (0, 1, 2, 3)
NEAR_HOTSPOT_C = 10.0
"""The bit for the hotspot is believed this near to its limit: firmware of Navi 3x and 4x sets it always, at
idle and 37 °C too (ROCm/rocm-systems#11781, flightlessmango/MangoHud#1690)."""
LEAST_OF_CAP = 0.5
"""The bits for package power are believed from this share of the power limit on: some cards set them at
idle (flightlessmango/MangoHud#748)."""

INSTINCT = {
    "prochot": "prochot",
    "ppt": "power cap",
    "socket_thm": "thermal (socket)",
    "vr_thm": "thermal (vr)",
    "hbm_thm": "thermal (memory)",
}
APU = {
    "prochot": "prochot",
    "spl": "power cap (sustained)",
    "fppt": "power cap (fast)",
    "sppt": "power cap (slow)",
    "thm_core": "thermal (cpu cores)",
    "thm_gfx": "thermal (gpu)",
    "thm_soc": "thermal (soc)",
}
_WRAP = 2**32


def reasons_of(
    mask: int,
    hotspot_c: float | None,
    hotspot_limit_c: float | None,
    power_w: float | None,
    cap_w: float | None,
) -> list[str]:
    """The reasons in a mask, lowest bit first, without bits that the sensors refute; an unknown bit is shown
    as a number."""
    if hotspot_c is None or hotspot_limit_c is None or hotspot_c < hotspot_limit_c - NEAR_HOTSPOT_C:
        mask &= ~(1 << _HOTSPOT)
    if power_w is not None and cap_w is not None and power_w < LEAST_OF_CAP * cap_w:
        mask &= ~sum(1 << bit for bit in _PACKAGE_POWER)
    known = [words for bit, words in _BITS.items() if mask >> bit & 1]
    rest = mask & ~sum(1 << bit for bit in _BITS)
    return [*dict.fromkeys(known), *([f"0x{rest:x}"] if rest else [])]


class Counters:
    """The counters of one GPU from look to look."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._told: tuple[list[str] | None, dict[str, float]] = None, {}

    def instinct(self, metrics: Metrics) -> tuple[list[str] | None, dict[str, float]]:
        """(reasons that occurred since the look before, their shares of it)."""
        steps = self._steps(metrics, ("cycles", *INSTINCT))
        cycles = steps.get("cycles")
        if cycles == 0:
            return self._told  # the firmware's table is still that of the look before
        shares = {
            words: min(1.0, step / cycles)
            for name, words in INSTINCT.items()
            # A little more than everything comes of counters that are not read at one instant.
            if cycles and (step := steps.get(name)) is not None and step <= 1.1 * cycles
        }
        self._told = ([words for words, share in shares.items() if share > 0] if shares else None), shares
        return self._told

    def apu(self, metrics: Metrics) -> list[str] | None:
        """Reasons that occurred since the look before."""
        steps = self._steps(metrics, APU)
        return [APU[name] for name, step in steps.items() if step > 0] if steps else None

    def _steps(self, metrics: Metrics, names: tuple[str, ...] | Mapping[str, str]) -> dict[str, int]:
        now = {name: metrics.raw[name] % _WRAP for name in names if name in metrics.raw}
        steps = {
            name: (value - self._last[name]) % _WRAP for name, value in now.items() if name in self._last
        }
        self._last = now
        # More than half of the way round is no step forward: the counters were set back.
        if any(step >= _WRAP // 2 for step in steps.values()):
            return {}
        return steps
