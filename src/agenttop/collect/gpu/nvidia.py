"""NVIDIA GPUs through nvidia-ml-py.

A laptop's GPU that the kernel has powered down is left asleep: opening the library would wake it, and polling
would keep it awake.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from agenttop.collect.gpu import throttle
from agenttop.collect.gpu.cards import Card, cards
from agenttop.collect.gpu.nvml import WHY_NO_INIT, DriverGoneError, GpuLostError, Nvml, library_exists
from agenttop.collect.gpu.pcie import (
    RECEIVED_FIELD,
    SENT_FIELD,
    ByteCounter,
    SlowPcie,
    ambiguous,
    link_bytes_s,
)
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.frames import GpuSample, Missing
from agenttop.model.text import clean

_MEMORY_TEMPERATURE_FIELD = 82
_FIELDS = [
    *throttle.POWER_FIELDS,
    *throttle.THERMAL_FIELDS,
    _MEMORY_TEMPERATURE_FIELD,
    SENT_FIELD,
    RECEIVED_FIELD,
]
_RETRY_S, _RETRY_MAX_S = 15.0, 240.0
"""How long a lost driver or GPU is left alone before the library is opened again; doubled each time."""


class NvidiaAdapter:
    """All NVIDIA GPUs of this host."""

    vendor = "nvidia"

    def __init__(self, clock: Clock | None = None, root: Path = Path("/")) -> None:
        self._clock = clock or SystemClock()
        self._root = root
        self._nvml: Nvml | None = None
        self._slow: SlowPcie | None = None
        self._gpus: list[_Gpu] = []
        self._asleep: set[str] = set()
        """Bus ids of cards the kernel has powered down."""
        self._last: dict[str, GpuSample] = {}
        self._retry_at: float | None = None
        self._wait_s = _RETRY_S

    def open(self, t: float) -> list[Missing]:
        """Open the driver's library, unless every card is asleep."""
        listed = self._listed()
        self._asleep = {card.bus_id for card in listed if card.suspended}
        self._last = {
            card.bus_id: _asleep(t, index, card) for index, card in enumerate(listed) if card.suspended
        }
        if listed and len(self._asleep) == len(listed):
            return []
        if not library_exists():
            return [_no_driver(t, 12, listed)]
        try:
            self._connect(listed)
        except DriverGoneError as gone:
            self.close()
            return [_no_driver(t, gone.code, listed)]
        if not self._gpus:
            return [Missing(t=t, what="gpu", why="the NVIDIA driver is loaded but shows no GPU")]
        return []

    def sample(self, t: float) -> list[GpuSample]:
        """One sample per GPU; the last known identity with state `lost` when it stopped answering."""
        if self._asleep and self._asleep != {card.bus_id for card in self._listed() if card.suspended}:
            self.close()
            self._retry_at = None
        if self._nvml is None:
            self._reopen(t)
        samples: dict[str, GpuSample] = {gpu: _without_figures(t, last) for gpu, last in self._last.items()}
        try:
            for gpu in self._gpus:
                samples[gpu.id] = gpu.sample(t, self._clock.monotonic())
        except DriverGoneError:
            self.close()
        self._last = samples
        if any(sample.state == "lost" for sample in samples.values()):
            self._plan_retry()
        else:
            self._retry_at, self._wait_s = None, _RETRY_S
        return sorted(samples.values(), key=lambda sample: sample.index)

    def _plan_retry(self) -> None:
        """A GPU that was reset is found again only through a library opened anew."""
        now = self._clock.monotonic()
        if self._retry_at is None:
            self._retry_at = now + self._wait_s
        elif now >= self._retry_at:
            self.close()
            self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)

    def close(self) -> None:
        """Stop the slow reader, then let go of the library."""
        if self._slow is not None:
            self._slow.close()
            self._slow = None
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
        self._gpus = []

    def _reopen(self, t: float) -> None:
        """Open the library again after a loss, not before its time; or once a sleeping card has woken."""
        now = self._clock.monotonic()
        if self._retry_at is None or now >= self._retry_at:
            known = {gpu: last for gpu, last in self._last.items() if last.state != "asleep"}
            self._retry_at = None
            self.open(t)
            self._last = known | self._last

    def _connect(self, listed: list[Card]) -> None:
        nvml = self._nvml = Nvml(attach=not self._asleep)
        self._slow = SlowPcie(nvml, self._clock)
        driver = _text(nvml.query("SystemGetDriverVersion"))
        if self._asleep:
            wanted = [(i, "DeviceGetHandleByPciBusId", card.bus_id) for i, card in enumerate(listed)]
            ways: list[tuple[int, str, str | int]] = [way for way in wanted if way[2] not in self._asleep]
        else:
            ways = [(i, "DeviceGetHandleByIndex", i) for i in range(nvml.query("DeviceGetCount") or 0)]
        for index, function, key in ways:
            try:
                handle = nvml.query(function, key, device=key)
                if handle is not None:
                    self._gpus.append(_Gpu(nvml, self._slow, handle, index, driver))
            except GpuLostError:
                continue

    def _listed(self) -> list[Card]:
        return [card for card in cards(self._root) if card.vendor == self.vendor]


