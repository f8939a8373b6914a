"""Something that comes and goes, told as a begin and an end and not once a second. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agenttop.model import units

AGAIN_S = 60.0
"""What comes and goes is told this often at most: seconds of the person who reads it, not of a session
that runs faster than life."""

CALM_S = 10.0
"""What has not been seen for so long, in the same seconds, has ended."""


@dataclass(slots=True)
class Episode:
    """One condition of one thing.

    It begins once it has held for `hold_s` and ends once it has not been seen for `CALM_S`; what begins
    within `AGAIN_S` of the last word is not told, but counted.
    """

    hold_s: float = 0.0
    on: bool = False
    """In the newest look."""
    told: bool = False
    """A begin was told, and no end since."""
    seen_at: float = -math.inf
    _on_since: float = -math.inf
    _told_at: float = -math.inf
    _begun_at: float = -math.inf
    _times: int = 0
    """How often it began since something was told."""

    def begins(self, t: float, pace: float) -> bool:
        """It is there at `t`; whether that is to be told. `pace`: session seconds per second."""
        if not self.on:
            self.on, self._on_since = True, t
            self._times += 1
        self.seen_at = t
        held = t - self._on_since >= self.hold_s * pace
        return held and not self.told and t - self._told_at >= AGAIN_S * pace

    def ends(self, t: float, pace: float) -> bool:
        """It is not there at `t`; whether that is to be told as its end."""
        self.on = False
        return self.told and t - self.seen_at >= CALM_S * pace

    def tell(self, t: float, *, begin: bool) -> None:
        """The begin or the end has been told."""
        if begin:
            self._begun_at = self._on_since
        self.told, self._told_at, self._times = begin, t, 0

    @property
    def lasted(self) -> float:
        """Seconds from the begin that was told to when it was last seen."""
        return max(0.0, self.seen_at - self._begun_at)

    def repeats(self, t: float) -> str:
        """`, 12 times in 4.0 m`: nothing for the first time, and where it did not come again."""
        if self._times < 2 or not math.isfinite(self._told_at):
            return ""
        return f", {self._times} times in {units.seconds(t - self._told_at)}"
