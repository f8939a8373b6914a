"""The inner counters of Hopper and later (GPM): what the multiprocessors, tensor cores and memory really do.

A metric is taken between two samples, one look apart. The counters belong to one user at a time: where a
profiler or DCGM has them, or the driver lets only root see them, the reason is told and it is tried again
later. Source: NVML reference, chapter GPM; metric numbers are `nvmlGpmMetricId_t`.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from agenttop.collect.gpu.nvidia.nvml import NO_PERMISSION, DriverGoneError, GpuLostError
from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look

SM, OCCUPANCY, TENSOR, DRAM = 2, 3, 5, 10
PCIE_SENT, PCIE_RECEIVED = 20, 21
NVLINK_RECEIVED, NVLINK_SENT = 60, 61
SHARES = {
    SM: "sm_active_fraction",
    OCCUPANCY: "sm_occupancy_fraction",
    TENSOR: "tensor_active_fraction",
    DRAM: "dram_active_fraction",
}
RATES = (PCIE_SENT, PCIE_RECEIVED, NVLINK_RECEIVED, NVLINK_SENT)
"""In MiB per second."""
WANTED = (*SHARES, *RATES)
MIB = 1024**2
MOST_MIB_S = 10_000_000
AGAIN_S = 60.0
"""Refused, it is tried again after this."""
FIELDS = " ".join(SHARES.values())
WHY_OLD = "needs Hopper or a later GPU of a data centre"
WHY_BUSY = "the inner counters cannot be read: another program (DCGM, a profiler) may hold them"
WHY_ROOT = "the driver lets only root read its inner counters"
FIX_ROOT = "load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0"


class Gpm:
    """Inner counters of one GPU or, with `instance`, of one MIG instance of it."""

    def __init__(self, instance: int | None = None) -> None:
        self._instance = instance
        self._device: Device | None = None
        self._supported: bool | None = None
        self._samples: list[Any] = []
        """Two buffers: the one before, the one now."""
        self._filled = False
        """The first of them holds a sample of the look before."""
        self._metrics: Any = None
        self._not_before = -math.inf
        self._why: tuple[str, str | None] = (WHY_OLD, None)
        self.rates: dict[int, float] = {}
        """Bytes per second of the newest look, by metric."""

    def wanted(self, at: float) -> list[FieldId]:
        """None."""
        return []

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        self.rates = {}
        figures = self._figures(device, look)
        missing = [name for name in SHARES.values() if figures.get(name) is None]
        if missing and (look.window or not self._supported):
            look.reasons.add(" ".join(missing), *self._why)
        return figures

    def close(self) -> None:
        """Give the samples back; a library that is gone has taken them along."""
        device, samples, self._samples = self._device, self._samples, []
        for sample in samples:
            if device is not None:
                with contextlib.suppress(GpuLostError, DriverGoneError):
                    device.nvml.query("GpmSampleFree", sample, device=("gpm", device.index))

    def _figures(self, device: Device, look: Look) -> Figures:
        if self._supported is None:
            told = device.ask("GpmQueryDeviceSupport")
            self._supported = bool(getattr(told, "isSupportedDevice", 0))
        if not self._supported or look.at < self._not_before or not self._prepare(device):
            return {}
        if not self._take(device):
            return self._refused(device, look.at)
        if not self._filled or not look.window:
            self._filled = True
            self._samples.reverse()
            return {}
        values = self._between(device)
        self._samples.reverse()
        if values is None:
            return self._refused(device, look.at)
        self._why = ("this GPU does not count it", None)
        self.rates = {
            metric: values[metric] * MIB for metric in RATES if 0 <= values.get(metric, -1) <= MOST_MIB_S
        }
        return {
            name: min(1.0, values[metric] / 100)
            for metric, name in SHARES.items()
            if 0 <= values.get(metric, -1) <= 101
        }

    def _prepare(self, device: Device) -> bool:
        """Two buffers and the form to ask with."""
        self._device = device
        while len(self._samples) < 2:
            sample = device.nvml.query("GpmSampleAlloc", device=("gpm", device.index))
            if sample is None:
                return False
            self._samples.append(sample)
        if self._metrics is None:
            form = device.constant("c_nvmlGpmMetricsGet_t")
            version = device.constant("NVML_GPM_METRICS_GET_VERSION")
            if form is None or version is None:
                return False
            self._metrics = form()
            self._metrics.version = version
        return True

    def _take(self, device: Device) -> bool:
        """Fill the second buffer."""
        if self._instance is None:
            return device.ask_each("GpmSampleGet", self._samples[1]) is not None
        return device.ask_each("GpmMigSampleGet", self._instance, self._samples[1]) is not None

    def _between(self, device: Device) -> dict[int, float] | None:
        """Metrics between the two samples; None when all is refused."""
        form = self._metrics
        form.numMetrics = len(WANTED)
        form.sample1, form.sample2 = self._samples
        for place, metric in enumerate(WANTED):
            form.metrics[place].metricId = metric
        if device.nvml.query("GpmMetricsGet", form, device=("gpm", device.index)) is None:
            return None
        found = [form.metrics[place] for place in range(len(WANTED))]
        return {
            int(each.metricId): float(each.value)
            for each in found
            if each.nvmlReturn == 0 and math.isfinite(each.value)
        }

    def _refused(self, device: Device, at: float) -> Figures:
        self._filled = False
        self._not_before = at + AGAIN_S
        codes = [code for (call, _), code in device.nvml.refusals.items() if call.startswith("Gpm")]
        self._why = (WHY_ROOT, FIX_ROOT) if NO_PERMISSION in codes else (WHY_BUSY, None)
        return {}
