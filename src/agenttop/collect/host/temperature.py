"""Temperature of the CPU, from its own sensors alone.

Other entries of /sys/class/hwmon belong to disks, network cards and GPUs: reading those may wake what sleeps,
and one on a slow bus takes a second. So nothing but the name is read of them.
"""

from __future__ import annotations

import re

from agenttop.collect.gpu.kernel_files import celsius, folders, read_text
from agenttop.collect.host.reasons import Reason

_FOLDER = "sys/class/hwmon"
_SENSORS = re.compile(r"(coretemp|k10temp|zenpower\d?|cpu\d*_thermal)$")
_DRIVERS = {"GenuineIntel": "coretemp", "AuthenticAMD": "k10temp"}
_LABEL = re.compile(r"temp(\d+)_label$")
_WANTED = (re.compile("Package id"), re.compile("Tdie$"), re.compile("Tctl$"), re.compile("Core "))
"""Best first. AMD's Tctl is what fans are controlled by; on some chips it is higher than Tdie by design."""


class CpuTemperature:
    """The hottest package."""

    def __init__(self, root: str, *, virtual: bool, vendor: str | None = None) -> None:
        self._root = root
        self._virtual = virtual
        self._driver = _DRIVERS.get(vendor or "")
        self._inputs = inputs(root)

    def look(self) -> float | Reason:
        """Degrees Celsius."""
        told = [value for path in self._inputs if (value := celsius(path)) is not None]
        if not told:
            self._inputs = inputs(self._root)  # a driver was loaded, or the entries have other numbers now
            told = [value for path in self._inputs if (value := celsius(path)) is not None]
        if told:
            return max(told)
        if self._virtual:
            return Reason("a virtual machine does not see the temperature of its CPU")
        if self._inputs:
            return Reason("the temperature sensor of the CPU gives no number")
        fix = f"sudo modprobe {self._driver}" if self._driver else None
        return Reason("no temperature sensor of the CPU", fix)


def inputs(root: str) -> list[str]:
    """Files to read, one a package."""
    found: list[str] = []
    for entry in folders(f"{root}/{_FOLDER}"):
        folder = f"{root}/{_FOLDER}/{entry}"
        name = read_text(f"{folder}/name")
        if name and _SENSORS.match(name):
            found += [f"{folder}/temp{number}_input" for number in _numbers(folder)]
    return found


def _numbers(folder: str) -> list[str]:
    labels = {
        match[1]: read_text(f"{folder}/{match[0]}") or ""
        for file in folders(folder)
        if (match := _LABEL.match(file))
    }
    for wanted in _WANTED:
        if numbers := [number for number, label in labels.items() if wanted.match(label)]:
            return numbers
    return ["1"]
