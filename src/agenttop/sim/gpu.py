"""The simulated GPU: power from what is busy, heat from power, and clocks held down by either limit.

Temperature follows power like a capacitor charged through a resistor: dT/dt = (air + R P - T) / tau. Power
above the limit lowers the clocks until it fits (power goes with about clock^2.5, as voltage follows);
heat above the limit lowers them in proportion to the excess.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import GpuPreset, HostPreset
from agenttop.sim.requests import GpuReading

SETTLE_S = 0.25
"""Power, heat and clocks are worked out at least this far apart: as often as drivers adapt them, about."""
KEPT_S = 120.0
"""How far back a reading's window can reach."""

RUNNING, MEMORY, COMPUTE = 0.25, 0.45, 0.75
"""Shares of the power above idle: a kernel runs at all; memory is saturated; arithmetic is. Together above 1:
a GPU cannot do both to the full. Set so that decoding, which saturates memory, draws two thirds of
the limit and prefill, which saturates arithmetic, meets it, as published measurements of both phases show
(P. Patel et al., "Splitwise", ISCA 2024, section III-F)."""
POWER_EXPONENT = 2.5
THERMAL_GAIN = 0.04
"""Share of the clock lost for each degree above the throttle temperature."""
SLOWEST = 0.3
"""Share of the clock that throttling leaves at least."""

SOFT, HARD = "thermal (sw)", "thermal (hw)"
REASONS = {"power cap": "power_capped", SOFT: "soft", HARD: "hard"}
"""What can hold the clocks down, as collectors name it, to the total that counts it."""


class _Point(msgspec.Struct, frozen=True):
    """Running totals at one time."""

    t: float
    busy: float
    memory: float
    energy: float
    power_capped: float
    soft: float
    """Held down by heat, mildly, and below by more than that."""
    hard: float
    received: float
    sent: float


