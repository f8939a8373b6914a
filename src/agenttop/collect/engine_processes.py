"""The processes of each engine, and whoever else holds memory of a GPU: CPU, memory, faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agenttop.model.clock import Clock
from agenttop.model.frames import ProcessSample

Holders = Mapping[str, Mapping[int, int | None]]
"""By GPU: process id to bytes held there, as `GpuReading.holders`."""


class EngineProcesses:
    """Samples process trees. Used from one thread."""

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = root

    def sample(self, t: float, engines: Mapping[str, int], holders: Holders) -> list[ProcessSample]:
        """One look; every process that was in the look before and has gone is told once, as ended.

        `engines`: URL of each engine on this host to its process id.
        """
        return []
