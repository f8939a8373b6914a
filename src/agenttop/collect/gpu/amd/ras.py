"""What is known of memory that went bad: the list of pages that the driver has given up.

The error counters (`ras/*_err_count`) are not read: to answer, the driver takes the chip's counters over into
totals of its own and sets them to zero, and other programs may count on them. A monitor resets nothing.
"""

from __future__ import annotations

import re

from agenttop.collect.gpu.amd.files import Files
from agenttop.collect.gpu.kernel_files import folders

_PERIOD_S = 60.0
_PAGES = "ras/gpu_vram_bad_pages"
_RETIRED = re.compile(rb"^0x[0-9a-f]+ *: *0x[0-9a-f]+ *: *[RPF]\s*$", re.MULTILINE)
_RESETS = "reading AMD's error counters sets those of the chip to zero, so they are left alone"


class BadPages:
    """Of one card."""

    def __init__(self, card: Files) -> None:
        self._card = card
        names = folders(f"{card.folder}/ras")
        self._counts = any(name.endswith("_err_count") for name in names)
        self._listed = _PAGES.removeprefix("ras/") in names
        self._due = 0.0
        self.retired: int | None = None

    def look(self, at: float) -> None:
        """Read the list, where that is due."""
        if self._listed and at >= self._due:
            self._due = at + _PERIOD_S
            raw = self._card.raw(_PAGES, 65_536)
            self.retired = None if raw is None else len(_RETIRED.findall(raw))

    def health(self) -> list[str] | None:
        """What is wrong; None where nothing could be asked."""
        if self.retired is None:
            return None
        return [f"memory pages given up: {self.retired}"] if self.retired else []

    def why(self) -> tuple[str, str | None]:
        """Why errors are not counted."""
        return (_RESETS if self._counts else "this card does not count memory errors"), None