class SimGpu:
    """One GPU. `clock` is its present speed as a share of the full one."""

    def __init__(self, host: HostPreset, options: EngineOptions, index: int, used_bytes: float) -> None:
        gpu = host.gpu
        self._gpu, self._index, self._used = gpu, index, used_bytes
        self._unified = host.unified_memory
        self._identity = f"SIM-{host.key or 'host'}-{index}"
        self._limit = gpu.limit_w if options.power_limit_w is None else options.power_limit_w
        self._air = gpu.ambient_c if options.ambient_c is None else options.ambient_c
        self.clock = 1.0
        self.temperature = self._air + gpu.heat_c_per_w * gpu.idle_w
        self.power = gpu.idle_w
        self.reasons: list[str] = []
        self._now = 0.0
        self._settled = 0.0
        self._busy = self._memory = self._compute = 0.0
        self._totals = _Point(*[0.0] * 9)
        self._received = self._sent = 0.0
        self._points: deque[_Point] = deque([self._totals])

    def work(
        self, until: float, busy: float, memory: float, compute: float, received: float, sent: float
    ) -> None:
        """A step that ends at `until`: its busy seconds of each kind and its bytes over PCIe."""
        self._busy += busy
        self._memory += memory
        self._compute += compute
        self._received += received
        self._sent += sent
        self._now = until
        if until - self._settled >= SETTLE_S:
            self._settle(until)

    def idle(self, until: float) -> None:
        """Nothing runs up to `until`."""
        if until - self._now < SETTLE_S:
            return  # too short to tell from the work around it
        if self._busy:
            self._settle(self._now)
        while until - self._settled >= SETTLE_S:  # a long pause in slices that grow: it only cools
            slice_s = max(SETTLE_S, min(self._gpu.heat_time_s / 4, (until - self._settled) / 4))
            self._settle(min(until, self._settled + slice_s))
        self._now = max(self._now, until)

    def reading(self, window_s: float) -> GpuReading:
        """The GPU as last worked out, rates and shares over `window_s` or a little more before that.

        A step in progress shows when it has ended, and a moment later than that at most.
        """
        newest = oldest = self._points[-1]
        for point in reversed(self._points):
            oldest = point
            if newest.t - point.t >= window_s:
                break
        span = newest.t - oldest.t

        def rate(name: str) -> float | None:
            return (getattr(newest, name) - getattr(oldest, name)) / span if span > 0 else None

        def share(name: str) -> float | None:
            found = rate(name)
            return None if found is None else min(1.0, found)

        gpu, bus = self._gpu, self._gpu.pcie_generation is not None
        power = rate("energy")
        shares = {reason: held for reason, name in REASONS.items() if (held := share(name)) is not None}
        return GpuReading(
            gpu=self._identity,
            index=self._index,
            vendor=gpu.vendor,
            name=gpu.name,
            window_s=span if span > 0 else None,
            util_fraction=share("busy"),
            mem_util_fraction=share("memory"),
            mem_used_bytes=int(self._used),
            mem_total_bytes=gpu.memory_bytes,
            sm_clock_mhz=self._clock_mhz(),
            sm_clock_max_mhz=gpu.clock_max_mhz,
            mem_clock_mhz=gpu.memory_clock_mhz,
            power_w=self.power if power is None else power,
            power_limit_w=self._limit,
            temperature_c=round(self.temperature, 1),
            energy_j=newest.energy,
            throttle=list(self.reasons),
            throttle_power_fraction=shares.get("power cap"),
            # Never both at once: together they are the time held down by heat.
            throttle_thermal_fraction=min(1.0, shares[SOFT] + shares[HARD]) if shares else None,
            throttle_shares=shares,
            temperature_limit_c=gpu.throttle_c,
            power_limit_default_w=gpu.limit_w,
            power_window_s=span if power is not None else 0.0,
            energy_source="counter",
            memory_kind="unified" if self._unified else "dedicated",
            pcie_received_bytes_s=rate("received") if bus else None,
            pcie_sent_bytes_s=rate("sent") if bus else None,
            pcie_generation=gpu.pcie_generation,
            pcie_generation_max=gpu.pcie_generation,
            pcie_width=gpu.pcie_width,
            pcie_width_max=gpu.pcie_width,
        )

    def _clock_mhz(self) -> int:
        gpu = self._gpu
        if self.power <= gpu.idle_w * 1.05:
            return gpu.clock_min_mhz
        return max(gpu.clock_min_mhz, int(gpu.clock_max_mhz * self.clock))

    def _settle(self, until: float) -> None:
        """Power, heat and clocks over the time since they were last worked out."""
        span = until - self._settled
        if span <= 0:
            return
        gpu = self._gpu
        busy = min(1.0, self._busy / span)
        memory, compute = min(1.0, self._memory / span), min(1.0, self._compute / span)
        above = (gpu.demand_w - gpu.idle_w) * (RUNNING * busy + MEMORY * memory + COMPUTE * compute)
        allowed = max(1.0, self._limit - gpu.idle_w)
        capped = min(1.0, (allowed / above) ** (1 / POWER_EXPONENT)) if above > 0 else 1.0
        hot = max(0.0, self.temperature - gpu.throttle_c)
        cooler = 1 - THERMAL_GAIN * hot
        self.clock = max(SLOWEST, min(capped, cooler))
        self.power = gpu.idle_w + min(allowed, above * self.clock**POWER_EXPONENT)
        self._heat(span)
        self.reasons = []
        if capped < 1 and busy:
            self.reasons.append("power cap")
        if cooler < 1 and busy:
            self.reasons.append(SOFT if cooler > 0.7 else HARD)
        total = self._totals
        self._totals = _Point(
            until,
            total.busy + busy * span,
            total.memory + memory * span,
            total.energy + self.power * span,
            total.power_capped + (span if "power cap" in self.reasons else 0.0),
            total.soft + (span if SOFT in self.reasons else 0.0),
            total.hard + (span if HARD in self.reasons else 0.0),
            total.received + self._received,
            total.sent + self._sent,
        )
        self._points.append(self._totals)
        while len(self._points) > 2 and until - self._points[1].t > KEPT_S:
            self._points.popleft()
        self._busy = self._memory = self._compute = self._received = self._sent = 0.0
        self._settled = until

    def _heat(self, span: float) -> None:
        gpu: GpuPreset = self._gpu
        settled = self._air + gpu.heat_c_per_w * self.power
        self.temperature = settled + (self.temperature - settled) * math.exp(-span / gpu.heat_time_s)
