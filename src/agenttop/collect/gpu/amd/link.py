"""The PCIe link of a card, where it is narrowest towards the processor.

A Radeon card of 2019 or later has a switch of its own: the GPU's own link is that between GPU and switch, and
always says 16 lanes at full speed. What counts is the switch's upper end, the outermost bridge of AMD's
graphics department (vendor 1002); root ports of AMD processors have another vendor (1022).
"""

from __future__ import annotations

import os
import re

import msgspec

from agenttop.collect.gpu.kernel_files import read_text

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s of a lane to generation."""
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_BRIDGE = "0x0604"


class LinkNow(msgspec.Struct, frozen=True):
    """Generation and lanes, now and at most."""

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None


def generation_of(text: str | None) -> int | None:
    """`16.0 GT/s PCIe` to 4."""
    found = _SPEED.match(text or "")
    return _GENERATIONS.get(float(found[1])) if found else None


def width_of(text: str | None) -> int | None:
    """Lanes; a link that is down has 0 or 255."""
    return (
        int(text) if text is not None and text.isdigit() and len(text) < 4 and 1 <= int(text) <= 32 else None
    )


def from_metrics(width: int | None, tenths: int | None) -> tuple[int | None, int | None]:
    """(generation, lanes) of `gpu_metrics`, which has speeds in 0.1 GT/s."""
    return _GENERATIONS.get((tenths or 0) / 10), width_of(str(width))


class Link:
    """One card's way to the processor."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of the card on the bus, a symbolic link to its place in the tree of bridges."""
        self._upper = os.path.realpath(folder)
        while True:
            above = os.path.dirname(self._upper)  # noqa: PTH120 - text, as the rest of these paths
            if read_text(f"{above}/vendor") != "0x1002":
                break
            if not (read_text(f"{above}/class") or "").startswith(_BRIDGE):
                break
            self._upper = above
        self._port = os.path.dirname(self._upper)  # noqa: PTH120

    def now(self) -> LinkNow:
        """What the bridge says now. The most is what both its ends can do."""
        ends = (self._upper, self._port)
        generations = [generation_of(read_text(f"{end}/max_link_speed")) for end in ends]
        widths = [width_of(read_text(f"{end}/max_link_width")) for end in ends]
        return LinkNow(
            generation=generation_of(read_text(f"{self._upper}/current_link_speed")),
            width=width_of(read_text(f"{self._upper}/current_link_width")),
            generation_max=min((found for found in generations if found), default=None),
            width_max=min((found for found in widths if found), default=None),
        )
