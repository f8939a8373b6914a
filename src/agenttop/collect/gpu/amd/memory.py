"""Memory of one card, and the fastest clocks its tables list.

An APU has a carve-out of RAM that is called VRAM (512 MB up to most of the machine), and maps further RAM
through its GTT: models live in either, so that both together are its memory. A card's GTT is RAM across the
bus and not counted.
"""

from __future__ import annotations

import re
from typing import Any

from agenttop.collect.gpu.amd.files import Files
from agenttop.collect.gpu.amd.reasons import Lacks

_MOST = 1 << 46
"""64 TiB: no card has more. A difference of the driver that went below zero is far above."""
_SLOW_S = 30.0
_GIB = 1 << 30
_LEVEL = re.compile(rb"^\S+: +(\d{1,5})Mhz", re.MULTILINE | re.IGNORECASE)


class Memory:
    """The memory of one card."""

    def __init__(self, files: Files, *, pool: bool, shared: bool) -> None:
        """`shared`: its only memory is the machine's own (MI300A)."""
        self._files = files
        self.pool = pool
        self._kind = "vram+gtt" if pool else "unified" if shared else "dedicated"
        self._due = 0.0
        self._totals: dict[str, int | None] = {}
        self._clocks: dict[str, int | None] = {}

    @staticmethod
    def looks_like_carve_out(files: Files) -> bool:
        """Very little memory of its own, and much more of RAM."""
        vram, gtt = (files.value(f"mem_info_{part}_total", _MOST) for part in ("vram", "gtt"))
        return vram is not None and gtt is not None and vram <= _GIB and gtt >= 2 * _GIB

    def slowly(self, at: float) -> None:
        """Read what hardly changes, where it is due."""
        if at < self._due:
            return
        self._due = at + _SLOW_S
        for part in ("vram", "gtt") if self.pool else ("vram",):
            self._totals[part] = self._files.value(f"mem_info_{part}_total", _MOST) or None
        for name in ("pp_dpm_sclk", "pp_dpm_mclk"):
            levels = [int(level) for level in _LEVEL.findall(self._files.raw(name) or b"")]
            self._clocks[name] = max(levels, default=0) or None

    def clock_max_mhz(self, name: str) -> int | None:
        """The fastest clock that a table lists."""
        return self._clocks.get(name)

    def figures(self) -> dict[str, Any]:
        """One look."""
        found: dict[str, Any] = {"memory_kind": self._kind}
        vram, vram_total = self._part("vram")
        if not self.pool:
            return found | {"mem_used_bytes": vram, "mem_total_bytes": vram_total}
        gtt, gtt_total = self._part("gtt")
        return found | {
            "mem_used_bytes": None if vram is None or gtt is None else vram + gtt,
            "mem_total_bytes": None if vram_total is None or gtt_total is None else vram_total + gtt_total,
            "mem_vram_used_bytes": vram,
            "mem_vram_total_bytes": vram_total,
            "mem_gtt_used_bytes": gtt,
            "mem_gtt_total_bytes": gtt_total,
        }

    def explain(self, lacks: Lacks) -> None:
        """Why figures are missing."""
        for part in ("vram", "gtt") if self.pool else ("vram",):
            for what in ("used", "total"):
                name = f"mem_info_{part}_{what}"
                if self._files.failed(name):
                    parts = f" mem_{part}_{what}_bytes" if self.pool else ""
                    lacks.add(f"mem_{what}_bytes{parts}", *self._files.why(name))

    def _part(self, part: str) -> tuple[int | None, int | None]:
        total = self._totals.get(part)
        used = self._files.value(f"mem_info_{part}_used", total if total is not None else _MOST)
        return used, total
