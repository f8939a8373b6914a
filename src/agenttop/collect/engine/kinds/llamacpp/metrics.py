"""llama.cpp's `/metrics`: what is read of it, and when.

Left alone: `prompt_tokens_seconds` and `predicted_tokens_seconds`, means since the last scrape by anybody.
Every scrape resets them for whoever else reads them, so it is done every 10 s, or every 2 s where it is
needed to see waiting requests or to count those that end between two looks, and it can be switched off.
`tokens_predicted_total` moves only when a request ends. `Process-Start-Time-Unix` is no wall clock, but it
changes with the process.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kinds.llamacpp.slots import Slot
from agenttop.wire.prometheus import parse, total

_START_HEADER = "process-start-time-unix"
_PREFIX = "llamacpp:"
_WANTED = frozenset(
    _PREFIX + name
    for name in (
        "prompt_tokens_total",
        "prompt_tokens_cached_total",
        "tokens_predicted_total",
        "n_decode_total",
        "requests_processing",
        "requests_deferred",
    )
)
EXACT_TOTAL = 1_000_000
"""Counters are printed with six digits: from here on they are rounded."""
MAX_TOTAL = 1e15
"""A counter beyond it (or infinite, or not a number) counts nothing."""
_RARELY_S, _OFTEN_S, _ALWAYS_S = 10.0, 2.0, 0.8
_EARLY_S = 0.3
"""A tick may come a little before its time."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not in this build. Counters are since the start of the server."""

    at: float
    process: str | None
    """Marker of the server process."""
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    decode_calls: int | None
    running: int | None
    waiting: int | None

    @property
    def counters(self) -> tuple[int | None, ...]:
        """What moves when the server works."""
        return (self.prompt_tokens, self.cached_tokens, self.output_tokens, self.decode_calls)

    def went_back(self, before: Metrics) -> bool:
        """Whether a counter is lower than it was."""
        pairs = zip(self.counters, before.counters, strict=True)
        return any(now is not None and was is not None and now < was for now, was in pairs)

    def is_of_another_process(self, before: Metrics) -> bool:
        """Whether the server was restarted between two scrapes.

        Counters alone do not prove it where the process is marked: they go back too when a server
        that slept loads its model again.
        """
        if self.process is not None and before.process is not None:
            return self.process != before.process
        return self.went_back(before)


def parse_metrics(text: str, at: float, process: str | None) -> Metrics | None:
    """None when there is no `llamacpp:` sample in the text. Pure."""
    samples = parse(text, _WANTED)
    if not samples:
        return None

    def value(name: str) -> int | None:
        found = total(samples, _PREFIX + name)
        return int(found) if found is not None and 0 <= found < MAX_TOTAL else None

    return Metrics(
        at=at,
        process=process,
        prompt_tokens=value("prompt_tokens_total"),
        cached_tokens=value("prompt_tokens_cached_total"),
        output_tokens=value("tokens_predicted_total"),
        decode_calls=value("n_decode_total"),
        running=value("requests_processing"),
        waiting=value("requests_deferred"),
    )


class MetricsSource:
    """Scrapes when it is worth it, and compares each scrape with the one before."""

    def __init__(self, client: EngineClient, wanted: bool) -> None:
        self.wanted = wanted
        self.refused = False
        """The server says that it has no such endpoint (501 without `--metrics`)."""
        self.latest: Metrics | None = None
        self._before: Metrics | None = None
        self._client = client
        self._was_full = False

    @property
    def usable(self) -> bool:
        """Whether it may be asked, and answers."""
        return self.wanted and not self.refused

    def due(self, slots: Sequence[Slot] | None, *, unsettled: bool = False) -> bool:
        """Whether a scrape is worth its side effect now; `slots` is None where they are not shown.

        `unsettled`: requests have ended unseen, and only the server's counter has their last tokens.
        """
        if not self.usable:
            return False
        full = bool(slots) and all(slot.processing for slot in slots or ())
        was_full, self._was_full = self._was_full, full
        if self.latest is None or (was_full and not full):
            return True
        uncounted = any(slot.processing and slot.processed is None for slot in slots or ())
        often = full or uncounted or unsettled or bool(self.latest.waiting)
        wait_s = _ALWAYS_S if slots is None else _OFTEN_S if often else _RARELY_S
        return self._client.now() - self.latest.at >= wait_s - _EARLY_S

    async def scrape(self) -> bool:
        """Ask; whether the server turns out to be another process than at the last scrape."""
        reply = await self._client.get("/metrics")
        marker = reply.headers.get(_START_HEADER)
        found = parse_metrics(reply.text(), reply.at, marker) if reply.status == 200 else None
        if found is None:
            self.refused = reply.status != 503
            return False
        before, self.latest = self.latest, found
        self._before = before if before is not None and not found.went_back(before) else None
        return before is not None and found.is_of_another_process(before)

    def is_still(self, before: Metrics | None) -> bool:
        """Whether the server has done nothing between `before` and the latest scrape."""
        now = self.latest
        return now is not None and before is not None and not now.running and now.counters == before.counters

    def forget(self) -> None:
        """The next scrape has nothing to be compared with."""
        self.latest = self._before = None

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens per second between the last two scrapes: for builds whose slots do not count them."""
        now, before = self.latest, self._before
        if now is None or before is None or now.at <= before.at:
            return None
        if now.prompt_tokens is None or before.prompt_tokens is None:
            return None
        return (now.prompt_tokens - before.prompt_tokens) / (now.at - before.at)
