"""The NVIDIA adapter in a process of its own, and the script its stand-in library reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.collect import nvml

GIB = 2**30
H100: dict[str, object] = {
    "DeviceGetName": "NVIDIA H100 80GB HBM3",
    "DeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
    "bus": "0000:01:00.0",
    "DeviceGetUtilizationRates.gpu": 57,
    "DeviceGetUtilizationRates.memory": 31,
    "DeviceGetMemoryInfo.total": 80 * GIB,
    "DeviceGetMemoryInfo.used": 41 * GIB,
    "DeviceGetMemoryInfo_v2.total": 80 * GIB,
    "DeviceGetMemoryInfo_v2.used": 40 * GIB,
    "DeviceGetClockInfo.1": 1755,
    "DeviceGetMaxClockInfo.1": 1980,
    "DeviceGetClockInfo.2": 2619,
    "DeviceGetPowerUsage": 512_345,
    "DeviceGetEnforcedPowerLimit": 700_000,
    "DeviceGetTemperatureV": 64,
    "DeviceGetTotalEnergyConsumption": 123_456_789,
    "DeviceGetPerformanceState": 0,
    "DeviceGetCurrentClocksEventReasons": 0,
    "DeviceGetCurrPcieLinkGeneration": 5,
    "DeviceGetCurrPcieLinkWidth": 16,
    "DeviceGetMaxPcieLinkGeneration": 5,
    "DeviceGetMaxPcieLinkWidth": 16,
    "field.82": "71 1",
    "field.74": "1000000000 3",
    "field.269": "5000000000 3",
    "field.197": "1000000000000 3",
    "field.198": "2000000000000 3",
}


class Session:
    """The adapter in its process, and the file its library reads."""

    def __init__(self, folder: Path, *, library: bool = True, old_driver: bool = False) -> None:
        self.root = folder / "root"
        self.values: dict[str, object] = {}
        self.missing: dict[str, str] = {}
        """Why figures are missing in the newest sample, by field; of several GPUs that of the last."""
        self.holders: dict[str, dict[str, int | None]] = {}
        self._file = folder / "values"
        self.log = folder / "log"
        self._file.write_text("")
        environment = dict(os.environ)
        if library:
            environment |= nvml.environment(self._file, self.log, old_driver=old_driver)
        path = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.collect.nvml.process", str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def gpu(self, index: int, **values: object) -> None:
        """Set values of a GPU; None takes one away. Dots in names are written as two underscores."""
        self.set({f"{index}.{name.replace('__', '.')}": value for name, value in values.items()})

    def set(self, values: dict[str, object]) -> None:
        self.values.update(values)
        nvml.write(self._file, self.values)

    def add(self, index: int, values: dict[str, object] = H100, **changes: object) -> None:
        self.set({f"{index}.{name}": value for name, value in values.items()})
        self.set({"count": index + 1, "SystemGetDriverVersion": "580.95.05"})
        self.gpu(index, **changes)

    def card(self, bus: str, status: str = "active", vendor: str = "0x10de") -> Path:
        """A card on the PCI bus of the stand-in root; returns its runtime_status file."""
        device = self.root / "sys/bus/pci/devices" / bus
        (device / "power").mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text("0x030000\n")
        (device / "power/runtime_status").write_text(status + "\n")
        return device / "power/runtime_status"

    def do(self, command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def sample(self, after: float = 1.0) -> list[dict[str, Any]]:
        reply = self.do(f"sample {after}")
        self.missing = {what.rpartition(":")[2]: why for what, (why, _) in reply["missing"].items()}
        self.holders = reply["holders"]
        samples = reply["samples"]
        assert isinstance(samples, list)
        return samples

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(20) == 0
