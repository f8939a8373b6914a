"""Bytes per second over the PCIe link of NVIDIA GPUs.

Two sources, best first:
- Fields 197/198 are cumulative byte counters: free to read, nothing is missed. Some drivers keep them in 32
  bits; then a link that can move 4 GiB between two looks makes a difference meaningless.
- `nvmlDeviceGetPcieThroughput` blocks for a 20 ms sample per direction, so a thread of its own asks it.
"""

from __future__ import annotations

import threading
from typing import Any

from agenttop.collect.gpu.nvidia.nvml import DriverGoneError, GpuLostError, Nvml
from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look
from agenttop.collect.gpu.nvidia.plausible import number
from agenttop.model.clock import Clock
from agenttop.model.link import link_bytes_s

SENT_FIELD, RECEIVED_FIELD = 197, 198
"""NVML_FI_DEV_PCIE_COUNT_TX_BYTES and _RX_BYTES, as the GPU sees it: RX comes from the host."""

_WRAP = 2**32


def ambiguous(is_32_bit: bool, capacity: float | None, window: float) -> bool:
    """Whether a counter of 32 bits may have gone round more than once in the window."""
    return is_32_bit and (capacity is None or capacity * window >= _WRAP)


class ByteCounter:
    """One cumulative counter turned into a rate."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def rate(self, at: float, value: float, is_32_bit: bool) -> float | None:
        """Bytes per second since the look before; None at the first, and after a reset."""
        last, self._last = self._last, (at, value)
        if last is None or at <= last[0]:
            return None
        window, moved = at - last[0], value - last[1]
        if is_32_bit:
            moved %= _WRAP
        return moved / window if moved >= 0 else None


class SlowPcie:
    """Asks the blocking call for each GPU in turn, in its own thread, once a second."""

    def __init__(self, nvml: Nvml, clock: Clock, period_s: float = 1.0) -> None:
        self._nvml = nvml
        self._clock = clock
        self._period_s = period_s
        self._handles: dict[str, Any] = {}
        self._latest: dict[str, tuple[float, float | None, float | None]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, gpu: str, handle: Any) -> None:
        """Ask for this GPU from now on."""
        self._handles[gpu] = handle
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pcie", daemon=True)
            self._thread.start()

    def latest(self, gpu: str) -> tuple[float | None, float | None]:
        """(received, sent) bytes per second, from the last 5 s; else None."""
        at, received, sent = self._latest.get(gpu, (0.0, None, None))
        if self._clock.monotonic() - at > 5 * self._period_s:
            return None, None
        return received, sent

    def close(self) -> None:
        """End the thread; one that hangs in the driver is left behind (it is a daemon)."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            for gpu, handle in list(self._handles.items()):
                try:
                    sent, received = (
                        self._nvml.query("DeviceGetPcieThroughput", handle, way, device=(gpu, way))
                        for way in (0, 1)
                    )
                except (GpuLostError, DriverGoneError):
                    continue  # the sampler finds out by itself
                self._latest[gpu] = (self._clock.monotonic(), _kilobytes(received), _kilobytes(sent))
            self._stop.wait(self._period_s)


def _kilobytes(value: Any) -> float | None:
    return None if value is None else float(value) * 1000


class Pcie:
    """Rates over the link, and the link itself."""

    def __init__(self, slow: SlowPcie, key: str) -> None:
        """`key` names the device to the slow reader."""
        self._slow = slow
        self._key = key
        self._received, self._sent = ByteCounter(), ByteCounter()

    def wanted(self, at: float) -> list[FieldId]:
        """The byte counters."""
        return [SENT_FIELD, RECEIVED_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look."""
        generation = device.ask("DeviceGetCurrPcieLinkGeneration")
        width = device.ask("DeviceGetCurrPcieLinkWidth")
        generation_max = device.ask("DeviceGetMaxPcieLinkGeneration")
        received, sent = self._rates(device, look, link_bytes_s(generation_max, width))
        return {
            "pcie_received_bytes_s": received,
            "pcie_sent_bytes_s": sent,
            "pcie_generation": number(generation, 20),
            "pcie_generation_max": number(generation_max, 20),
            "pcie_width": number(width, 64),
            "pcie_width_max": number(device.ask("DeviceGetMaxPcieLinkWidth"), 64),
        }

    def close(self) -> None:
        """The slow reader belongs to the adapter."""

    def _rates(self, device: Device, look: Look, capacity: float | None) -> tuple[float | None, float | None]:
        """(received, sent) bytes per second."""
        if RECEIVED_FIELD in look.fields and SENT_FIELD in look.fields:
            (received, narrow), (sent, narrow_too) = look.fields[RECEIVED_FIELD], look.fields[SENT_FIELD]
            if not ambiguous(narrow or narrow_too, capacity, look.window or 1.0):
                return (
                    self._received.rate(look.at, received, narrow),
                    self._sent.rate(look.at, sent, narrow_too),
                )
        self._slow.watch(self._key, device.handle)
        return self._slow.latest(self._key)
