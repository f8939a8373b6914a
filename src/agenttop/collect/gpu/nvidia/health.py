"""Memory errors, rows that had to be remapped, packets sent again, and what the driver asks to be done.

Counts of errors are those since the driver was loaded (`NVML_VOLATILE_ECC`): they tell what happens now, and
a recording can tell when. Asked now and then: nothing of it changes from second to second.
"""

from __future__ import annotations

from typing import Any

from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.plausible import number
from agenttop.model import units

SLOW_S = 30.0
RECOVERY_FIELD = 230
CORRECTED, UNCORRECTED = 0, 1
"""`nvmlMemoryErrorType_t`."""
SINCE_LOADED = 0
"""`nvmlEccCounterType_t`: volatile."""
MOST = 10**15

RECOVERY = {
    1: "the driver asks for a reset of the GPU",
    2: "the driver asks for a reboot of the host",
    3: "the driver asks for its peer traffic to be drained",
    4: "the driver asks for it to be drained and reset",
    5: "the driver asks for its IMEX domain to be recovered",
    6: "the driver asks for a reset of its PCIe bus",
    7: "the driver asks for a reboot of the system",
}
"""`nvmlDeviceGpuRecoveryAction_t`; 0 is none."""


class Health:
    """What is wrong with the device."""

    def __init__(self) -> None:
        self._slowly = Slowly(SLOW_S)
        self._figures: Figures = {}
        self._asked = False

    def wanted(self, at: float) -> list[FieldId]:
        """What the driver asks to be done."""
        return [RECOVERY_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        if self._slowly.due(look.at):
            self._figures = _ask(device, look)
        if self._figures["ecc_uncorrected_total"] is None:
            why = "this board does not count memory errors, or its ECC is off"
            look.reasons.add("ecc_corrected_total ecc_uncorrected_total", why)
        if self._figures["health"] is None:
            look.reasons.add("health", "this GPU does not tell of its health")
        return self._figures

    def close(self) -> None:
        """Nothing is held."""


def _ask(device: Device, look: Look) -> Figures:
    corrected, uncorrected = (
        number(device.ask("DeviceGetTotalEccErrors", kind, SINCE_LOADED), MOST)
        for kind in (CORRECTED, UNCORRECTED)
    )
    rows = device.ask("DeviceGetRemappedRows")
    retiring = device.ask("DeviceGetRetiredPagesPendingStatus")
    told = look.fields.get(RECOVERY_FIELD)
    recovery = int(told[0]) if told is not None else None
    known = (uncorrected, rows, retiring, recovery)
    complaints = _complaints(uncorrected, rows, retiring, recovery)
    return {
        "ecc_corrected_total": corrected,
        "ecc_uncorrected_total": uncorrected,
        "remapped_rows_total": number(sum(rows[:2]), MOST) if rows else None,
        "pcie_replays_total": number(device.ask("DeviceGetPcieReplayCounter"), MOST),
        "health": None if all(value is None for value in known) else complaints,
    }


def _complaints(uncorrected: int | None, rows: Any, retiring: Any, recovery: int | None) -> list[str]:
    found: list[str] = []
    if uncorrected:
        found.append(f"{units.plural(uncorrected, 'uncorrected memory error')} since the driver was loaded")
    if rows and rows[3]:
        found.append("a memory row could not be remapped: the GPU needs service")
    if rows and rows[2]:
        found.append("a memory row is remapped at the next reset")
    if retiring:
        found.append("a memory page is retired at the next reboot")
    if recovery:
        found.append(RECOVERY.get(recovery, f"the driver asks for recovery action {recovery}"))
    return found
