"""What happens after a failure, by its kind: how long an agent waits, and when it gives up.

A retry is a turn of its own (`Turn.attempt`), so that it never hides the failure before it. The table, in
words, is in docs/failures.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from agenttop.agents.reply import Reply

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0

MOST_FAILURES = 10
"""In a row, of an engine that answers, whatever their kinds."""

DOWN_FOR_S = 1800.0
"""An engine that is away or loading is waited for this long: big models take many minutes to load."""

HOPELESS = frozenset({401, 403, 404, 405, 501})
"""Statuses that the same request gets again: a wrong key, a wrong path."""

BUSY = frozenset({408, 429})
"""Statuses that ask to come again."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of failure."""

    most: int = MOST_FAILURES
    """So many of this kind in a row end the agent; 1: it is never sent again."""
    away: bool = False
    """The engine is away: the time counts, not the number."""


POLICIES: dict[str, Policy] = {
    "refused": Policy(away=True),
    "restarted": Policy(away=True),
    "http-4xx": Policy(most=3),
    "http-5xx": Policy(),
    "stream-error": Policy(),
    "cut": Policy(),
    "stall": Policy(most=3),
    "queue-timeout": Policy(most=3),
    "engine-limit": Policy(),
    "protocol": Policy(most=2),
    "context": Policy(most=1),
}
"""By `Turn.error_kind`. A context that is too long is not sent again as it is, but cut first; `cancelled` is
no failure."""


def policy_of(reply: Reply) -> Policy:
    """For a reply that has failed."""
    status = reply.status
    if reply.error_kind in ("http-4xx", "http-5xx"):
        if status == 503:
            return POLICIES["refused"]
        if status in HOPELESS:
            return Policy(most=1)
        if status in BUSY:
            return Policy()
    return POLICIES.get(reply.error_kind or "", Policy())


class Retry:
    """Failures in a row of one agent. Waits double from 0.5 s to 15 s, each varied by `jitter`."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._while_up = 0
        self._kinds: Counter[str] = Counter()
        self.failures = 0
        self.since = 0.0
        """Time of the first failure in the row."""

    def after(self, reply: Reply, now: float) -> float | None:
        """Seconds to wait after this failure; None: give up."""
        if self.failures == 0:
            self.since = now
        self.failures += 1
        policy = policy_of(reply)
        if policy.away:
            if now - self.since > DOWN_FOR_S:
                return None
        else:
            kind = reply.error_kind or ""
            self._while_up += 1
            self._kinds[kind] += 1
            if self._while_up >= MOST_FAILURES or self._kinds[kind] >= policy.most:
                return None
        delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.failures - 1, 10))
        return min(LONGEST_DELAY_S, delay * self._jitter())

    def clear(self) -> None:
        """It worked again."""
        self.failures = self._while_up = 0
        self._kinds.clear()
