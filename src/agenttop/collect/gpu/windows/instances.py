"""Instances of Windows' GPU counters as figures of adapters. Pure.

Source: names of instances as Windows 10 1709 and later write them:
`pid_1234_luid_0x00000000_0x0001532A_phys_0_eng_2_engtype_Compute 0`, `luid_..._phys_0`,
`pid_1234_luid_..._phys_0`.

Rules
- An adapter is known by its LUID, which is another after each start of the system or of its driver.
- An engine's use is the sum over processes; an adapter's is that of its busiest engine, as the Task Manager
  has it. The sum over all engines of a type would pass 100 % on cards with several of them.
- Only engines that may run kernels count: which type does depends on the driver, so those are left out that
  certainly do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

Item = tuple[str, float]
"""Name of an instance and its value."""

_LUID = r"luid_0x([0-9a-f]{1,8})_0x([0-9a-f]{1,8})_phys_(\d{1,4})"
_ENGINE = re.compile(rf"(?:pid_\d+_)?{_LUID}_eng_(\d{{1,4}})_engtype_(.*)", re.IGNORECASE)
_ADAPTER = re.compile(rf"{_LUID}(?:#\d+)?", re.IGNORECASE)
_PROCESS = re.compile(rf"pid_(\d{{1,10}})_{_LUID}(?:#\d+)?", re.IGNORECASE)
_NO_KERNELS = (
    "copy",
    "video",
    "legacyoverlay",
    "overlay",
    "security",
    "timer",
    "vr",
    "jpeg",
    "crypto",
    "display",
)
_LARGEST = 1 << 50


def busy_fractions(items: Iterable[Item]) -> dict[int, float]:
    """By LUID: share of the time between two collections in which the busiest engine worked."""
    engines: dict[tuple[int, str, str], float] = {}
    for name, percent in items:
        found = _ENGINE.fullmatch(name)
        if found is None or not _sane(percent, 1e6):
            continue
        high, low, part, engine, kind = found.groups()
        if not kind.lower().replace(" ", "").startswith(_NO_KERNELS):
            key = (_luid(high, low), part, engine)
            engines[key] = engines.get(key, 0.0) + percent
    busiest: dict[int, float] = {}
    for (luid, _, _), percent in engines.items():
        busiest[luid] = max(busiest.get(luid, 0.0), min(1.0, percent / 100))
    return busiest


def bytes_of(items: Iterable[Item]) -> dict[int, int]:
    """By LUID: bytes, of adapters that consist of several parts the sum."""
    found: dict[int, int] = {}
    for name, value in items:
        match = _ADAPTER.fullmatch(name)
        if match is not None and _sane(value, _LARGEST):
            luid = _luid(match[1], match[2])
            found[luid] = found.get(luid, 0) + int(value)
    return found


def held_bytes(items: Iterable[Item]) -> dict[int, dict[int, int]]:
    """By LUID, then by process: bytes. Processes that hold nothing are left out."""
    found: dict[int, dict[int, int]] = {}
    for name, value in items:
        match = _PROCESS.fullmatch(name)
        if match is not None and _sane(value, _LARGEST) and value >= 1:
            held = found.setdefault(_luid(match[2], match[3]), {})
            held[int(match[1])] = held.get(int(match[1]), 0) + int(value)
    return found


def _luid(high: str, low: str) -> int:
    return int(high, 16) << 32 | int(low, 16)


def _sane(value: float, most: float) -> bool:
    return math.isfinite(value) and 0 <= value <= most
