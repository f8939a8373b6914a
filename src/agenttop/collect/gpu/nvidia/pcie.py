"""Bytes per second over the PCIe link of NVIDIA GPUs.

Three sources, best first:
- Fields 197/198 are cumulative byte counters: nothing is missed. Some drivers keep them in 32 bits, even
  under a wider type; then a link that can move 4 GiB between two looks makes a difference meaningless.
- The inner counters of Hopper and later (`gpm`): the driver's mean over the window.
- `nvmlDeviceGetPcieThroughput` blocks for a 20 ms sample per direction, so a thread of its own asks it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from agenttop.collect.gpu.nvidia.gpm import PCIE_RECEIVED, PCIE_SENT, Gpm
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
        self.narrow = True
        """It wraps at 32 bits, or may: it has not been seen beyond them, whatever its type."""

    def rate(self, at: float, value: float, is_32_bit: bool) -> float | None:
        """Bytes per second since the look before; None at the first, and after a reset."""
        last, self._last = self._last, (at, value)
        self.narrow = is_32_bit or (self.narrow and value < _WRAP)
        if last is None or at <= last[0]:
            return None
        window, moved = at - last[0], value - last[1]
        if moved < 0 and self.narrow:
            moved += _WRAP
        return moved / window if moved >= 0 else None


class SlowPcie:
    """Asks the blocking call for each GPU in turn, in its own thread, once a second; less often at rest."""

    def __init__(self, nvml: Nvml, clock: Clock, period_s: float = 1.0) -> None:
        self._nvml = nvml
        self._clock = clock
        self._period_s = period_s
        self._handles: dict[str, tuple[Any, bool]] = {}
        """By GPU: its handle, and whether it is at rest."""
        self._latest: dict[str, tuple[float, float | None, float | None]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, gpu: str, handle: Any, *, at_rest: bool = False) -> None:
        """Ask for this GPU from now on."""
        self._handles[gpu] = (handle, at_rest)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pcie", daemon=True)
            self._thread.start()

    def leave(self, gpu: str) -> None:
        """Ask for it no more: a better source works."""
        self._handles.pop(gpu, None)
        self._latest.pop(gpu, None)

    def latest(self, gpu: str) -> tuple[float | None, float | None]:
        """(received, sent) bytes per second, from the last few seconds; else None."""
        at, received, sent = self._latest.get(gpu, (-math.inf, None, None))
        if self._clock.monotonic() - at > 2 * REST * self._period_s:
            return None, None
        return received, sent

    def close(self) -> None:
        """End the thread; one that hangs in the driver is left behind (it is a daemon)."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.2)

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            for gpu, (handle, at_rest) in list(self._handles.items()):
                if (at_rest and turn % REST) or self._stop.is_set():
                    continue
                try:
                    sent, received = (
                        self._nvml.query("DeviceGetPcieThroughput", handle, way, device=(gpu, way))
                        for way in (0, 1)
                    )
                except (GpuLostError, DriverGoneError):
                    continue  # the sampler finds out by itself
                self._latest[gpu] = (self._clock.monotonic(), _kilobytes(received), _kilobytes(sent))
            turn += 1
            self._stop.wait(self._period_s)


REST = 5
"""A GPU at rest is asked at every so many turns."""
REFUSED = "DeviceGetPcieThroughput"


def _kilobytes(value: Any) -> float | None:
    return None if value is None or not 0 <= value < 0xFFFFFFFF else float(value) * 1000


class Pcie:
    """Rates over the link, and the link itself."""

    def __init__(self, slow: SlowPcie, key: str, gpm: Gpm) -> None:
        """`key` names the device to the slow reader."""
        self._slow = slow
        self._key = key
        self._gpm = gpm
        self._received, self._sent = ByteCounter(), ByteCounter()

    def wanted(self, at: float) -> list[FieldId]:
        """The byte counters."""
        return [SENT_FIELD, RECEIVED_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look; after memory, which finds out what has no link worth the name, and the inner counters."""
        if device.unified:
            why = "CPU and GPU share one memory: what the driver tells of a link means nothing"
            look.reasons.add(f"{RATE_FIELDS} {LINK_FIELDS}", why)
            return {}
        generation = device.ask("DeviceGetCurrPcieLinkGeneration")
        width = device.ask("DeviceGetCurrPcieLinkWidth")
        generation_max = device.ask("DeviceGetMaxPcieLinkGeneration")
        received, sent, source = self._rates(device, look, link_bytes_s(generation_max, width))
        if received is None and sent is None and look.window:
            look.reasons.add(RATE_FIELDS, _why(device, self._key))
        if not width:
            look.reasons.add(LINK_FIELDS, "this GPU does not tell its link")
        return {
            "pcie_received_bytes_s": received,
            "pcie_sent_bytes_s": sent,
            "pcie_source": source if received is not None or sent is not None else None,
            "pcie_generation": number(generation, 20) or None,
            "pcie_generation_max": number(generation_max, 20) or None,
            "pcie_width": number(width, 64) or None,
            "pcie_width_max": number(device.ask("DeviceGetMaxPcieLinkWidth"), 64) or None,
        }

    def close(self) -> None:
        """The slow reader belongs to the adapter."""

    def _rates(
        self, device: Device, look: Look, capacity: float | None
    ) -> tuple[float | None, float | None, str]:
        """(received, sent) bytes per second, and where from."""
        received, sent = look.fields.get(RECEIVED_FIELD), look.fields.get(SENT_FIELD)
        if received is not None and sent is not None:
            into, out = self._received.rate(look.at, *received), self._sent.rate(look.at, *sent)
            narrow = self._received.narrow or self._sent.narrow
            if not ambiguous(narrow, capacity, look.window or 1.0):
                self._slow.leave(self._key)
                return into, out, "counter"
        if PCIE_RECEIVED in self._gpm.rates and PCIE_SENT in self._gpm.rates:
            self._slow.leave(self._key)
            return self._gpm.rates[PCIE_RECEIVED], self._gpm.rates[PCIE_SENT], "gpm"
        at_rest = look.so_far.get("util_fraction") == 0
        self._slow.watch(self._key, device.handle, at_rest=at_rest)
        return *self._slow.latest(self._key), "sample"


RATE_FIELDS = "pcie_received_bytes_s pcie_sent_bytes_s"
LINK_FIELDS = "pcie_generation pcie_width"


def _why(device: Device, key: str) -> str:
    if device.surroundings.guest:
        return "a virtual GPU is not told what goes over the link of the host"
    if (REFUSED, (key, 0)) in device.nvml.refusals:
        return "this driver does not count what goes over the link"
    return "the first measurement is on its way"
