"""AMD and Intel GPUs under Windows, by its performance counters: use and memory, and no more without the
vendors' own libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agenttop.collect.gpu.base import GpuOpening, GpuReading, Reasons
from agenttop.collect.gpu.windows import records
from agenttop.collect.gpu.windows.instances import busy_fractions, bytes_of, held_bytes
from agenttop.collect.gpu.windows.pdh import Counters, Query, library
from agenttop.collect.gpu.windows.records import Record
from agenttop.model.clock import Clock
from agenttop.model.frames import GpuSample, Missing
from agenttop.model.text import clean

ENGINES = r"\GPU Engine(*)\Utilization Percentage"
DEDICATED = r"\GPU Adapter Memory(*)\Dedicated Usage"
SHARED = r"\GPU Adapter Memory(*)\Shared Usage"
HELD_DEDICATED = r"\GPU Process Memory(*)\Dedicated Usage"
HELD_SHARED = r"\GPU Process Memory(*)\Shared Usage"

_PROCESSES_S = 5.0
_RECORDS_S = 30.0
_RETRY_S = 30.0
_SMALL_BYTES = 1 << 30
"""Graphics with no more memory of their own than this live in RAM: inside a CPU, both are one pool."""
_FIX = "vendor tools show them: AMD Software, Intel Graphics Software"

Open = Callable[[Sequence[str]], Counters]
"""Opens counters by their paths; raises OSError."""


def _open(paths: Sequence[str]) -> Counters:
    return Query(paths, library())


class WindowsAdapter:
    """Every GPU that Windows counts and NVML does not."""

    vendor = "windows"

    def __init__(
        self,
        clock: Clock,
        root: Path = Path("/"),
        counters: Open = _open,
        known: Callable[[], list[Record]] = records.read,
    ) -> None:
        """`known` reads the adapters from the registry."""
        self._clock = clock
        self._open_counters = counters
        self._read_records = known
        self._fast: Counters | None = None
        self._slow: Counters | None = None
        self._identities: dict[int, GpuSample] = {}
        self._records: dict[int, Record] = {}
        self._records_at = 0.0
        self._holders: dict[str, dict[int, int | None]] = {}
        self._holders_at: float | None = None
        self._at: float | None = None
        self._retry_at: float | None = None

    def open(self, t: float) -> GpuOpening:
        """Open the counters, and see which adapters have some."""
        try:
            self._connect()
        except OSError as error:
            self._find({record.luid for record in self._read_records()})
            if not self._records:
                return GpuOpening(found=False)
            why = f"Windows' GPU counters cannot be read ({clean(str(error), 80)})"
            fix = "lodctr /R in a console of an administrator rebuilds them"
            return GpuOpening(found=False, missing=[Missing(t=t, what="gpu", why=why, fix=fix)])
        return GpuOpening(found=bool(self._records))

    def sample(self, t: float) -> GpuReading:
        """One look."""
        at = self._clock.monotonic()
        window, self._at = None if self._at is None else at - self._at, at
        try:
            engines, dedicated, shared = self._collect(at)
        except OSError:
            return self._lost(t, at)
        if at - self._records_at >= _RECORDS_S or not self._records.keys() <= dedicated.keys():
            self._find(set(dedicated))
        if self._holders_at is None or at - self._holders_at >= _PROCESSES_S:
            self._holders_at = at
            self._holders = self._held()
        samples, missing = [], []
        for luid, record in self._records.items():
            identity = self._identities[luid]
            reasons = Reasons(identity.gpu, t)
            figures = _memory(record, dedicated.get(luid), shared.get(luid), reasons)
            # An engine is counted once a process has a use for it: where others are, one without has no work.
            figures["util_fraction"] = engines.get(luid, 0.0) if engines and window is not None else None
            _say(figures, window is not None, reasons)
            samples.append(msgspec.structs.replace(identity, t=t, window_s=window, **figures))
            missing += reasons.frames
        return GpuReading(samples=samples, missing=missing, holders=self._holders)

    def close(self) -> None:
        """Close the queries."""
        for counters in (self._fast, self._slow):
            if counters is not None:
                counters.close()
        self._fast = self._slow = None

    def _connect(self) -> None:
        self.close()
        self._at = None
        self._fast = self._open_counters([ENGINES, DEDICATED, SHARED])
        _, dedicated, _ = self._fast.read()
        self._find(set(bytes_of(dedicated)))
        try:
            self._slow = self._open_counters([HELD_DEDICATED, HELD_SHARED])
        except OSError:
            self._slow = None

    def _collect(self, at: float) -> tuple[dict[int, float], dict[int, int], dict[int, int]]:
        if self._fast is None:
            if self._retry_at is not None and at < self._retry_at:
                raise OSError("not yet")
            self._retry_at = at + _RETRY_S
            self._connect()
        assert self._fast is not None
        engines, dedicated, shared = self._fast.read()
        return busy_fractions(engines), bytes_of(dedicated), bytes_of(shared)

    def _lost(self, t: float, at: float) -> GpuReading:
        """The counters have gone away: the identities, and another try after a while."""
        self.close()
        self._at = None
        if self._retry_at is None or at >= self._retry_at:
            self._retry_at = at + _RETRY_S
        lost = [msgspec.structs.replace(s, t=t, state="lost") for s in self._identities.values()]
        return GpuReading(samples=lost)

    def _find(self, counted: set[int]) -> None:
        """The adapters that have counters. An adapter keeps its name through a change of its LUID."""
        self._records_at = self._clock.monotonic()
        found = [record for record in self._read_records() if record.luid in counted]
        found.sort(key=lambda record: (record.vendor, record.pci_id or "", record.luid))
        self._records = {record.luid: record for record in found}
        self._identities = {}
        for index, record in enumerate(found):
            like = record.pci_id or record.vendor
            same = sum(1 for other in found[:index] if (other.pci_id or other.vendor) == like)
            self._identities[record.luid] = GpuSample(
                t=0.0,
                gpu=f"{like}-{same}",
                index=index,
                vendor=record.vendor,
                name=record.name,
                driver=record.driver,
                pci_id=record.pci_id,
            )

    def _held(self) -> dict[str, dict[int, int | None]]:
        if self._slow is None:
            return {}
        try:
            dedicated, shared = (held_bytes(items) for items in self._slow.read())
        except OSError:
            return {}
        found: dict[str, dict[int, int | None]] = {}
        for luid, record in self._records.items():
            held: dict[int, int | None] = dict(dedicated.get(luid, {}))
            if _is_pool(record):
                for pid, size in shared.get(luid, {}).items():
                    held[pid] = (held.get(pid) or 0) + size
            found[self._identities[luid].gpu] = held
        return found


def _is_pool(record: Record) -> bool:
    return record.dedicated_bytes is not None and record.dedicated_bytes <= _SMALL_BYTES


def _memory(record: Record, dedicated: int | None, shared: int | None, reasons: Reasons) -> dict[str, Any]:
    total = record.dedicated_bytes
    if not _is_pool(record):
        if total is None:
            reasons.add("mem_total_bytes", "Windows' registry does not tell the size of the memory")
        return {"memory_kind": "dedicated", "mem_used_bytes": dedicated, "mem_total_bytes": total}
    if record.shared_bytes is None:
        reasons.add("mem_total_bytes", "Windows' registry does not tell how much RAM the GPU may use")
    return {
        "memory_kind": "vram+gtt",
        "mem_vram_used_bytes": dedicated,
        "mem_vram_total_bytes": total,
        "mem_gtt_used_bytes": shared,
        "mem_gtt_total_bytes": record.shared_bytes,
        "mem_used_bytes": None if dedicated is None or shared is None else dedicated + shared,
        "mem_total_bytes": None
        if total is None or record.shared_bytes is None
        else total + record.shared_bytes,
    }


def _say(figures: dict[str, Any], counted: bool, reasons: Reasons) -> None:
    if counted and figures["util_fraction"] is None:
        reasons.add("util_fraction", "Windows counts no engine of this GPU")
    if figures["mem_used_bytes"] is None:
        reasons.add("mem_used_bytes", "Windows counts no memory of this GPU")
    why = "Windows has no counter of it"
    reasons.add("power_w temperature_c sm_clock_mhz mem_clock_mhz fan_rpm throttle power_limit_w", why, _FIX)
    reasons.add("energy_j mem_util_fraction pcie_generation pcie_width pcie_received_bytes_s", why)
