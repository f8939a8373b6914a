"""All AMD GPUs of this host, by the files of the amdgpu driver: no library, no privileges.

A card that the kernel has powered down is left alone: of it nothing is read but that it sleeps, since older
drivers wake a card for any other file. `pcie_bw` is never read: it blocks for a second.
"""

from __future__ import annotations

import os
from pathlib import Path

from agenttop.collect.gpu.amd.card import Card
from agenttop.collect.gpu.amd.holders import Holders
from agenttop.collect.gpu.amd.smi import Violations
from agenttop.collect.gpu.base import GpuOpening, GpuReading, Reasons
from agenttop.collect.gpu.cards import cards
from agenttop.collect.gpu.kernel_files import read_text, target
from agenttop.model.clock import Clock
from agenttop.model.frames import GpuSample, Missing
from agenttop.model.text import clean

_SLEEPS = frozenset({"suspended", "suspending", "resuming"})
_AGAIN_S = 5.0
"""A lost card is looked for this often, and so are drivers that were not bound."""
_BUS_S = 30.0
"""New cards are looked for this often: eGPUs, and cards handed back by a virtual machine."""

_DRIVERS = {
    "vfio-pci": ("is handed to a virtual machine (vfio-pci)", None),
    "radeon": (
        "runs on the old driver radeon, which tells nothing",
        "boot with amdgpu.si_support=1 or cik_support=1",
    ),
    None: ("has no driver", "load the amdgpu driver (modprobe amdgpu)"),
}


class AmdAdapter:
    """All AMD GPUs of this host."""

    vendor = "amd"

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._where = root
        self._root = str(root).rstrip("/")
        self._buses: list[str] = []
        """In the order of the bus when first seen: a card keeps its number."""
        self._cards: dict[str, Card] = {}
        """Those that are awake and answer."""
        self._last: dict[str, GpuSample] = {}
        self._again: dict[str, float] = {}
        """When a card that was lost is tried again."""
        self._bus_due = 0.0
        self._unbound: list[Missing] = []
        self._holders = Holders(self._root)
        self._violations: Violations | None = None
        self._driver: str | None = None

    def open(self, t: float) -> GpuOpening:
        """Look for the cards; wakes none that sleeps."""
        self._driver = self._driver_version()
        self._look_at_bus(t, self._clock.monotonic())
        return GpuOpening(found=bool(self._buses), missing=self._unbound)

    def sample(self, t: float) -> GpuReading:
        """One look at all cards."""
        at = self._clock.monotonic()
        if at >= self._bus_due:
            self._look_at_bus(t, at)
        samples: list[GpuSample] = []
        missing: list[Missing] = []
        for index, bus in enumerate(self._buses):
            sample = self._last[bus] = self._one(t, at, index, bus)
            samples.append(sample)
            if (card := self._cards.get(bus)) is not None:
                missing += card.missing
        self._holders.look(at, {bus: card.pool for bus, card in self._cards.items()})
        missing += self._unseen_holders(t)
        self._ask_library(samples)
        return GpuReading(samples=samples, missing=missing, holders=self._holders.held)

    def close(self) -> None:
        """Let go of AMD's library, where it was needed."""
        if self._violations is not None:
            self._violations.close()
            self._violations = None

    def _one(self, t: float, at: float, index: int, bus: str) -> GpuSample:
        if read_text(f"{self._root}/sys/bus/pci/devices/{bus}/power/runtime_status") in _SLEEPS:
            self._cards.pop(bus, None)
            self._again.pop(bus, None)
            return self._without_figures(t, index, bus, "asleep")
        card = self._cards.get(bus)
        if card is None and at >= self._again.get(bus, at) and self._bound(bus):
            card = self._cards[bus] = Card(self._root, bus, index, self._driver)
        if card is not None:
            if self._violations is not None:
                card.violations = self._violations.latest(bus)
            sample = card.sample(t, at)
            if sample is not None:
                self._again.pop(bus, None)
                return sample
            del self._cards[bus]
        if at >= self._again.get(bus, at):
            self._again[bus] = at + _AGAIN_S
        return self._without_figures(t, index, bus, "lost")

    def _without_figures(self, t: float, index: int, bus: str, state: str) -> GpuSample:
        last = self._last.get(bus)
        return GpuSample(
            t=t,
            gpu=bus,
            index=index,
            vendor="amd",
            name=last.name if last is not None else "AMD GPU",
            state=state,
            driver=self._driver,
            bus=bus,
            pci_id=last.pci_id if last is not None else None,
        )

    def _look_at_bus(self, t: float, at: float) -> None:
        self._bus_due = at + _BUS_S
        self._unbound = []
        for card in cards(self._where):
            if card.vendor != self.vendor or card.bus_id in self._buses:
                continue
            if card.suspended or self._bound(card.bus_id):
                self._buses.append(card.bus_id)
            else:
                driver = self._bound_to(card.bus_id)
                why, fix = _DRIVERS.get(driver, (f"runs on the driver {driver}", None))
                self._unbound.append(
                    Missing(t=t, what="gpu", why=f"the AMD card {card.bus_id} {why}", fix=fix)
                )

    def _bound_to(self, bus: str) -> str | None:
        found = target(f"{self._root}/sys/bus/pci/devices/{bus}/driver")
        return clean(os.path.basename(found), 40) if found else None  # noqa: PTH119

    def _bound(self, bus: str) -> bool:
        return self._bound_to(bus) == "amdgpu"

    def _driver_version(self) -> str | None:
        own = read_text(f"{self._root}/sys/module/amdgpu/version")
        kernel = read_text(f"{self._root}/proc/sys/kernel/osrelease")
        if own is not None:
            return clean(f"amdgpu {own}", 60)
        return clean(f"amdgpu of Linux {kernel}", 60) if kernel is not None else None

    def _unseen_holders(self, t: float) -> list[Missing]:
        why = self._holders.why()
        frames: list[Missing] = []
        for bus in self._cards if why is not None else ():
            reasons = Reasons(bus, t)
            reasons.add("holders", *(why or ("", None)))
            frames += reasons.frames
        return frames

    def _ask_library(self, samples: list[GpuSample]) -> None:
        """Start AMD's library where it is needed, and stop it where it would keep a card from sleeping."""
        awake = all(sample.state == "ok" for sample in samples)
        needed = awake and any(card.needs_library for card in self._cards.values())
        if needed and self._violations is None:
            self._violations = Violations(self._root or "/", self._clock)
        elif not needed:
            self.close()
