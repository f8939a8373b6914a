"""NVIDIA GPUs through nvidia-ml-py.

A laptop's GPU that the kernel has powered down is left asleep: opening the library would wake it, and polling
would keep it awake (`rest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agenttop.collect.gpu.base import GpuOpening, GpuReading
from agenttop.collect.gpu.cards import Card, cards
from agenttop.collect.gpu.nvidia.board import Board
from agenttop.collect.gpu.nvidia.device import Gpu
from agenttop.collect.gpu.nvidia.gpm import Gpm
from agenttop.collect.gpu.nvidia.health import Health
from agenttop.collect.gpu.nvidia.heat import Heat
from agenttop.collect.gpu.nvidia.memory import Memory
from agenttop.collect.gpu.nvidia.nvlink import NvLink
from agenttop.collect.gpu.nvidia.nvml import (
    WHY_NO_INIT,
    DriverGoneError,
    GpuLostError,
    Nvml,
    library_exists,
)
from agenttop.collect.gpu.nvidia.part import Device, Part, Slowly
from agenttop.collect.gpu.nvidia.pcie import Pcie, SlowPcie
from agenttop.collect.gpu.nvidia.plausible import text
from agenttop.collect.gpu.nvidia.power import Energy, Power
from agenttop.collect.gpu.nvidia.rest import Rest
from agenttop.collect.gpu.nvidia.surroundings import around, is_old_tegra, is_wsl, without_devices
from agenttop.collect.gpu.nvidia.throttle import Held
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.frames import GpuSample, Missing

_RETRY_S, _RETRY_MAX_S = 15.0, 240.0
"""How long a lost driver or GPU is left alone before the library is opened again; doubled each time."""
_LOOK_FOR_NEW_S = 30.0
"""Cards are counted on the bus this often: one that was plugged in is found."""


class NvidiaAdapter:
    """All NVIDIA GPUs of this host."""

    vendor = "nvidia"

    def __init__(self, clock: Clock | None = None, root: Path = Path("/")) -> None:
        self._clock = clock or SystemClock()
        self._root = root
        self._wsl = is_wsl(root)
        self._nvml: Nvml | None = None
        self._slow: SlowPcie | None = None
        self._gpus: list[Gpu] = []
        self._asleep: dict[str, Rest] = {}
        """By bus address: cards the kernel has powered down, and idle ones left alone so that it can."""
        self._rests: dict[str, Rest] = {}
        """Of cards that are read and could come to rest."""
        self._on_bus: frozenset[str] = frozenset()
        self._new = Slowly(_LOOK_FOR_NEW_S)
        self._last: dict[str, GpuSample] = {}
        self._numbers: dict[str, int] = {}
        """By identity: a GPU keeps its number when another is lost, asleep or found."""
        self._absent = False
        """There is no library of NVIDIA at all."""
        self._retry_at: float | None = None
        self._wait_s = _RETRY_S

    def open(self, t: float) -> GpuOpening:
        """Open the driver's library, unless every card is asleep."""
        if is_old_tegra(self._root):
            return GpuOpening(found=False)
        self._new.due(self._clock.monotonic())
        missing = self._open(t)
        # Without a library and without a card there is nothing of NVIDIA here: no news.
        told = missing if self._on_bus or not self._absent else []
        return GpuOpening(found=not missing, missing=told)

    def _open(self, t: float) -> list[Missing]:
        self._absent = False
        listed = self._listed()
        self._on_bus = frozenset(card.bus_id for card in listed)
        for card in listed:
            if card.suspended:
                self._asleep.setdefault(card.bus_id, Rest(self._root, card.bus_id))
        self._asleep = {bus: rest for bus, rest in self._asleep.items() if bus in self._on_bus}
        known = {sample.bus for sample in self._last.values()}
        self._last |= {
            card.bus_id: self._sleeper(t, card.bus_id)
            for card in listed
            if card.bus_id in self._asleep and card.bus_id not in known
        }
        if listed and len(self._asleep) == len(listed):
            return []
        if not library_exists():
            self._absent = True
            return [_no_driver(t, 12, listed, self._root)]
        try:
            self._connect(listed)
        except DriverGoneError as gone:
            self.close()
            return [_no_driver(t, gone.code, listed, self._root)]
        if not self._gpus:
            return [Missing(t=t, what="gpu", why="the NVIDIA driver is loaded but shows no GPU")]
        return []

    def sample(self, t: float) -> GpuReading:
        """One sample per GPU; the last known identity with state `lost` when it stopped answering."""
        at = self._clock.monotonic()
        if self._changed(at):
            self.close()
            self._retry_at = None
        if self._nvml is None:
            self._reopen(t)
        samples = {gpu: self._without_figures(t, last) for gpu, last in self._last.items()}
        instances: list[GpuSample] = []
        try:
            for gpu in self._gpus:
                sample, parts = gpu.sample(t, at)
                instances += parts
                samples.pop(sample.bus or "", None)  # what it was called while it slept
                samples[gpu.id] = sample
        except DriverGoneError:
            self.close()
        self._last = samples
        self._let_rest(at)
        if any(sample.state == "lost" for sample in samples.values()):
            self._plan_retry()
        else:
            self._retry_at, self._wait_s = None, _RETRY_S
        return GpuReading(
            samples=sorted([*samples.values(), *instances], key=_place),
            missing=[frame for gpu in self._gpus for frame in gpu.missing],
            holders={name: held for gpu in self._gpus for name, held in gpu.holders.items()},
        )

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

    def _changed(self, at: float) -> bool:
        """Whether the library has to be opened anew: a card has woken, or there are others on the bus."""
        woken = [bus for bus, rest in self._asleep.items() if rest.over(at)]
        for bus in woken:
            self._rests[bus] = self._asleep.pop(bus)
        if self._new.due(at) and frozenset(card.bus_id for card in self._listed()) - self._on_bus:
            return True
        return bool(woken)

    def _let_rest(self, at: float) -> None:
        """Leave cards alone that nobody uses and that the kernel would power down."""
        resting = []
        for sample in self._last.values():
            if sample.bus is None or sample.state != "ok" or sample.bus not in self._on_bus:
                continue
            rest = self._rests.get(sample.bus)
            if rest is None:
                rest = self._rests[sample.bus] = Rest(self._root, sample.bus)
            if rest.due(at, sample):
                resting.append(sample.bus)
        for bus in resting:
            self._asleep[bus] = self._rests.pop(bus)
        if resting:
            self.close()  # the others are read again at the next look, through a library that leaves it alone
            self._retry_at = None

    def _plan_retry(self) -> None:
        """A GPU that was reset is found again only through a library opened anew."""
        now = self._clock.monotonic()
        if self._retry_at is None:
            self._retry_at = now + self._wait_s
        elif now >= self._retry_at:
            self.close()
            self._wait_s = min(2 * self._wait_s, _RETRY_MAX_S)

    def _reopen(self, t: float) -> None:
        """Open the library again after a loss, not before its time; or once a sleeping card has woken."""
        now = self._clock.monotonic()
        if self._retry_at is None or now >= self._retry_at:
            self._retry_at = None
            self._open(t)

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
                    device.surroundings = around(device, self._root, self._wsl)
                    gpu = Gpu(device, self._parts, driver)
                    device.index = self._number(gpu, index)
                    self._gpus.append(gpu)
            except GpuLostError:
                continue

    def _number(self, gpu: Gpu, index: int) -> int:
        """The number under which this GPU was first seen; a new one gets its place in the driver's list, or
        the next that is free."""
        known = self._numbers.get(gpu.id)
        if known is None and gpu.bus is not None:
            known = self._numbers.pop(gpu.bus, None)  # seen asleep before, by its place on the bus
        if known is None:
            taken = set(self._numbers.values())
            known = index if index not in taken else max(taken) + 1
        self._numbers[gpu.id] = known
        return known

    def _parts(self, device: Device, name: str) -> Sequence[Part]:
        assert self._slow is not None
        key = str(device.index)
        gpm = Gpm()
        first: list[Part] = [Board(), Memory(name), Heat(), Power(name), Energy(), Held(), gpm]
        return [*first, Pcie(self._slow, key, gpm), NvLink(gpm), Health()]

    def _listed(self) -> list[Card]:
        return [card for card in cards(self._root) if card.vendor == self.vendor]

    def _sleeper(self, t: float, bus: str) -> GpuSample:
        """A card of which nothing but its place is known."""
        taken = set(self._numbers.values())
        order = sorted(self._on_bus).index(bus)
        number = self._numbers.setdefault(bus, order if order not in taken else max(taken) + 1)
        name = "NVIDIA GPU"
        return GpuSample(t=t, gpu=bus, index=number, vendor="nvidia", name=name, state="asleep", bus=bus)

    def _without_figures(self, t: float, last: GpuSample) -> GpuSample:
        """The identity of an older sample; a GPU that is not asleep and gives no new one is lost."""
        return GpuSample(
            t=t,
            gpu=last.gpu,
            index=last.index,
            vendor=last.vendor,
            name=last.name,
            driver=last.driver,
            bus=last.bus,
            pci_id=last.pci_id,
            state="asleep" if last.bus in self._asleep else "lost",
        )


def _place(sample: GpuSample) -> tuple[int, int]:
    """Cards in order, each followed by its instances."""
    return sample.index, -1 if sample.mig_instance is None else sample.mig_instance


def _no_driver(t: float, code: int, listed: list[Card], root: Path) -> Missing:
    why, fix = WHY_NO_INIT.get(code, (f"the NVIDIA driver could not be opened (NVML error {code})", None))
    if without_devices(root):
        why = "the NVIDIA driver is loaded, but no GPU is passed into this container (no /dev/nvidiactl)"
        fix = "start it with --gpus all, or --device nvidia.com/gpu=all, and the utility capability"
    elif code == 12 and listed:
        why = f"{len(listed)} NVIDIA card(s) present, but no NVIDIA driver (libnvidia-ml was not found)"
        fix = "install the NVIDIA driver; in a container, pass the GPU in with the utility capability"
    return Missing(t=t, what="gpu", why=why, fix=fix)
