"""Temperatures of a Jetson, and what holds its GPU down: heat, or a supply that gives too little.

Source: `/sys/class/thermal` (zones `gpu-thermal` or `GPU-therm`, `tj-thermal`; cooling devices named
`...-alert`), and the over-current events of `soctherm_oc` (NVIDIA Jetson Developer Guide, "Platform Power and
Performance"): counters of times at which the hardware itself slowed the chip down.
"""

from __future__ import annotations

from collections.abc import Iterable

from agenttop.collect.gpu.kernel_files import celsius, folders, plain, read_text

_GPU_ZONES = ("gpu-thermal", "gpu-therm")
_HOTTEST = ("tj-thermal", "tboard_tegra-tj")
_SLOWING = ("passive", "throttle")
"""Kinds of trip points from which on clocks are lowered."""
_ALERTS = ("gpu-throttle-alert", "hot-surface-alert")
_EVENTS = {"oc1": "power supply too low", "oc2": "over-current (average)", "oc3": "over-current (peak)"}


class Heat:
    """Zones, alerts and events of one board."""

    def __init__(self, root: str) -> None:
        zones = f"{root}/sys/class/thermal"
        kinds: dict[str, str] = {}
        self._alerts: list[str] = []
        for name in folders(zones):
            kind = (read_text(f"{zones}/{name}/type") or "").lower()
            if name.startswith("thermal_zone"):
                kinds.setdefault(kind, f"{zones}/{name}")
            elif kind in _ALERTS:
                self._alerts.append(f"{zones}/{name}/cur_state")
        self._gpu = next((kinds[kind] for kind in _GPU_ZONES if kind in kinds), None)
        self._hottest = next((kinds[kind] for kind in _HOTTEST if kind in kinds), None)
        self.limit_c = _limit(self._gpu)
        """From here the board lowers the GPU's clock."""
        self._events = dict(_events(root))
        self._counts: dict[str, int] = {}

    def temperature(self) -> float | None:
        """Of the GPU."""
        return celsius(f"{self._gpu}/temp") if self._gpu else None

    def hottest(self) -> float | None:
        """Of the hottest part of the chip."""
        return celsius(f"{self._hottest}/temp") if self._hottest else None

    def held(self) -> list[str] | None:
        """What holds the GPU down: alerts of now, and events since the look before. None where the board has
        neither."""
        if not self._alerts and not self._events:
            return None
        held = ["thermal"] if any(plain(path, 1000) for path in self._alerts) else []
        for word, path in self._events.items():
            count, before = plain(path, 1 << 62), self._counts.get(word)
            if count is not None:
                self._counts[word] = count
                if before is not None and count > before:
                    held.append(word)
        return held


def _limit(zone: str | None) -> float | None:
    if zone is None:
        return None
    points = [name.removesuffix("_type") for name in folders(zone) if name.endswith("_type")]
    slowing = [point for point in points if (read_text(f"{zone}/{point}_type") or "") in _SLOWING]
    return min((found for p in slowing if (found := celsius(f"{zone}/{p}_temp")) and found > 0), default=None)


def _events(root: str) -> Iterable[tuple[str, str]]:
    place = f"{root}/sys/class/hwmon"
    for name in folders(place):
        if read_text(f"{place}/{name}/name") == "soctherm_oc":
            for event, word in _EVENTS.items():
                path = f"{place}/{name}/{event}"
                if read_text(f"{path}_throt_en") == "1" and plain(f"{path}_event_cnt", 1 << 62) is not None:
                    yield word, f"{path}_event_cnt"
