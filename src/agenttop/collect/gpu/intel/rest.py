"""When an idle card is left alone, so that the kernel may power it down. Pure.

Reading almost any figure of i915 and xe counts as a use of the card, and the kernel powers a card down only
after it has not been used for a while: somebody who looks every second keeps it awake for ever. So an idle
card that no process has open is not read for a little longer than that while. Where it stays awake all the
same, something else holds it (a screen), and it is read again for minutes before the next try.
"""

from __future__ import annotations

_MARGIN_S = 2.0
_LONGEST_S = 15.0
_BETWEEN_S = 600.0
_IDLE = 0.02
"""Share of the time awake below which a card is idle."""


class Rest:
    """The rests of one card."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._next = 0.0

    def resting(self, at: float) -> bool:
        """Whether the card is left alone now."""
        if self._until is not None and at >= self._until:
            self._until = None
            self._next = at + _BETWEEN_S
        return self._until is not None

    def begin(self, at: float, awake: float | None, in_use: bool, delay_ms: int | None) -> None:
        """Told after each look. `delay_ms`: after how long without use the kernel powers the card down; None
        where it does not."""
        if in_use or awake is None or awake > _IDLE or delay_ms is None or delay_ms < 0 or at < self._next:
            return
        wait = delay_ms / 1000 + _MARGIN_S
        if wait <= _LONGEST_S:
            self._until = at + wait

    def slept(self) -> None:
        """The card has gone to sleep: the next rest may come as soon as it is idle again."""
        self._until, self._next = None, 0.0
