"""One AMD card that is awake: what never changes of it, and a look at the rest."""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.amd.chips import CHIPS, MI300A, RAVEN, name_of
from agenttop.collect.gpu.amd.energy import Energy
from agenttop.collect.gpu.amd.files import Files
from agenttop.collect.gpu.amd.link import Link, LinkNow, from_metrics
from agenttop.collect.gpu.amd.memory import Memory
from agenttop.collect.gpu.amd.metrics import UNKNOWN, Metrics, decode
from agenttop.collect.gpu.amd.ras import BadPages
from agenttop.collect.gpu.amd.reasons import Lacks
from agenttop.collect.gpu.amd.sensors import Sensors
from agenttop.collect.gpu.amd.throttling import Counters, reasons_of
from agenttop.model.frames import GpuSample, Missing
from agenttop.model.text import clean
from agenttop.model.throttle import largest

Figures = dict[str, Any]
"""Fields of a GpuSample."""

_LINK_S = 5.0
_FIND_S = 30.0
_METRICS_BYTES = 8192


class Card:
    """One card. Made anew whenever it wakes or comes back, so that no counter reaches over the gap."""

    def __init__(self, root: str, bus: str, index: int, driver: str | None) -> None:
        self.bus = bus
        self.index = index
        self._driver = driver
        self.files = Files(f"{root}/sys/bus/pci/devices/{bus}")
        self._device = _hexadecimal(self.files.text("device"))
        self._name = self._named(root)
        self._sensors = Sensors(self.files)
        self._metrics, self.metrics_why = self._read_metrics()
        self.apu = self._is_apu()
        self._memory = Memory(
            self.files, pool=self.apu and self._device != MI300A, shared=self._device == MI300A
        )
        self._pages = BadPages(self.files)
        self._counters = Counters()
        self._energy = Energy()
        self._link = None if self.apu else Link(self.files.folder)
        self._link_now = LinkNow()
        self._link_due = self._find_due = 0.0
        self._at: float | None = None
        self.violations: dict[str, float] | None = None
        """What AMD's library says, where the driver's file cannot be decoded."""
        self.missing: list[Missing] = []

    @property
    def pool(self) -> bool:
        """Its memory is one pool with what its driver maps of RAM."""
        return self._memory.pool

    @property
    def needs_library(self) -> bool:
        """It is an Instinct (no APU, and without a fan) with tables of a revision that is not known here."""
        card = not self.apu and not self._sensors.has_fan
        return card and self._metrics is None and self.metrics_why.endswith(UNKNOWN)

    def sample(self, t: float, at: float) -> GpuSample | None:
        """One look; None when the card does not answer any more."""
        self.files.begin(at)
        window = None if self._at is None else at - self._at
        self._at = at
        self._metrics, self.metrics_why = self._read_metrics()
        if not self._sensors.there and at >= self._find_due:
            self._find_due = at + _FIND_S
            self._sensors.find()
        self._sensors.slowly(at)
        self._memory.slowly(at)
        self._pages.look(at)
        figures = self._activity() | self._memory.figures() | self._heat() | self._powered(at)
        figures |= self._held_down(figures) | self._linked(at) | self._health()
        if self.files.lost():
            self.missing = []
            return None
        lacks = Lacks(self.bus, t, figures)
        self._explain(lacks)
        self.missing = lacks.frames
        return GpuSample(window_s=window, **self.identity(t), **figures)

    def identity(self, t: float, state: str = "ok") -> Figures:
        """What is known of it without a look."""
        return {
            "t": t,
            "gpu": self.bus,
            "index": self.index,
            "vendor": "amd",
            "name": self._name,
            "state": state,
            "driver": self._driver,
            "bus": self.bus,
            "pci_id": None if self._device is None else f"1002:{self._device:04x}",
        }

    def _named(self, root: str) -> str:
        # Only professional cards have a name of their own, in a memory on the board.
        own = self.files.text("product_name")
        if own and not own.isdigit():
            return clean(own if own.startswith("AMD") else f"AMD {own}", 60)
        return clean(name_of(root, self._device, _hexadecimal(self.files.text("revision"))), 60)

    def _is_apu(self) -> bool:
        chip = CHIPS.get(self._device or 0)
        if chip is not None:
            return chip.apu
        if self._metrics is not None:
            return self._metrics.of_apu
        if self._sensors.has_north_bridge:
            return True
        self._sensors.slowly(0.0)
        small = Memory.looks_like_carve_out(self.files)
        return small and not self._sensors.has_fan

    def _read_metrics(self) -> tuple[Metrics | None, str]:
        raw = self.files.raw("gpu_metrics", _METRICS_BYTES)
        return (None, self.files.why("gpu_metrics")[0]) if raw is None else decode(raw)

    def _activity(self) -> Figures:
        busy = self.files.value("gpu_busy_percent", 100)
        memory = self.files.value("mem_busy_percent", 100)
        metrics = self._metrics
        util = None if busy is None else busy / 100
        if util is None and metrics is not None:
            util = metrics.share("gfx_activity")
        if util == 1.0 and self._device in RAVEN:
            util = None
        of_memory = None if memory is None else memory / 100
        if of_memory is None and metrics is not None:
            of_memory = metrics.share("umc_activity")
        clocks = [self._sensors.clock_mhz(1), self._sensors.clock_mhz(2)]
        for index, name in enumerate(("gfxclk", "uclk")):
            if clocks[index] is None and metrics is not None:
                clocks[index] = metrics.within(name, 20_000)
        figures: Figures = {
            "util_fraction": util,
            "mem_util_fraction": of_memory,
            "sm_clock_mhz": clocks[0],
            "mem_clock_mhz": clocks[1],
            "sm_clock_max_mhz": self._memory.clock_max_mhz("pp_dpm_sclk"),
            "mem_clock_max_mhz": self._memory.clock_max_mhz("pp_dpm_mclk"),
        }
        if metrics is not None and metrics.revision == (3, 0):
            figures["dram_read_bytes_s"] = metrics.dram_bytes_s("dram_reads")
            figures["dram_write_bytes_s"] = metrics.dram_bytes_s("dram_writes")
            figures["dram_is_floor"] = True
        return figures

    def _heat(self) -> Figures:
        sensors, limits, metrics = self._sensors, self._sensors.limits.crit_c, self._metrics
        edge, hotspot, memory = (sensors.celsius(name) for name in ("edge", "junction", "mem"))
        if metrics is not None:
            edge = edge if edge is not None else metrics.celsius("temperature_gfx")
            hotspot = hotspot if hotspot is not None else metrics.celsius("hotspot")
            memory = memory if memory is not None else metrics.celsius("mem_temperature")
        # An Instinct has no sensor at the edge: its temperature is that of the hottest place.
        main = ("edge", edge) if edge is not None else ("junction", hotspot)
        margins = [
            limits[name] - value
            for name, value in (("edge", edge), ("junction", hotspot))
            if value is not None and name in limits
        ]
        return {
            "temperature_c": main[1],
            "hotspot_c": hotspot,
            "mem_temperature_c": memory,
            "temperature_limit_c": limits.get(main[0]) if main[1] is not None else None,
            "mem_temperature_limit_c": limits.get("mem"),
            "temperature_margin_c": min(margins, default=None),
            "fan_rpm": sensors.rare.fan_rpm,
            "fan_fraction": sensors.rare.fan_fraction,
        }

    def _powered(self, at: float) -> Figures:
        metrics = self._metrics
        power, instant = self._sensors.power()
        if power is None and metrics is not None:
            power, instant = metrics.power_w(), False
        counter = metrics.energy_j() if metrics is not None and metrics.of_instinct else None
        counter = counter if counter is not None else self._sensors.energy_j()
        energy, source = self._energy.look(at, power, counter)
        instinct = metrics is not None and metrics.of_instinct
        scope = "socket" if self.apu else "module" if instinct else "chip"
        return {
            "power_w": power,
            # An APU's driver hands out its filtered power under both names.
            "power_window_s": 0.0 if power is not None and instant and not self.apu else None,
            "power_scope": scope if power is not None else None,
            "power_limit_w": self._sensors.rare.cap_w,
            "power_limit_default_w": self._sensors.limits.default_w,
            "energy_j": energy,
            "energy_source": source,
        }

    def _held_down(self, figures: Figures) -> Figures:
        metrics = self._metrics
        reasons: list[str] | None = None
        shares: dict[str, float] = {}
        if metrics is None:
            if self.violations is not None:
                shares = self.violations
                reasons = [words for words, share in shares.items() if share > 0]
        elif "cycles" in metrics.raw:
            reasons, shares = self._counters.instinct(metrics)
        elif metrics.revision == (3, 0):
            reasons = self._counters.apu(metrics)
        elif (mask := metrics.raw.get("indep_throttle_status")) is not None:
            limit = self._sensors.limits.crit_c.get("junction")
            reasons = reasons_of(
                mask, figures["hotspot_c"], limit, figures["power_w"], figures["power_limit_w"]
            )
        return {
            "throttle": reasons,
            "throttle_shares": shares,
            "throttle_power_fraction": largest(shares, "power"),
            "throttle_thermal_fraction": largest(shares, "thermal"),
        }

    def _linked(self, at: float) -> Figures:
        if self._link is not None and at >= self._link_due:
            self._link_due = at + _LINK_S
            self._link_now = self._link.now()
        now, metrics = self._link_now, self._metrics
        generation, width = now.generation, now.width
        if metrics is not None and self._link is not None and (generation is None or width is None):
            raw = metrics.raw
            generation, width = from_metrics(raw.get("link_width"), raw.get("link_speed"))
        replays = metrics.within("pcie_replays", 1 << 62) if metrics is not None else None
        return {
            "pcie_generation": generation,
            "pcie_width": width,
            "pcie_generation_max": now.generation_max,
            "pcie_width_max": now.width_max,
            "pcie_replays_total": replays,
        }

    def _health(self) -> Figures:
        return {
            "health": self._pages.health(),
        }

    def _explain(self, lacks: Lacks) -> None:
        files, sensors = self.files, self._sensors
        if (
            self._device in RAVEN
            and files.has("gpu_busy_percent")
            and files.failed("gpu_busy_percent") is None
        ):
            lacks.add("util_fraction", "this chip's driver says 100 % whatever it does (Raven)")
        lacks.add("util_fraction", *files.why("gpu_busy_percent"))
        lacks.add("mem_util_fraction", *files.why("mem_busy_percent"))
        self._memory.explain(lacks)
        lacks.add("sm_clock_mhz", *sensors.why("freq1_input"))
        lacks.add("mem_clock_mhz", *sensors.why("freq2_input"))
        lacks.add("temperature_c", *sensors.why_celsius("edge"))
        lacks.add("hotspot_c", *sensors.why_celsius("junction"))
        lacks.add("mem_temperature_c", *sensors.why_celsius("mem"))
        lacks.add("temperature_limit_c temperature_margin_c", "the driver names no limit for it")
        lacks.add("power_w", *sensors.why("power1_average", "power1_input"))
        lacks.add("energy_j", "neither a counter nor the power can be read")
        unmetered = (
            self.metrics_why if self.apu and self._metrics is None else "this chip has no meter for it"
        )
        lacks.add("dram_read_bytes_s dram_write_bytes_s", unmetered)
        self._explain_fan_and_cap(lacks)
        self._explain_throttle(lacks)
        self._explain_pcie(lacks)
        why = self._pages.why()
        lacks.add("ecc_corrected_total ecc_uncorrected_total", *why)

    def _explain_fan_and_cap(self, lacks: Lacks) -> None:
        if self.apu:
            lacks.add("fan_fraction fan_rpm", "the fan is the machine's, not the GPU's")
            lacks.add("power_limit_w", "this APU's driver does not tell its power limit")
        if self._metrics is not None and self._metrics.of_instinct:
            lacks.add("fan_fraction fan_rpm", "the fans are the machine's, not the GPU's")
        lacks.add("fan_fraction fan_rpm", *self._sensors.why("pwm1"))
        lacks.add("power_limit_w", *self._sensors.why("power1_cap"))

    def _explain_throttle(self, lacks: Lacks) -> None:
        metrics, shares = self._metrics, "throttle_power_fraction throttle_thermal_fraction"
        if metrics is None:
            lacks.add(f"throttle {shares}", self.metrics_why)
        elif "cycles" in metrics.raw:
            return  # the first look at counters tells nothing yet
        elif metrics.revision == (3, 0):
            lacks.add(shares, "the driver does not say in which unit it counts: only whether it occurred")
        elif metrics.of_instinct:
            why = "this driver does not tell it for this chip yet"
            lacks.add(f"throttle {shares}", why, "a newer amdgpu driver (gpu_metrics 1.6 or later)")
        else:
            if "indep_throttle_status" not in metrics.raw:
                lacks.add("throttle", "this chip's driver does not tell it in a form that all chips share")
            lacks.add(shares, "this chip tells what holds it down now, and counts no time")

    def _explain_pcie(self, lacks: Lacks) -> None:
        rates, link = "pcie_received_bytes_s pcie_sent_bytes_s", "pcie_generation pcie_width"
        if self.apu:
            lacks.add(
                f"{rates} {link} pcie_generation_max pcie_width_max", "part of the processor: no PCIe link"
            )
        elif self._metrics is not None and self._metrics.of_instinct:
            lacks.add(rates, "this chip counts both directions as one, rounded to whole GB/s")
        else:
            lacks.add(rates, "this chip has no PCIe counter")
        lacks.add(link, "the bridge above the card does not tell its link")


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) <= 8 else None
    except ValueError:
        return None
