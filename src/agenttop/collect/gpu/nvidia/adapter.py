"""NVIDIA GPUs through nvidia-ml-py.

A laptop's GPU that the kernel has powered down is left asleep: opening the library would wake it, and polling
would keep it awake.
"""

from __future__ import annotations

from pathlib import Path

from agenttop.collect.gpu.base import GpuOpening, GpuReading
from agenttop.collect.gpu.cards import Card, cards
from agenttop.collect.gpu.nvidia.board import Board
from agenttop.collect.gpu.nvidia.device import Gpu
from agenttop.collect.gpu.nvidia.nvml import (
    WHY_NO_INIT,
    DriverGoneError,
    GpuLostError,
    Nvml,
    library_exists,
)
from agenttop.collect.gpu.nvidia.part import Device, Part
from agenttop.collect.gpu.nvidia.pcie import Pcie, SlowPcie
from agenttop.collect.gpu.nvidia.plausible import text
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.frames import GpuSample, Missing

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
        self._gpus: list[Gpu] = []
        self._asleep: set[str] = set()
        """Bus ids of cards the kernel has powered down."""
        self._last: dict[str, GpuSample] = {}
        self._absent = False
        """There is no library of NVIDIA at all."""
        self._retry_at: float | None = None
        self._wait_s = _RETRY_S

    def open(self, t: float) -> GpuOpening:
        """Open the driver's library, unless every card is asleep."""
        missing = self._open(t)
        # Without a library and without a card there is nothing of NVIDIA here: no news.
        told = missing if self._listed() or not self._absent else []
        return GpuOpening(found=not missing, missing=told)

    def _open(self, t: float) -> list[Missing]:
        self._absent = False
        listed = self._listed()
        self._asleep = {card.bus_id for card in listed if card.suspended}
        self._last = {
            card.bus_id: _asleep(t, index, card) for index, card in enumerate(listed) if card.suspended
        }
        if listed and len(self._asleep) == len(listed):
            return []
        if not library_exists():
            self._absent = True
            return [_no_driver(t, 12, listed)]
        try:
            self._connect(listed)
        except DriverGoneError as gone:
            self.close()
            return [_no_driver(t, gone.code, listed)]
        if not self._gpus:
            return [Missing(t=t, what="gpu", why="the NVIDIA driver is loaded but shows no GPU")]
        return []

    def sample(self, t: float) -> GpuReading:
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
        missing = [frame for gpu in self._gpus for frame in gpu.missing]
        return GpuReading(samples=sorted(samples.values(), key=lambda sample: sample.index), missing=missing)

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
        for gpu in self._gpus:
            gpu.close()
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
            self._open(t)
            self._last = known | self._last

    def _connect(self, listed: list[Card]) -> None:
        nvml = self._nvml = Nvml(attach=not self._asleep)
        self._slow = SlowPcie(nvml, self._clock)
        driver = text(nvml.query("SystemGetDriverVersion"))
        if self._asleep:
            wanted = [(i, "DeviceGetHandleByPciBusId", card.bus_id) for i, card in enumerate(listed)]
            ways: list[tuple[int, str, str | int]] = [way for way in wanted if way[2] not in self._asleep]
        else:
            ways = [(i, "DeviceGetHandleByIndex", i) for i in range(nvml.query("DeviceGetCount") or 0)]
        for index, function, key in ways:
            try:
                handle = nvml.query(function, key, device=key)
                if handle is not None:
                    device = Device(nvml, handle, index)
                    self._gpus.append(Gpu(device, self._parts(index), driver))
            except GpuLostError:
                continue

    def _parts(self, index: int) -> list[Part]:
        assert self._slow is not None
        return [Board(), Pcie(self._slow, str(index))]

    def _listed(self) -> list[Card]:
        return [card for card in cards(self._root) if card.vendor == self.vendor]


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
