"""MIG: a card that is split into instances, each with memory and processes of its own.

An instance is a GpuSample of its own with `parent` and `mig_instance`; power, temperature and the link are
the card's and stand there alone, so that nothing is counted twice. Instances come and go.
"""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.nvidia.gpm import Gpm
from agenttop.collect.gpu.nvidia.holders import Holders
from agenttop.collect.gpu.nvidia.memory import Memory
from agenttop.collect.gpu.nvidia.nvml import GpuLostError
from agenttop.collect.gpu.nvidia.part import Device, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.plausible import number, text
from agenttop.model.frames import GpuSample, Missing

SLOW_S = 10.0
MOST_INSTANCES = 16
WHY_SPLIT = "the card is split into MIG instances: only they are told apart"
WHY_UTIL = "the driver does not tell how busy a MIG instance is"


class Instance:
    """One of them."""

    def __init__(self, device: Device, card: Device, place: int) -> None:
        """`device` is the instance's own handle. Raises GpuLostError, DriverGoneError."""
        self.device = device
        self._card = card
        self.gpu = text(device.ask("DeviceGetUUID")) or f"MIG-{card.index}-{place}"
        self._name = text(device.ask("DeviceGetName")) or "MIG instance"
        self.number = number(device.ask("DeviceGetGpuInstanceId"), 1000)
        self._place = place
        self._memory = Memory(self._name)
        self._gpm = Gpm(self.number) if self.number is not None else None
        self.holders = Holders()
        self.missing: list[Missing] = []

    def sample(self, look: Look, card: GpuSample) -> GpuSample:
        """One look. Raises GpuLostError, DriverGoneError."""
        reasons = Reasons(self.gpu, look.t)
        own = Look(look.t, look.at, look.window, {}, {}, reasons)
        figures: Figures = self._memory.read(self.device, own)
        if self._gpm is not None:  # taken from the card, for an instance of it
            figures |= self._gpm.read(self._card, own)
        reasons.add("util_fraction", WHY_UTIL)
        self.missing = reasons.frames
        return GpuSample(
            t=look.t,
            gpu=self.gpu,
            index=card.index,
            vendor=card.vendor,
            name=self._name,
            driver=card.driver,
            bus=card.bus,
            parent=card.gpu,
            mig_instance=self.number if self.number is not None else self._place,
            window_s=look.window,
            **figures,
        )

    def close(self) -> None:
        """Give samples back."""
        if self._gpm is not None:
            self._gpm.close()


class Mig:
    """The instances of one card."""

    def __init__(self) -> None:
        self._slowly = Slowly(SLOW_S)
        self._instances: list[Instance] = []
        self.on = False

    def samples(self, device: Device, look: Look, card: GpuSample) -> list[GpuSample]:
        """One sample each; none where the card is not split. Raises GpuLostError, DriverGoneError."""
        if self._slowly.due(look.at):
            self._find(device)
        found = []
        for instance in list(self._instances):
            try:
                found.append(instance.sample(look, card))
            except GpuLostError:  # destroyed since it was found; the card is asked for itself
                self._drop(instance)
        return found

    @property
    def instances(self) -> list[Instance]:
        """Those there are now."""
        return self._instances

    def close(self) -> None:
        """Let all go."""
        for instance in list(self._instances):
            self._drop(instance)

    def _drop(self, instance: Instance) -> None:
        instance.close()
        self._instances.remove(instance)

    def _find(self, device: Device) -> None:
        mode = device.ask("DeviceGetMigMode")
        self.on = bool(mode and mode[0])
        handles: list[tuple[int, Any]] = []
        if self.on:
            most = number(device.ask("DeviceGetMaxMigDeviceCount"), MOST_INSTANCES) or 0
            for place in range(most):
                handle = device.ask("DeviceGetMigDeviceHandleByIndex", place)
                if handle is not None:
                    handles.append((place, handle))
        fresh: dict[str, Instance] = {}
        for place, handle in handles:
            own = Device(device.nvml, handle, 1000 * (device.index + 1) + place, device.surroundings)
            try:
                instance = Instance(own, device, place)
            except GpuLostError:
                continue
            fresh[instance.gpu] = instance
        known = {instance.gpu: instance for instance in self._instances}
        for gone in [instance for gpu, instance in known.items() if gpu not in fresh]:
            self._drop(gone)
        self._instances = [known.get(gpu, instance) for gpu, instance in fresh.items()]
