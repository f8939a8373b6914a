"""llama.cpp's `/metrics`: what is read of it, and when.

Left alone: `prompt_tokens_seconds` and `predicted_tokens_seconds`, means since the last scrape by anybody.
Every scrape resets them for whoever else reads them, so it is done every 10 s, or every 2 s where it is
needed to see waiting requests or to count those that end between two looks, and it can be switched off.
`tokens_predicted_total` moves only when a request ends. `Process-Start-Time-Unix` is no wall clock, but it
changes with the process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from agenttop.collect.engine.base import KEY_HINT
from agenttop.collect.engine.histogram import MAX_TOTAL
from agenttop.collect.engine.http import EngineClient, UnauthorisedError
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
        "kv_cache_usage_ratio",
        "kv_cache_tokens",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_drafts_total",
    )
)
SPECULATION_S = 30.0
EXACT_TOTAL = 1_000_000
"""Counters are printed with six digits: from here on they are rounded."""
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
    kv_tokens: int | None = None
    """Tokens in the KV cache, and below the share of it that they take: builds before May 2025 only."""
    kv_fraction: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    drafts: int | None = None
    """Steps that had drafted tokens to check."""

    @property
    def looked_up(self) -> int | None:
        """Prompt tokens, those found in the cache included: `prompt_tokens` leaves them out."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens + self.cached_tokens

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

    ratio = total(samples, _PREFIX + "kv_cache_usage_ratio")
    return Metrics(
        at=at,
        process=process,
        prompt_tokens=value("prompt_tokens_total"),
        cached_tokens=value("prompt_tokens_cached_total"),
        output_tokens=value("tokens_predicted_total"),
        decode_calls=value("n_decode_total"),
        running=value("requests_processing"),
        waiting=value("requests_deferred"),
        kv_tokens=value("kv_cache_tokens"),
        kv_fraction=min(1.0, ratio) if ratio is not None and 0 <= ratio < math.inf else None,
        drafted=value("spec_decode_num_draft_tokens_total"),
        accepted=value("spec_decode_num_accepted_tokens_total"),
        drafts=value("spec_decode_num_drafts_total"),
    )


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that ended within the last `SPECULATION_S`; None where none of them drafted."""

    acceptance: float | None = None
    """Share of the drafted tokens that was taken."""
    tokens_per_step: float | None = None


def speculation(scrapes: Sequence[Metrics]) -> Speculation:
    """What the oldest and the newest scrape say together: these counters move when a request ends."""
    if len(scrapes) < 2:
        return Speculation()
    first, last = scrapes[0], scrapes[-1]
    drafted, accepted = _grown(last.drafted, first.drafted), _grown(last.accepted, first.accepted)
    steps = _grown(last.drafts, first.drafts)
    if not drafted or accepted is None or accepted > drafted:
        return Speculation()
    return Speculation(
        acceptance=accepted / drafted, tokens_per_step=1.0 + accepted / steps if steps else None
    )


def _grown(now: int | None, before: int | None) -> int | None:
    return now - before if now is not None and before is not None and now >= before else None


class MetricsSource:
    """Scrapes when it is worth it, and compares each scrape with the one before."""

    def __init__(self, client: EngineClient, wanted: bool) -> None:
        self.wanted = wanted
        self.refused = False
        """The server says that it has no such endpoint (501 without `--metrics`), or wants a key."""
        self.why, self.fix = "the server's /metrics is off", "start llama-server with --metrics"
        """Where it is refused."""
        self._scrapes: deque[Metrics] = deque()
        """Of the last `SPECULATION_S`."""
        self.latest: Metrics | None = None
        self._before: Metrics | None = None
        self._client = client
        self._was_full = False

    @property
    def usable(self) -> bool:
        """Whether it may be asked, and answers."""
        return self.wanted and not self.refused

    @property
    def leaves_asleep(self) -> bool:
        """Whether a scrape neither wakes the server nor keeps it awake: since August 2026, which the counter
        of cached tokens shows, as it came in the weeks before."""
        return self.usable and self.latest is not None and self.latest.cached_tokens is not None

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
        # Where its gauge is all that tells how full the cache is, once more after the last request.
        uncounted = uncounted or (self.latest.kv_tokens is not None and bool(self.latest.running))
        often = full or uncounted or unsettled or bool(self.latest.waiting)
        wait_s = _ALWAYS_S if slots is None else _OFTEN_S if often else _RARELY_S
        return self._client.now() - self.latest.at >= wait_s - _EARLY_S

    async def scrape(self) -> bool:
        """Ask; whether the server turns out to be another process than at the last scrape."""
        try:
            reply = await self._client.get("/metrics")
        except UnauthorisedError:
            self.refused, self.why, self.fix = True, "the server's /metrics asks for a key", KEY_HINT
            return False
        marker = reply.headers.get(_START_HEADER)
        found = parse_metrics(reply.text(), reply.at, marker) if reply.status == 200 else None
        if found is None:
            self.refused = reply.status != 503
            return False
        before, self.latest = self.latest, found
        self._before = before if before is not None and not found.went_back(before) else None
        if self._before is None:
            self._scrapes.clear()
        self._scrapes.append(found)
        while len(self._scrapes) > 2 and self._scrapes[1].at <= found.at - SPECULATION_S:
            self._scrapes.popleft()
        return before is not None and found.is_of_another_process(before)

    def is_still(self, before: Metrics | None) -> bool:
        """Whether the server has done nothing between `before` and the latest scrape."""
        now = self.latest
        return now is not None and before is not None and not now.running and now.counters == before.counters

    def forget(self) -> None:
        """The next scrape has nothing to be compared with."""
        self.latest = self._before = None
        self._scrapes.clear()

    @property
    def speculation(self) -> Speculation:
        """As of the latest scrape."""
        return speculation(self._scrapes)

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens per second between the last two scrapes: for builds whose slots do not count them."""
        now, before = self.latest, self._before
        if now is None or before is None or now.at <= before.at:
            return None
        if now.prompt_tokens is None or before.prompt_tokens is None:
            return None
        return (now.prompt_tokens - before.prompt_tokens) / (now.at - before.at)
