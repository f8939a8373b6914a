"""Intel GPUs through the kernel's own files.

A card that the kernel has powered down is left asleep: the files of i915 and xe wake it, so nothing but its
power state is read.
"""

from __future__ import annotations

from pathlib import Path

from agenttop.collect.gpu.base import GpuOpening, GpuReading
from agenttop.collect.gpu.cards import cards
from agenttop.collect.gpu.intel import regions
from agenttop.collect.gpu.intel.card import DRIVERS, Around, Card, driver_of
from agenttop.collect.gpu.intel.clients import Clients, capabilities
from agenttop.model.clock import Clock
from agenttop.model.frames import GpuSample, Missing

_SEARCH_S = 30.0
"""New cards are looked for this often: a card plugged in, a driver loaded later."""


class IntelAdapter:
    """All Intel GPUs of this host."""

    vendor = "intel"

    def __init__(self, clock: Clock, root: Path = Path("/"), query: regions.Query = regions.ask) -> None:
        """`query` asks a driver for its memory regions."""
        self._clock = clock
        self._place = root
        self._root = str(root).rstrip("/")
        self._query = query
        self._cards: dict[str, Card] = {}
        self._clients = Clients(self._root)
        self._capabilities = 0
        self._searched = 0.0

    def open(self, t: float) -> GpuOpening:
        """Look for the cards."""
        without = self._search()
        missing = []
        if without:
            named = " and ".join(sorted({driver or "no driver" for driver in without.values()}))
            why = f"{len(without)} Intel GPU(s) driven by {named}, and not by i915 or xe"
            missing.append(Missing(t=t, what="gpu", why=why))
        return GpuOpening(found=bool(self._cards), missing=missing)

    def sample(self, t: float) -> GpuReading:
        """One look at every card."""
        at = self._clock.monotonic()
        if at - self._searched >= _SEARCH_S:
            self._search()
        states = {bus: card.state(at) for bus, card in self._cards.items()}
        awake = [card for bus, card in self._cards.items() if states[bus] == "ok"]
        samples: list[GpuSample] = []
        holders: dict[str, dict[int, int | None]] = {}
        seen = self._clients.look(at, [node for card in awake for node in card.nodes]) if awake else None
        for bus, card in self._cards.items():
            if states[bus] != "ok" or seen is None:
                samples.append(card.without_figures(t, states[bus]))
                continue
            clients, complete = seen.of.get(bus, {}), self._clients.complete
            around = Around(clients=clients, complete=complete, capabilities=self._capabilities)
            samples.append(card.sample(t, at, around))
            holders[bus] = seen.holders.get(bus, {})
        missing = [frame for card in self._cards.values() for frame in card.missing]
        return GpuReading(samples=samples, missing=missing, holders=holders)

    def close(self) -> None:
        """Nothing is held."""

    def _search(self) -> dict[str, str | None]:
        """Adds cards that are new; returns those that neither driver has, with the driver they have."""
        self._searched = self._clock.monotonic()
        self._capabilities = capabilities(self._root)
        without: dict[str, str | None] = {}
        for listed in cards(self._place):
            if listed.vendor != self.vendor or listed.bus_id in self._cards:
                continue
            driver = driver_of(self._root, listed.bus_id)
            if driver in DRIVERS:
                index = len(self._cards)
                self._cards[listed.bus_id] = Card(self._root, listed.bus_id, index, driver, self._query)
            else:
                without[listed.bus_id] = driver
        return without
