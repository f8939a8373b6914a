"""NVLink: how many links are up, and what goes over them.

Sources, best first: the inner counters (`gpm`); fields 138 and 139, which count data in KiB since the driver
was loaded, all links together with the scope of all ones.
"""

from __future__ import annotations

from agenttop.collect.gpu.nvidia.gpm import NVLINK_RECEIVED, NVLINK_SENT, Gpm
from agenttop.collect.gpu.nvidia.part import Device, FieldId, Figures, Look, Slowly
from agenttop.collect.gpu.nvidia.pcie import ByteCounter

ALL_LINKS = 0xFFFFFFFF
SENT_FIELD, RECEIVED_FIELD = (138, ALL_LINKS), (139, ALL_LINKS)
MOST_LINKS = 18
SLOW_S = 30.0
KIB = 1024


class NvLink:
    """Links and their rates."""

    def __init__(self, gpm: Gpm) -> None:
        self._gpm = gpm
        self._slowly = Slowly(SLOW_S)
        self._up: int | None = None
        self._received, self._sent = ByteCounter(), ByteCounter()

    def wanted(self, at: float) -> list[FieldId]:
        """The counters of all links, where there are any."""
        return [] if self._up == 0 else [SENT_FIELD, RECEIVED_FIELD]

    def read(self, device: Device, look: Look) -> Figures:
        """One look; after the inner counters. Nothing of a GPU without links: no news."""
        if self._slowly.due(look.at):
            self._up = _links_up(device)
        if not self._up:
            return {"nvlink_links": self._up}
        received, sent = self._rates(look)
        if received is None and sent is None and look.window:
            why = "this driver does not count what goes over the links"
            look.reasons.add("nvlink_received_bytes_s nvlink_sent_bytes_s", why)
        return {
            "nvlink_links": self._up,
            "nvlink_received_bytes_s": received,
            "nvlink_sent_bytes_s": sent,
        }

    def close(self) -> None:
        """Nothing is held."""

    def _rates(self, look: Look) -> tuple[float | None, float | None]:
        rates = self._gpm.rates
        if NVLINK_RECEIVED in rates and NVLINK_SENT in rates:
            return rates[NVLINK_RECEIVED], rates[NVLINK_SENT]
        found: list[float | None] = []
        for field, counter in ((RECEIVED_FIELD, self._received), (SENT_FIELD, self._sent)):
            told = look.fields.get(field)
            found.append(counter.rate(look.at, told[0] * KIB, False) if told is not None else None)
        return found[0], found[1]


def _links_up(device: Device) -> int | None:
    """None where the GPU does not know links at all."""
    states = []
    for link in range(MOST_LINKS):
        state = device.ask("DeviceGetNvLinkState", link)
        if state is None:
            break
        states.append(state == 1)
    return sum(states) if states else None
