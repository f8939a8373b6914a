"""How long an agent waits after a failure, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.agents.reply import Reply

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0

MOST_FAILURES = 10
"""In a row, of an engine that answers."""

MOST_REFUSALS = 3
"""Replies 4xx in a row: the same request will not be liked better the next time."""

DOWN_FOR_S = 1800.0
"""An engine that is away or loading is waited for this long: big models take many minutes to load."""


class Retry:
    """Failures in a row of one agent. Waits double from 0.5 s to 15 s, each varied by `jitter`."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._while_up = 0
        self._refused = 0
        self.failures = 0
        self.since = 0.0
        """Time of the first failure in the row."""

    def after(self, reply: Reply, now: float) -> float | None:
        """Seconds to wait after this failure; None: give up."""
        if self.failures == 0:
            self.since = now
        self.failures += 1
        if reply.error_kind == "refused" or reply.status == 503:
            if now - self.since > DOWN_FOR_S:
                return None
        else:
            self._while_up += 1
            if reply.error_kind == "http-4xx" and reply.status not in (408, 429):
                self._refused += 1
            if self._while_up >= MOST_FAILURES or self._refused >= MOST_REFUSALS:
                return None
        delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.failures - 1, 10))
        return min(LONGEST_DELAY_S, delay * self._jitter())

    def clear(self) -> None:
        """It worked again."""
        self.failures = self._while_up = self._refused = 0
