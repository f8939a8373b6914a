"""How full the memory is, of cards that have some and of those that share the host's."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from agenttop.collect.gpu.nvidia.nvml import NO_PERMISSION
from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look

SHARED = re.compile(r"GB10|DGX Spark|\bThor\b|\bOrin\b|Tegra|\bN1X?\b")
"""Names of GPUs without memory of their own. Their driver tells no size, or 0."""


class Memory:
    """Used and total; the driver's own share apart, where the newer form of the call is there."""

    def __init__(self, name: str) -> None:
        """`name` of the GPU: it tells whether a size of nothing means the host's memory."""
        self._may_share = SHARED.search(name) is not None

    def wanted(self, at: float) -> list[FieldId]:
        """None."""
        return []

    def read(self, device: Device, look: Look) -> Figures:
        """One look. The first form of the call counts what the driver reserves as used."""
        version = device.constant("nvmlMemory_v2")
        info = device.ask("DeviceGetMemoryInfo", version) if version else None
        reserved = getattr(info, "reserved", None)
        info = info or device.ask("DeviceGetMemoryInfo")
        if info is not None and info.total and info.used <= info.total:
            return {
                "mem_used_bytes": int(info.used),
                "mem_total_bytes": int(info.total),
                "mem_reserved_bytes": int(reserved) if reserved is not None else None,
                "memory_kind": "dedicated",
            }
        if self._may_share and (info is None or not info.total):
            return _of_host(device, look)
        look.reasons.add("mem_used_bytes mem_total_bytes", _why(device))
        return {}

    def close(self) -> None:
        """Nothing is held."""


def _of_host(device: Device, look: Look) -> Figures:
    device.unified = True
    sizes = read_meminfo(device.surroundings.root)
    total, free = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is None or free is None:
        look.reasons.add("mem_used_bytes mem_total_bytes", "it shares the host's memory, which is not told")
        return {"memory_kind": "unified"}
    used = max(0, total - free)
    return {"mem_used_bytes": used, "mem_total_bytes": total, "memory_kind": "unified"}


def read_meminfo(root: Path) -> dict[str, int]:
    """Sizes in bytes of /proc/meminfo below `root`; empty where it cannot be read."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines()[:8]:
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdigit():
                found[name] = int(words[0]) * 1024
    return found


def _why(device: Device) -> str:
    if device.surroundings.wsl:
        return "not told under WSL"
    if device.refused("DeviceGetMemoryInfo") == NO_PERMISSION:
        return "the driver does not tell it to this user"
    return "this GPU does not tell how much memory it has"
