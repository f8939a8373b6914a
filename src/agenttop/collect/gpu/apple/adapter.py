"""The GPU of a Mac with Apple silicon.

macmon tells use, clock, power and temperature once a second. macOS itself tells what memory the GPU has in
use and may use, asked in a thread of its own, since that takes a while. Without macmon there is less, and it
is said what.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec

from agenttop.collect.gpu.apple.lines import Line
from agenttop.collect.gpu.apple.macmon import Macmon, find
from agenttop.collect.gpu.apple.system import Accelerator, MacSystem, System, accelerator_of
from agenttop.collect.gpu.base import GpuOpening, GpuReading, Reasons
from agenttop.model.clock import Clock
from agenttop.model.frames import GpuSample, Missing

FIX = "brew install macmon"
_REGISTRY_S = 10.0
_REGISTRY_ALONE_S = 5.0
"""How often the registry is asked beside macmon, and without it."""


class Registry:
    """The I/O registry, asked now and then in a thread of its own."""

    def __init__(self, system: System, period_s: float) -> None:
        self._system = system
        self._period_s = period_s
        self._stop = threading.Event()
        self.newest: Accelerator | None = None
        self.working_set: int | None = None
        self._thread = threading.Thread(target=self._run, name="ioreg", daemon=True)

    def start(self) -> None:
        """Ask once, and then again and again."""
        self.newest = accelerator_of(self._system.registry())
        self._thread.start()

    def close(self) -> None:
        """Ask no more; a question that hangs is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        self.working_set = self._system.working_set()
        while not self._stop.wait(self._period_s):
            self.newest = accelerator_of(self._system.registry())


class AppleAdapter:
    """The one GPU of a Mac."""

    vendor = "apple"

    def __init__(
        self, clock: Clock, root: Path = Path("/"), system: System | None = None, macmon: str | None = None
    ) -> None:
        """`macmon`: the program's path; looked for where it is None."""
        self._clock = clock
        self._system = system or MacSystem()
        self._path = macmon
        self._macmon: Macmon | None = None
        self._registry: Registry | None = None
        self._identity: GpuSample | None = None
        self._at: float | None = None

    def open(self, t: float) -> GpuOpening:
        """See whether this is such a Mac, and what tells of its GPU."""
        if self._system.number("hw.optional.arm64") != 1:
            return GpuOpening(found=False)
        path = self._path or find()
        self._registry = Registry(self._system, _REGISTRY_S if path else _REGISTRY_ALONE_S)
        self._registry.start()
        if path is None and self._registry.newest is None:
            self.close()
            why = "macmon is not installed, and macOS does not tell of its GPU"
            return GpuOpening(found=False, missing=[Missing(t=t, what="gpu", why=why, fix=FIX)])
        self._macmon = Macmon(path, self._clock) if path else None
        system = self._system.text("kern.osproductversion")
        chip = self._system.text("machdep.cpu.brand_string") or "Apple GPU"
        driver = f"macOS {system}" if system else None
        self._identity = GpuSample(t=t, gpu="apple-gpu", index=0, vendor="apple", name=chip, driver=driver)
        return GpuOpening(found=True)

    def sample(self, t: float) -> GpuReading:
        """One look."""
        if self._identity is None or self._registry is None:
            return GpuReading()
        at = self._clock.monotonic()
        window, self._at = None if self._at is None else at - self._at, at
        line = self._macmon.newest() if self._macmon is not None else None
        known = self._registry.newest
        reasons = Reasons(self._identity.gpu, t)
        figures: dict[str, Any] = {"window_s": window, "memory_kind": "unified"}
        figures |= self._from_macmon(line, known, reasons)
        figures |= self._memory(known, reasons)
        why = "macOS tells no reasons for a lowered clock without privileges"
        reasons.add("throttle throttle_power_fraction throttle_thermal_fraction", why)
        reasons.add(
            "power_limit_w mem_clock_mhz mem_util_fraction mem_temperature_c", "macOS does not tell it"
        )
        reasons.add(
            "pcie_generation pcie_received_bytes_s", "the GPU is part of the chip: it has no PCIe link"
        )
        cores = (line.cores if line is not None else None) or (known.cores if known is not None else None)
        name = self._identity.name
        sample = msgspec.structs.replace(
            self._identity, t=t, name=f"{name} ({cores}-core GPU)" if cores else name, **figures
        )
        return GpuReading(samples=[sample], missing=reasons.frames)

    def close(self) -> None:
        """End macmon, and ask no more."""
        if self._macmon is not None:
            self._macmon.close()
            self._macmon = None
        if self._registry is not None:
            self._registry.close()
            self._registry = None
        self._identity = None

    def _from_macmon(self, line: Line | None, known: Accelerator | None, reasons: Reasons) -> dict[str, Any]:
        if line is None:
            if self._macmon is None:
                why, fix = "macmon is not installed", FIX
            else:
                why, fix = self._macmon.failed or "macmon has not said anything yet", None
            reasons.add("power_w energy_j sm_clock_mhz temperature_c fan_rpm", why, fix)
            busy = known.busy if known is not None else None
            if busy is None:
                reasons.add("util_fraction", why, fix)
            return {"util_fraction": busy}
        if line.active is None:
            why = "this macmon tells the use of the GPU scaled by its clock alone"
            reasons.add("util_fraction", why, "brew upgrade macmon")
        if line.power_w is None:
            reasons.add("power_w energy_j", "macmon tells no power of the GPU")
        if line.temperature_c is None:
            reasons.add("temperature_c", "macmon reads no temperature of the GPU")
        if line.fan_rpm is None:
            why = "the Mac has no fan, or this macmon does not tell it (0.8.0 does)"
            reasons.add("fan_rpm fan_fraction", why)
        assert self._macmon is not None
        counted = line.power_w is not None
        return {
            "util_fraction": line.active,
            "sm_clock_mhz": line.clock_mhz,
            "sm_clock_max_mhz": line.clock_max_mhz,
            "power_w": line.power_w,
            "power_window_s": 1.0 if counted else None,
            "power_scope": "chip" if counted else None,
            "energy_j": self._macmon.energy_j if counted else None,
            "energy_source": "power" if counted else None,
            "temperature_c": line.temperature_c,
            "fan_rpm": line.fan_rpm,
            "fan_fraction": line.fan_fraction,
        }

    def _memory(self, known: Accelerator | None, reasons: Reasons) -> dict[str, Any]:
        """What the GPU has in use, of what it may use: of the RAM, and the user may set how much."""
        assert self._registry is not None
        limit = self._system.number("iogpu.wired_limit_mb") or 0
        ceiling = limit * 1024**2 if 0 < limit < 1 << 30 else self._registry.working_set
        used = known.used_bytes if known is not None else None
        if ceiling is None:
            reasons.add("mem_total_bytes", "Metal does not tell how much of the RAM the GPU may use")
        if used is None:
            reasons.add("mem_used_bytes", "macOS does not tell how much memory the GPU has in use")
        return {"mem_total_bytes": ceiling, "mem_used_bytes": used}
