"""How often an engine is asked: about once a second, and less often where its replies are slow. Pure.

Some engines answer questions about themselves between two batches only, and stand behind everything else in
their queue. Asking such an engine every second would keep one question in its queue for ever. So at most a
fifth of the time is spent waiting for its replies.
"""

from __future__ import annotations

USUAL_S = 1.0
SHARE = 0.2
"""Of the time, spent waiting for replies."""
SLOWEST_S = 30.0
"""An engine is asked this often at least, however slow it is."""
_EARLY_S = 0.3
"""A tick may come a little before its time."""


class Pace:
    """Fed with how long each look took. Seconds are real ones."""

    def __init__(self) -> None:
        self.every_s = USUAL_S
        """Between the beginnings of two looks."""
        self._before_s = 0.0

    def took(self, spent_s: float) -> None:
        """A look is over, `spent_s` after its first question.

        Two slow looks in a row change the pace: one alone may be a hiccup of this host. One fast look, and
        the usual pace is back.
        """
        lately_s, self._before_s = min(spent_s, self._before_s), spent_s
        self.every_s = min(SLOWEST_S, max(USUAL_S, lately_s / SHARE))

    @property
    def is_usual(self) -> bool:
        """Whether whoever calls once a second need not be held back."""
        return self.every_s <= USUAL_S

    @property
    def wait_s(self) -> float:
        """From the beginning of a look to that of the next, which a tick may start a little early."""
        return 0.0 if self.is_usual else self.every_s - _EARLY_S
