"""Requests in flight that the engine knows nothing of: they wait somewhere in between.

A client that caps its connections, a proxy, an engine with fewer HTTP threads than requests: each holds
requests back in silence, and the engine looks less loaded than it is asked to be.
"""

from __future__ import annotations

from collections import deque

import msgspec

from agenttop.model import units
from agenttop.model.frames import EngineSample, Event, LoadSample

LASTING = 5
LASTING_S = 4.0
"""Samples in a row with unseen requests, and their span in real time, before it is told: the two counts are
taken at different moments."""

LEAST_SHARE = 0.1

STALE_S = 5.0


class Unseen:
    """Compares what the driver has in flight with what the engine runs and holds back."""

    def __init__(self, rate: float = 1.0) -> None:
        """`rate`: session seconds per second."""
        self._stale_s = STALE_S * rate
        self._lasting_s = LASTING_S * rate
        self._row: deque[tuple[float, int]] = deque()
        self._told = False

    def compare(self, load: LoadSample, engine: EngineSample | None) -> tuple[LoadSample, list[Event]]:
        """The sample with `unseen_in_flight`, where the engine counts both, and an event when it lasts."""
        counts = self._counts(load, engine)
        if counts is None:
            self._row.clear()
            return load, []
        unseen = max(0, load.in_flight - counts)
        load = msgspec.structs.replace(load, unseen_in_flight=unseen)
        self._row.append((load.t, unseen))
        while len(self._row) > LASTING and load.t - self._row[1][0] >= self._lasting_s:
            self._row.popleft()
        least = min(count for _, count in self._row)
        lasted = len(self._row) >= LASTING and load.t - self._row[0][0] >= self._lasting_s
        if not lasted or least <= LEAST_SHARE * load.in_flight:
            self._told = self._told and least > 0
            return load, []
        if self._told:
            return load, []
        self._told = True
        text = (
            f"{units.plural(least, 'request')} of {load.in_flight} in flight unknown to the engine: waiting "
            "in between (a proxy, a limit of connections, the engine's HTTP threads)"
        )
        event = Event(t=load.t, event="load.unseen", text=text, source="node", severity="warn")
        return load, [event]

    def _counts(self, load: LoadSample, engine: EngineSample | None) -> int | None:
        if engine is None or engine.state != "ok" or engine.running is None or engine.waiting is None:
            return None
        if load.t - engine.t > self._stale_s:
            return None
        return engine.running + engine.waiting