class _Gpu:
    """One GPU: its handle, what never changes, and its counters."""

    def __init__(self, nvml: Nvml, slow: SlowPcie, handle: Any, index: int, driver: str | None) -> None:
        self._nvml = nvml
        self._slow = slow
        self._handle = handle
        self._index = index
        self._driver = driver
        self._name = _text(self._ask("DeviceGetName")) or "NVIDIA GPU"
        self.id = _text(self._ask("DeviceGetUUID")) or self._bus_id() or f"nvidia-{index}"
        self._at: float | None = None
        self._throttle = throttle.ThrottleTime()
        self._received, self._sent = ByteCounter(), ByteCounter()

    def sample(self, t: float, at: float) -> GpuSample:
        """One look; the identity alone when the GPU is lost. Raises DriverGoneError."""
        try:
            return self._look(t, at)
        except GpuLostError:
            return self._identity(t, "lost")

    def _identity(self, t: float, state: str) -> GpuSample:
        return GpuSample(
            t=t,
            gpu=self.id,
            index=self._index,
            vendor="nvidia",
            name=self._name,
            driver=self._driver,
            state=state,
        )

    def _look(self, t: float, at: float) -> GpuSample:
        window = None if self._at is None else at - self._at
        self._at = at
        use = self._ask("DeviceGetUtilizationRates")
        used, total = self._memory()
        fields = self._nvml.fields(self._handle, _FIELDS, device=self._index)
        power_share, thermal_share = self._held_down(at, fields)
        generation = self._ask("DeviceGetCurrPcieLinkGeneration")
        width = self._ask("DeviceGetCurrPcieLinkWidth")
        generation_max = self._ask("DeviceGetMaxPcieLinkGeneration")
        received, sent = self._pcie(at, window, fields, link_bytes_s(generation_max, width))
        state = self._ask("DeviceGetPerformanceState")
        memory_c = fields.get(_MEMORY_TEMPERATURE_FIELD)
        return msgspec.structs.replace(
            self._identity(t, "ok"),
            window_s=window,
            util_fraction=_percent(getattr(use, "gpu", None)),
            mem_util_fraction=_percent(getattr(use, "memory", None)),
            mem_used_bytes=used,
            mem_total_bytes=total,
            sm_clock_mhz=_plausible(self._ask("DeviceGetClockInfo", 1), 10_000),
            sm_clock_max_mhz=_plausible(self._ask("DeviceGetMaxClockInfo", 1), 10_000),
            mem_clock_mhz=_plausible(self._ask("DeviceGetClockInfo", 2), 50_000),
            power_w=_thousandth(self._ask("DeviceGetPowerUsage"), 5_000),
            power_limit_w=_thousandth(self._ask("DeviceGetEnforcedPowerLimit"), 5_000),
            temperature_c=_celsius(self._temperature()),
            mem_temperature_c=_celsius(memory_c[0]) if memory_c else None,
            fan_fraction=_percent(self._ask("DeviceGetFanSpeed")),
            energy_j=_thousandth(self._ask("DeviceGetTotalEnergyConsumption"), math.inf),
            performance_state=_plausible(state, 15),
            throttle=throttle.names(self._mask()),
            throttle_power_fraction=power_share,
            throttle_thermal_fraction=thermal_share,
            pcie_received_bytes_s=received,
            pcie_sent_bytes_s=sent,
            pcie_generation=_plausible(generation, 20),
            pcie_generation_max=_plausible(generation_max, 20),
            pcie_width=_plausible(width, 64),
            pcie_width_max=_plausible(self._ask("DeviceGetMaxPcieLinkWidth"), 64),
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._nvml.query(function, self._handle, *arguments, device=(self._index, arguments))

    def _bus_id(self) -> str | None:
        info = self._ask("DeviceGetPciInfo_v3")
        return _text(getattr(info, "busId", None))

    def _memory(self) -> tuple[int | None, int | None]:
        """(used, total) bytes. The first form of the call counts memory reserved by the driver as used.

        A total of 0 is a GPU that shares the host's memory: not known here.
        """
        version = self._nvml.constant("nvmlMemory_v2")
        info = self._ask("DeviceGetMemoryInfo", version) if version else None
        info = info or self._ask("DeviceGetMemoryInfo")
        if info is None or not info.total:
            return None, None
        return min(int(info.used), int(info.total)), int(info.total)

    def _temperature(self) -> Any:
        value = self._ask("DeviceGetTemperatureV", 0)
        return self._ask("DeviceGetTemperature", 0) if value is None else value

    def _mask(self) -> int | None:
        for function in ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons"):
            mask = self._ask(function)
            if mask is not None:
                return int(mask)
        return None

    def _held_down(
        self, at: float, fields: dict[int, tuple[float, bool]]
    ) -> tuple[float | None, float | None]:
        wanted = (*throttle.POWER_FIELDS, *throttle.THERMAL_FIELDS)
        counters: dict[int | str, float] = {key: fields[key][0] for key in wanted if key in fields}
        if not counters:
            counters = throttle.violation_times(self._nvml, self._handle, self._index)
        return self._throttle.shares(at, counters)

    def _pcie(
        self, at: float, window: float | None, fields: dict[int, tuple[float, bool]], capacity: float | None
    ) -> tuple[float | None, float | None]:
        """(received, sent) bytes per second."""
        if RECEIVED_FIELD in fields and SENT_FIELD in fields:
            (received, narrow), (sent, narrow_too) = fields[RECEIVED_FIELD], fields[SENT_FIELD]
            if not ambiguous(narrow or narrow_too, capacity, window or 1.0):
                return self._received.rate(at, received, narrow), self._sent.rate(at, sent, narrow_too)
        self._slow.watch(self.id, self._handle)
        return self._slow.latest(self.id)


def _no_driver(t: float, code: int, listed: list[Card]) -> Missing:
    why, fix = WHY_NO_INIT.get(code, (f"the NVIDIA driver could not be opened (NVML error {code})", None))
    if code == 12 and listed:
        why = f"{len(listed)} NVIDIA card(s) present, but no NVIDIA driver (libnvidia-ml was not found)"
        fix = "install the NVIDIA driver; in a container, pass the GPU in with the utility capability"
    return Missing(t=t, what="gpu", why=why, fix=fix)


def _asleep(t: float, index: int, card: Card) -> GpuSample:
    return GpuSample(t=t, gpu=card.bus_id, index=index, vendor="nvidia", name="NVIDIA GPU", state="asleep")


def _without_figures(t: float, last: GpuSample) -> GpuSample:
    """The identity of an older sample; a GPU that is not asleep and gives no new one is lost."""
    return GpuSample(
        t=t,
        gpu=last.gpu,
        index=last.index,
        vendor=last.vendor,
        name=last.name,
        driver=last.driver,
        state="asleep" if last.state == "asleep" else "lost",
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return clean(str(value), 80) or None if value else None


def _plausible(value: Any, largest: float) -> int | None:
    """Drivers fill fields they do not know with all ones; such a number is not shown."""
    return int(value) if value is not None and 0 <= value <= largest else None


def _percent(value: Any) -> float | None:
    return value / 100 if value is not None and 0 <= value <= 100 else None


def _thousandth(value: Any, largest: float) -> float | None:
    return value / 1000 if value is not None and 0 <= value / 1000 <= largest else None


def _celsius(value: Any) -> float | None:
    return float(value) if value is not None and -40 <= value <= 150 and value != 0 else None
