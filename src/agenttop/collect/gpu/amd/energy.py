"""Joules: the device's counter where there is one that agrees with the power, else the power summed up."""

from __future__ import annotations

_LONGEST_GAP_S = 5.0
"""Over a longer gap the power is not known, and nothing is added."""
_JUDGED_S = 60.0
_AGREES = (0.67, 1.5)
"""A counter that grows this much slower or faster than the power is of something else, or in another unit."""


class Energy:
    """The energy of one GPU over the session."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._last_counter: float | None = None
        self._seconds = 0.0
        self._summed = 0.0
        self._counted = 0.0
        self._refuted = False

    def look(
        self, at: float, power_w: float | None, counter_j: float | None
    ) -> tuple[float | None, str | None]:
        """(joules, where they are from)."""
        gap = at - self._last[0] if self._last is not None else None
        if self._last is not None and gap is not None and power_w is not None and 0 < gap <= _LONGEST_GAP_S:
            self._summed += gap * (self._last[1] + power_w) / 2
            grown = _grown(self._last_counter, counter_j)
            if grown is not None:
                self._seconds += gap
                self._counted += grown
        if power_w is not None:
            self._last = at, power_w
        self._last_counter = counter_j
        if self._seconds >= _JUDGED_S and self._summed > 0 and not self._refuted:
            self._refuted = not _AGREES[0] <= self._counted / self._summed <= _AGREES[1]
        if counter_j is not None and not self._refuted:
            return counter_j, "counter"
        return (self._summed, "power") if self._last is not None else (None, None)


def _grown(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None and now >= before else None
