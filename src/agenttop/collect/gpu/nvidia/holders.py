"""Which processes hold how much of a GPU's memory, as NVIDIA's driver tells.

Process ids are those of the host, also inside a container; whose they are is found out elsewhere. A process
that computes and draws is in both lists with the same size, so the larger one counts.
"""

from __future__ import annotations

from agenttop.collect.gpu.nvidia.part import Device, Slowly

SLOW_S = 3.0
LISTS = ("DeviceGetComputeRunningProcesses", "DeviceGetGraphicsRunningProcesses")
MOST_PROCESSES = 1000


class Holders:
    """Of one GPU or one MIG instance."""

    def __init__(self) -> None:
        self._slowly = Slowly(SLOW_S)
        self._held: dict[int, int | None] = {}
        self.why: str | None = None
        """Why nothing, or not how much, is told; None where all is."""

    def read(self, device: Device, at: float) -> dict[int, int | None]:
        """Process id to bytes, None where the driver does not tell how many; a few seconds old at most.

        Raises GpuLostError, DriverGoneError.
        """
        if not self._slowly.due(at):
            return self._held
        found: dict[int, int | None] = {}
        lists = [device.ask(function) for function in LISTS]
        for each in [process for some in lists for process in (some or [])[:MOST_PROCESSES]]:
            size = each.usedGpuMemory
            known = found.get(int(each.pid))
            sizes = [int(value) for value in (size, known) if value is not None]
            found[int(each.pid)] = max(sizes, default=None)
        self._held = found
        self.why = self._reason(device, told=any(some is not None for some in lists))
        return found

    def _reason(self, device: Device, *, told: bool) -> str | None:
        if device.surroundings.wsl:
            return "processes are not told under WSL"
        if not told:
            return "the driver does not tell which processes use this GPU"
        if self._held and all(size is None for size in self._held.values()):
            return "the driver tells which processes use this GPU, not how much memory they hold"
        return None
