"""One Intel GPU: what never changes, and one look at the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.intel import regions
from agenttop.collect.gpu.intel.engines import Client, Usage
from agenttop.collect.gpu.intel.graphics import Graphics, units
from agenttop.collect.gpu.intel.link import Link
from agenttop.collect.gpu.intel.memory import CardMemory
from agenttop.collect.gpu.intel.names import name_of
from agenttop.collect.gpu.intel.rest import Rest
from agenttop.collect.gpu.intel.sensors import Sensors
from agenttop.collect.gpu.kernel_files import folders, plain, read_text, target
from agenttop.model.frames import GpuSample, Missing

DRIVERS = ("i915", "xe")
_INTEGRATED_BUS = "0000:00:02.0"
"""Where graphics inside an Intel CPU always are; never a card's place."""
_ASLEEP = 0.01
"""Share of the time awake below which nothing can have worked."""
_CLOSE = 0.05
"""Where the card was awake for no longer than this beyond what visible processes did, that was all."""

_UNSEEN = "processes of other users cannot be looked into"
_UNSEEN_FIX = "run agenttop as root, or as the user of the engine"


def driver_of(root: str, bus: str) -> str | None:
    """The kernel module that drives a card; None for none."""
    found = target(f"{root}/sys/bus/pci/devices/{bus}/driver")
    return found.rpartition("/")[2] or None if found else None


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a card needs that is not the card's own."""

    clients: Mapping[str, Client]
    """Clients of the card that can be seen, by number."""
    complete: bool
    """They are all there are."""
    capabilities: int
    """Of this process, as the kernel's mask."""


class Card:
    """One Intel GPU that i915 or xe drives."""

    def __init__(self, root: str, bus: str, index: int, driver: str, query: regions.Query) -> None:
        """`query` asks a driver for its memory regions."""
        self.bus = bus
        self._driver = driver
        self._device = f"{root}/sys/bus/pci/devices/{bus}"
        self._integrated = bus == _INTEGRATED_BUS
        nodes = [name for name in folders(f"{self._device}/drm") if _is_node(name)]
        self.nodes = [f"/dev/dri/{name}" for name in nodes]
        number = (read_text(f"{self._device}/device") or "").removeprefix("0x")[:8]
        kernel = read_text(f"{root}/proc/sys/kernel/osrelease")
        self._identity = GpuSample(
            t=0.0,
            gpu=bus,
            index=index,
            vendor="intel",
            name=name_of(number, root),
            driver=f"{driver} (Linux {kernel})"[:80] if kernel else driver,
            bus=bus,
            pci_id=f"8086:{number}" if number else None,
        )
        self._card = next((f"{self._device}/drm/{name}" for name in nodes if name.startswith("card")), None)
        self._sensors: Sensors | None = None
        self._graphics: Graphics | None = None
        self._memory = CardMemory(root, self._device, driver, self.nodes, self._integrated, query)
        self._link = Link(self._device, self._integrated)
        self._usage = Usage()
        self._rest = Rest()
        self._at: float | None = None
        self.missing: list[Missing] = []
        """Why figures of the newest look are None."""

    def state(self, at: float) -> str:
        """ok, asleep, lost; or rest: awake, and left alone. Wakes nothing."""
        status = read_text(f"{self._device}/power/runtime_status")
        if status is None and not folders(self._device):
            return "lost"
        if status in ("suspended", "suspending"):
            self._rest.slept()
            return "asleep"
        return "rest" if self._rest.resting(at) else "ok"

    def without_figures(self, t: float, state: str) -> GpuSample:
        """The identity alone: of a card that sleeps, is lost, or rests."""
        self._at, self._usage = None, Usage()
        self._sensors = self._graphics = None
        reasons = Reasons(self.bus, t)
        if state == "rest":
            why = "idle, and left alone for a few seconds so that it can power down"
            reasons.add("util_fraction power_w sm_clock_mhz temperature_c mem_used_bytes throttle", why)
        self.missing = reasons.frames
        return msgspec.structs.replace(self._identity, t=t, state="ok" if state == "rest" else state)

    def sample(self, t: float, at: float, around: Around) -> GpuSample:
        """One look at a card that is awake."""
        window, self._at = None if self._at is None else at - self._at, at
        reasons = Reasons(self.bus, t)
        # Made at the first look and not before: which files there are is only known of a card that is awake.
        graphics = self._graphics = self._graphics or Graphics(units(self._device, self._card, self._driver))
        sensors = self._sensors = self._sensors or Sensors(self._device, self._driver)
        figures: dict[str, Any] = {"window_s": window}
        figures |= graphics.read(at, reasons)
        figures |= sensors.read(at, reasons, self._integrated)
        figures |= self._link.read(at, reasons)
        figures |= self._memory.read(at, around.clients.values(), around.capabilities, reasons)
        busy = self._busy(at, around, graphics.awake_fraction, reasons)
        figures |= busy | {"visible_only": bool(figures.get("visible_only") or busy.get("visible_only"))}
        if figures["visible_only"]:
            why = f"{_UNSEEN}: utilisation and memory used are at least what is shown"
            reasons.add("visible_only", why, _UNSEEN_FIX)
        reasons.add("mem_clock_mhz mem_util_fraction", "the driver does not tell")
        self.missing = reasons.frames
        self._rest.begin(at, graphics.awake_fraction, bool(around.clients), self._delay())
        return msgspec.structs.replace(self._identity, t=t, **figures)

    def _busy(self, at: float, around: Around, awake: float | None, reasons: Reasons) -> dict[str, Any]:
        """How busy it is, as far as that can be known: it was awake for at least as long as it worked, and it
        worked for at least as long as the processes that can be seen had it work."""
        busy = self._usage.busy_fraction(at, around.clients)
        if awake is not None and awake <= _ASLEEP:
            return {"util_fraction": 0.0}
        if around.clients and not any(client.busy for client in around.clients.values()):
            why = "this kernel does not count the work of processes"
            reasons.add("util_fraction", why, "update the kernel (i915: 5.19, xe: 6.11)")
            return {}
        if not around.clients:
            if around.complete:
                return {"util_fraction": 0.0}
            why = f"{_UNSEEN}, and none of this user's uses the card"
            reasons.add("util_fraction", why, _UNSEEN_FIX)
            return {}
        unsure = not around.complete and (awake is None or busy is None or awake - busy > _CLOSE)
        return {"util_fraction": busy, "visible_only": unsure and busy is not None}

    def _delay(self) -> int | None:
        """Milliseconds without use after which the kernel powers the card down; None where it never does."""
        if read_text(f"{self._device}/power/control") != "auto":
            return None
        return plain(f"{self._device}/power/autosuspend_delay_ms", 1 << 31)


def _is_node(name: str) -> bool:
    return name.startswith(("card", "renderD")) and "-" not in name
