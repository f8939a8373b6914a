"""One NVIDIA GPU: what never changes, and the parts that read the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.nvidia.holders import Holders
from agenttop.collect.gpu.nvidia.mig import WHY_SPLIT, Mig
from agenttop.collect.gpu.nvidia.nvml import GpuLostError
from agenttop.collect.gpu.nvidia.part import Device, Figures, Look, Part
from agenttop.collect.gpu.nvidia.plausible import text
from agenttop.model.frames import GpuSample, Missing


class Gpu:
    """One GPU: its identity, and its parts in the order in which they read."""

    def __init__(
        self, device: Device, parts: Callable[[Device, str], Sequence[Part]], driver: str | None
    ) -> None:
        """`parts` are made from the device and its name. Raises GpuLostError, DriverGoneError."""
        self.device = device
        self._driver = driver
        self._name = text(device.ask("DeviceGetName")) or "NVIDIA GPU"
        self._parts = parts(device, self._name)
        info = device.ask("DeviceGetPciInfo_v3")
        self._bus = _bus(info)
        self._pci_id = _pci_id(info)
        self.id = text(device.ask("DeviceGetUUID")) or self._bus or f"nvidia-{device.index}"
        self._at: float | None = None
        self._mig = Mig()
        self._holders = Holders()
        self.missing: list[Missing] = []
        """Why figures of the newest look are None, those of instances included."""
        self.holders: dict[str, dict[int, int | None]] = {}
        """By GPU or instance: process id to bytes."""

    @property
    def bus(self) -> str | None:
        """Its place on the PCI bus as the kernel writes it."""
        return self._bus

    def sample(self, t: float, at: float) -> tuple[GpuSample, list[GpuSample]]:
        """One look at the GPU, and its MIG instances; the identity alone when the GPU is lost.

        Raises DriverGoneError.
        """
        try:
            return self._look(t, at)
        except GpuLostError:
            self.holders = {}
            # Why figures were missing before holds until it is back.
            return self._identity(t, "lost"), []

    def close(self) -> None:
        """Let all parts go."""
        for part in self._parts:
            part.close()
        self._mig.close()

    def _identity(self, t: float, state: str) -> GpuSample:
        return GpuSample(
            t=t,
            gpu=self.id,
            index=self.device.index,
            vendor="nvidia",
            name=self._name,
            driver=self._driver,
            state=state,
            bus=self._bus,
            pci_id=self._pci_id,
        )

    def _look(self, t: float, at: float) -> tuple[GpuSample, list[GpuSample]]:
        window = None if self._at is None else at - self._at
        self._at = at
        wanted = list(dict.fromkeys(field for part in self._parts for field in part.wanted(at)))
        fields = self.device.nvml.fields(self.device.handle, wanted, device=self.device.index)
        figures: Figures = {"window_s": window}
        reasons = Reasons(self.id, t)
        for part in self._parts:
            figures |= part.read(self.device, Look(t, at, window, fields, figures, reasons))
        card = msgspec.structs.replace(self._identity(t, "ok"), **figures)
        instances = self._mig.samples(self.device, Look(t, at, window, fields, figures, reasons), card)
        if self._mig.on:
            card = msgspec.structs.replace(card, mig=True)
            if card.util_fraction is None:
                reasons.add("util_fraction", WHY_SPLIT)
        elif card.util_fraction is None:
            reasons.add("util_fraction", "this GPU does not tell how busy it is")
        self.holders = self._read_holders(at, reasons)
        self.missing = [*reasons.frames, *(frame for each in self._mig.instances for frame in each.missing)]
        return card, instances

    def _read_holders(self, at: float, reasons: Reasons) -> dict[str, dict[int, int | None]]:
        """Of a card that is split the instances tell: there each process stands once."""
        if self._mig.instances:
            return {each.gpu: each.holders.read(each.device, at) for each in self._mig.instances}
        held = self._holders.read(self.device, at)
        if self._holders.why is not None:
            reasons.add("holders", self._holders.why)
        return {self.id: held}


def _bus(info: Any) -> str | None:
    """`00000000:01:00.0` as the kernel writes it: with a domain of four digits."""
    found = text(getattr(info, "busId", None))
    if found is None:
        return None
    domain, colon, rest = found.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if colon and len(domain) == 8 else found.lower()


def _pci_id(info: Any) -> str | None:
    """NVML packs the device in the upper half and the vendor in the lower one."""
    packed = getattr(info, "pciDeviceId", None)
    return (
        f"{packed & 0xFFFF:04x}:{packed >> 16 & 0xFFFF:04x}" if isinstance(packed, int) and packed else None
    )
