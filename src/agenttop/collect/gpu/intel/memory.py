"""Memory of an Intel GPU: how much there is, and how much of it is used.

The driver tells the size to anybody who may open the card's device node, and what is used to privileged
processes alone. Without the privilege it is at least what the processes that can be seen hold. Graphics
inside a CPU have no memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.collect.gpu.intel import regions
from agenttop.collect.gpu.intel.engines import Client
from agenttop.collect.gpu.kernel_files import folders, memory, plain

_EVERY_S = 5.0
_TELLING = 1 << 38 | 1 << 21
"""CAP_PERFMON, and CAP_SYS_ADMIN that stood for it before."""
_LARGEST = 1 << 50
FIX = "sudo agenttop, or give its Python the capability: sudo setcap cap_perfmon+ep"


class CardMemory:
    """The memory of one GPU from look to look."""

    def __init__(
        self,
        root: str,
        device: str,
        driver: str,
        nodes: Sequence[str],
        integrated: bool,
        query: regions.Query,
    ) -> None:
        """`device` is the card's folder in /sys, `nodes` are its files in /dev/dri."""
        self._root = root
        self._device = device
        self._driver = driver
        self._node = next((node for node in nodes if "render" in node), None)
        self._integrated = integrated
        self._query = query
        self._at: float | None = None
        self._told: regions.Memory | None = None
        self._physical: int | None = None

    def read(
        self, at: float, clients: Iterable[Client], capabilities: int, reasons: Reasons
    ) -> dict[str, Any]:
        """Figures of one look; with `visible_only` where what is used is the sum over the clients given."""
        if self._integrated:
            total, used = memory(self._root)
            return {"mem_total_bytes": total, "mem_used_bytes": used, "memory_kind": "unified"}
        privileged = bool(capabilities & _TELLING)
        if self._at is None or at - self._at >= _EVERY_S:
            self._at = at
            self._ask(privileged)
        total = self._told.total if self._told is not None else self._physical
        figures: dict[str, Any] = {"memory_kind": "dedicated", "mem_total_bytes": total}
        if total is None:
            why = (
                f"{self._node or '/dev/dri'} cannot be opened, and nothing else tells the size of the memory"
            )
            reasons.add("mem_total_bytes", why, "sudo usermod -aG render $USER, then log in again")
        if self._told is not None and privileged:
            return figures | {"mem_used_bytes": self._told.used}
        held = [
            max(0, client.local_bytes - client.local_shared_bytes)
            for client in clients
            if client.local_bytes is not None
        ]
        if held:
            used = sum(held)
            return figures | {
                "mem_used_bytes": used if total is None else min(used, total),
                "visible_only": True,
            }
        reasons.add("mem_used_bytes", "the driver tells it to privileged processes alone", FIX)
        return figures

    def _ask(self, privileged: bool) -> None:
        if self._node is not None and (self._told is None or privileged):
            answer = self._query(f"{self._root}{self._node}", self._driver)
            self._told = regions.memory_of(answer, self._driver)
        if self._told is None:
            # What xe tells of each tile: all the memory there is, of which a little is kept back.
            tiles = [name for name in folders(self._device) if name.startswith("tile")]
            sizes = [plain(f"{self._device}/{tile}/physical_vram_size_bytes", _LARGEST) for tile in tiles]
            self._physical = sum(size for size in sizes if size) or None
