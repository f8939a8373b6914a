"""Power of the CPU packages and their memory, from energy counters (RAPL) below /sys/class/powercap.

Sources: the kernel's power/powercap. AMD's counters stand under `intel-rapl` too. A zone `package-N` has the
cores within it; `psys` is the whole platform and would count packages again, and so would `intel-rapl-mmio`.
From Linux 5.10 on `energy_uj` is for root alone (CVE-2020-8694: what a machine computes can be told from it).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from agenttop.collect.gpu.kernel_files import folders, read_number, read_text
from agenttop.collect.host.reasons import Reason

FOLDER = "sys/class/powercap"
_ZONE = "intel-rapl:"
_HIGHEST_W = 2000.0
"""No package takes more; a counter that was reset in between would say so."""
_LEAST_WINDOW_S = 0.05
"""The counter is updated every millisecond; and of shorter windows nothing is told."""
_STANDS_STILL_S = 0.5
FIX = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj (until the next start)"


class Zone(NamedTuple):
    """One energy counter."""

    folder: str
    wraps_at: int


class CpuPower:
    """Watts between two looks."""

    def __init__(self, root: str, *, virtual: bool, vendor: str | None = None) -> None:
        """`vendor`: of an x86 CPU."""
        self._virtual = virtual
        self._vendor = vendor
        self._root = root
        self.packages, self.memories = zones(root)
        self._before = self._energies()

    def look(self, window: float) -> tuple[float | Reason | None, float | Reason | None]:
        """(of the packages, of their memory)."""
        before, self._before = self._before, self._energies()
        packages = self._power(self.packages, before, window)
        memories = self._power(self.memories, before, window)
        if not self.packages:
            return self._why_none(), self._why_none()
        if not self.memories:
            memories = Reason("this CPU does not count the energy of its memory")
        return packages, memories

    def _energies(self) -> dict[str, int]:
        both = (*self.packages, *self.memories)
        found = ((zone.folder, read_number(f"{zone.folder}/energy_uj")) for zone in both)
        return {folder: energy for folder, energy in found if energy is not None and energy >= 0}

    def _power(self, kind: list[Zone], before: dict[str, int], window: float) -> float | Reason | None:
        if any(zone.folder not in self._before for zone in kind):
            return _why_not_read(kind)
        if not kind or window < _LEAST_WINDOW_S or any(zone.folder not in before for zone in kind):
            return None
        watts = 0.0
        for zone in kind:
            step = self._before[zone.folder] - before[zone.folder]
            if step < 0:
                step += zone.wraps_at
            power = step / 1e6 / window
            if step < 0 or power > _HIGHEST_W:
                return None
            if step == 0 and window >= _STANDS_STILL_S:
                return Reason("the energy counter stands still")
            watts += power
        return watts

    def _why_none(self) -> Reason:
        if self._virtual:
            return Reason("a virtual machine does not see the energy counters of its CPU")
        if any(name.startswith(_ZONE) for name in folders(f"{self._root}/{FOLDER}")):
            fix = "docker run --security-opt systempaths=unconfined"
            return Reason("the container hides the energy counters of the CPU", fix)
        load = "sudo modprobe intel_rapl_msr" if self._vendor else None
        return Reason("no energy counter of the CPU (RAPL)", load)


def zones(root: str) -> tuple[list[Zone], list[Zone]]:
    """(packages, their memory)."""
    packages: list[Zone] = []
    memories: list[Zone] = []
    for name in folders(f"{root}/{FOLDER}"):
        if not name.startswith(_ZONE):
            continue
        folder = f"{root}/{FOLDER}/{name}"
        zone = Zone(folder, read_number(f"{folder}/max_energy_range_uj") or 0)
        told = read_text(f"{folder}/name") or ""
        if told.startswith("package-"):
            packages.append(zone)
        elif told == "dram":
            memories.append(zone)
    return packages, memories


def _why_not_read(kind: list[Zone]) -> Reason:
    if all(os.access(f"{zone.folder}/energy_uj", os.R_OK) for zone in kind):
        return Reason("the energy counter of the CPU gives no number")
    return Reason("needs permission: the energy counter is for root alone", FIX)
