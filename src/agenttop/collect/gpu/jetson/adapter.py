"""The GPU of a Jetson through the kernel's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from agenttop.collect.gpu.base import GpuOpening, GpuReading, Reasons
from agenttop.collect.gpu.jetson.board import Board, board
from agenttop.collect.gpu.jetson.heat import Heat
from agenttop.collect.gpu.jetson.rails import Rail, rail
from agenttop.collect.gpu.kernel_files import memory, plain, read_bytes, read_text
from agenttop.model.clock import Clock
from agenttop.model.frames import GpuSample

_LIMITS_S = 10.0
_MOST_HZ = 10_000_000_000


class JetsonAdapter:
    """The one GPU of a Jetson before Thor, which shares the board's memory."""

    vendor = "nvidia"

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = str(root).rstrip("/")
        self._board: Board | None = None
        self._heat: Heat | None = None
        self._rail: Rail | None = None
        self._driver: str | None = None
        self._at: float | None = None
        self._most: int | None = None
        self._most_at: float | None = None

    def open(self, t: float) -> GpuOpening:
        """See whether this is such a board."""
        self._board = board(self._root)
        if self._board is None:
            return GpuOpening(found=False)
        self._heat = Heat(self._root)
        self._rail = rail(self._root)
        self._driver = _release(self._root)
        return GpuOpening(found=True)

    def sample(self, t: float) -> GpuReading:
        """One look."""
        found, heat = self._board, self._heat
        if found is None or heat is None:
            return GpuReading()
        at = self._clock.monotonic()
        window, self._at = None if self._at is None else at - self._at, at
        sample = GpuSample(
            t=t,
            gpu=f"{found.chip}-{found.gpu}",
            index=0,
            vendor="nvidia",
            name=found.name,
            driver=self._driver,
            window_s=window,
            memory_kind="unified",
        )
        total, used = memory(self._root)
        asleep = self._powered_down(found)
        power = self._rail.watts() if self._rail is not None else None
        figures: dict[str, Any] = {
            "mem_total_bytes": total,
            "mem_used_bytes": used,
            "util_fraction": 0.0 if asleep else _load(found),
            "sm_clock_mhz": 0 if asleep else _mhz(found.clock, "cur_freq"),
            "sm_clock_max_mhz": self._clock_limit(at, found),
            "temperature_c": heat.temperature(),
            "hotspot_c": heat.hottest(),
            "temperature_limit_c": heat.limit_c,
            "power_w": power,
            "power_window_s": 0.0 if power is not None else None,
            "power_scope": self._rail.scope if self._rail is not None and power is not None else None,
            "throttle": heat.held(),
        }
        reasons = Reasons(sample.gpu, t)
        self._say(figures, reasons)
        return GpuReading(samples=[msgspec.structs.replace(sample, **figures)], missing=reasons.frames)

    def close(self) -> None:
        """Nothing is held."""

    def _powered_down(self, found: Board) -> bool:
        """Between two pieces of work the board takes the GPU's power away: then it does nothing."""
        if found.device is None:
            return False
        return read_text(f"{found.device}/power/runtime_status") == "suspended"

    def _clock_limit(self, at: float, found: Board) -> int | None:
        """The fastest clock there is; the power mode may allow less."""
        if self._most_at is None or at - self._most_at >= _LIMITS_S:
            self._most_at = at
            raw = read_bytes(f"{found.clock}/available_frequencies") if found.clock else None
            steps = [int(word) for word in (raw or b"").split() if word.isdigit() and len(word) <= 11]
            fastest = max((step for step in steps if step <= _MOST_HZ), default=0)
            self._most = round(fastest / 1e6) or _mhz(found.clock, "max_freq")
        return self._most

    def _say(self, figures: dict[str, Any], reasons: Reasons) -> None:
        if figures["util_fraction"] is None:
            reasons.add("util_fraction", "the GPU driver's load cannot be read")
        if figures["sm_clock_mhz"] is None:
            reasons.add("sm_clock_mhz", "the clock of the GPU cannot be read")
        if figures["temperature_c"] is None:
            why = "the board tells no temperature of the GPU, which it cannot while the GPU is powered down"
            reasons.add("temperature_c", why)
        if self._rail is None:
            why = "the meters of the supply rails (INA3221) cannot be read"
            reasons.add("power_w", why, "in a container: mount /sys of the host")
        elif figures["power_w"] is None:
            reasons.add("power_w", f"the meter of rail {self._rail.label} gives no figure")
        if figures["throttle"] is None:
            reasons.add("throttle", "the board does not tell what holds the GPU down")
        why = "a Jetson's kernel does not tell it"
        reasons.add(
            "mem_clock_mhz power_limit_w energy_j throttle_power_fraction throttle_thermal_fraction", why
        )
        reasons.add(
            "pcie_generation pcie_received_bytes_s", "the GPU is part of the chip: it has no PCIe link"
        )


def _load(found: Board) -> float | None:
    """The driver's own mean, in thousandths."""
    thousandths = plain(f"{found.device}/load", 1000) if found.device else None
    return None if thousandths is None else thousandths / 1000


def _mhz(folder: str | None, name: str) -> int | None:
    hertz = plain(f"{folder}/{name}", _MOST_HZ) if folder else None
    return round(hertz / 1e6) if hertz else None


def _release(root: str) -> str | None:
    """`L4T R36.4.3`: from `# R36 (release), REVISION: 4.3, ...`."""
    words = (read_text(f"{root}/etc/nv_tegra_release") or "").replace(",", " ").split()
    if len(words) > 4 and words[0] == "#" and words[3] == "REVISION:":
        return f"L4T {words[1]}.{words[4]}"[:40]
    return None
