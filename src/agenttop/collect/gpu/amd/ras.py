"""Memory errors, where the card counts them: `ras/*_err_count` and the list of pages given up.

The driver asks the chip and adds what it finds to totals of its own, so that these grow however many programs
read them. It may take milliseconds: once a minute is enough.
"""

from __future__ import annotations

import re

from agenttop.collect.gpu.amd.files import Files
from agenttop.collect.gpu.kernel_files import folders

_PERIOD_S = 60.0
_COUNT = re.compile(rb"^(ue|ce):\s*(\d{1,15})\s*$", re.MULTILINE)
_PAGES = "ras/gpu_vram_bad_pages"
_RETIRED = re.compile(rb"^0x[0-9a-f]+ *: *0x[0-9a-f]+ *: *[RPF]\s*$", re.MULTILINE)


class MemoryErrors:
    """The counters of one card."""

    def __init__(self, card: Files) -> None:
        self._card = card
        names = folders(f"{card.folder}/ras")
        self._blocks = [f"ras/{name}" for name in names if name.endswith("_err_count")]
        self._pages = _PAGES.removeprefix("ras/") in names
        self._due = 0.0
        self._known: dict[str, tuple[int, int]] = {}
        self.retired: int | None = None

    @property
    def counted(self) -> bool:
        """The card counts errors."""
        return bool(self._blocks)

    def look(self, at: float) -> None:
        """Read all counters, where that is due. A block that does not answer keeps what it last said."""
        if at < self._due:
            return
        self._due = at + _PERIOD_S
        for name in self._blocks:
            found = dict(_COUNT.findall(self._card.raw(name) or b""))
            if b"ue" in found and b"ce" in found:
                self._known[name] = int(found[b"ue"]), int(found[b"ce"])
        if self._pages:
            raw = self._card.raw(_PAGES, 65_536)
            self.retired = None if raw is None else len(_RETIRED.findall(raw))

    @property
    def uncorrected(self) -> int | None:
        """Of all blocks that answer."""
        return sum(ue for ue, _ in self._known.values()) if self._known else None

    @property
    def corrected(self) -> int | None:
        """Of all blocks that answer."""
        return sum(ce for _, ce in self._known.values()) if self._known else None

    def health(self) -> list[str] | None:
        """What is wrong; None where nothing was asked."""
        if not self._known and self.retired is None:
            return None
        found: list[str] = []
        if self.uncorrected:
            found.append(f"uncorrected memory errors: {self.uncorrected}")
        if self.retired:
            found.append(f"memory pages given up: {self.retired}")
        return found

    def why(self) -> tuple[str, str | None]:
        """Why there are no counts."""
        if not self.counted:
            return "this card does not count memory errors", None
        return self._card.why(*self._blocks)
