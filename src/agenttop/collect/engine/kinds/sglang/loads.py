"""`/v1/loads` (0.5.10 and newer) and `/get_load` (before it): what each data-parallel rank does now. Pure.

A rank publishes its state every 15 decode steps or so, at every prefill and while it is idle, with the time
at which it was so. On a slow machine 15 steps take seconds, so rates are taken between those times and not
between our looks. The counters of work (`decode_moments`, `total_prefill_uncached_tokens`) came with 0.5.2x
and need no `--enable-metrics`. A decode step next to a prefill is left out of the first one (measured: 16 of
6384 tokens in a run with five prefills), so that its rate is a floor while prompts come in.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import msgspec

from agenttop.collect.engine.counters import LEAST_S, WINDOW_S
from agenttop.collect.engine.histogram import MAX_TOTAL
from agenttop.collect.engine.http import Reply
from agenttop.model.text import clean

MOST_RANKS = 1024
STALE_S = 10.0
"""A rank that works and publishes nothing for so long has no rate that is of now."""
_TOKENS = 5
"""Of `decode_moments`: steps, then sums of batch, time, batch squared, batch by time, tokens generated."""
_GIB = 2**30


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; None: not told."""

    name: str
    taken_at: float | None = None
    """When it was so, seconds since 1970 by the server's clock."""
    running: int | None = None
    waiting: int | None = None
    """In the queue, those whose grammar is being compiled included."""
    reasons: dict[str, int] = {}
    used: int | None = None
    """Tokens held by requests; what the prefix cache could give up is not in it."""
    pool: int | None = None
    fraction: float | None = None
    """The fullest of its pools, where a model has several."""
    sequences_max: int | None = None
    throughput: float | None = None
    """Tokens a second over some 40 steps; stands still between them. 0 may mean that nobody computes it."""
    hit_fraction: float | None = None
    decoded: float | None = None
    """Tokens since the start, without the first one of each request, which its prefill gives."""
    prefilled: float | None = None
    """Prompt tokens computed since the start."""
    retracted: int | None = None
    """Requests pushed out of the batch lately: no total, and they wait in the queue again."""
    memory_bytes: int | None = None
    accept_length: float | None = None
    accept_rate: float | None = None


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """One reply."""

    at: float
    """When it arrived."""
    version: str | None = None
    ranks: tuple[Rank, ...] = ()

    def total(self, field: str) -> int | None:
        """The sum over the ranks; None where one does not tell it."""
        values = [getattr(rank, field) for rank in self.ranks]
        return sum(values) if values and None not in values else None

    def mean(self, field: str) -> float | None:
        """Over the ranks that tell it."""
        values = [value for rank in self.ranks if (value := getattr(rank, field)) is not None]
        return sum(values) / len(values) if values else None

    @property
    def reasons(self) -> dict[str, int]:
        """Why requests wait, over all ranks."""
        found: dict[str, int] = {}
        for rank in self.ranks:
            for reason, count in rank.reasons.items():
                found[reason] = found.get(reason, 0) + count
        return found


def read(reply: Reply) -> Loads | None:
    """None when it is no such reply."""
    found = reply.json(dict[str, Any])
    listed = found.get("loads") if found is not None else None
    if found is None or not isinstance(listed, list):
        return None
    ranks = tuple(_rank(each, found) for each in listed[:MOST_RANKS] if isinstance(each, dict))
    version = found.get("version")
    return Loads(
        at=reply.at,
        version=clean(version, 40) or None if isinstance(version, str) else None,
        ranks=_distinct(ranks),
    )


def read_older(reply: Reply) -> Loads | None:
    """`/get_load`. Its `num_tokens` counts prompts in the queue as well: it is usage while none waits."""
    found = reply.json(list[dict[str, Any]])
    if not found or not all("num_reqs" in each for each in found):
        return None
    ranks = []
    for each in found[:MOST_RANKS]:
        requests, waiting = _count(each.get("num_reqs")), _count(each.get("num_waiting_reqs"))
        known = requests is not None and waiting is not None
        ranks.append(
            Rank(
                name=_name(each),
                running=max(0, requests - waiting) if requests is not None and waiting is not None else None,
                waiting=waiting if known else None,
                used=_count(each.get("num_tokens")) if waiting == 0 else None,
            )
        )
    return Loads(at=reply.at, ranks=_distinct(tuple(ranks)))


class SnapshotRates:
    """Rates of one rank, between the times that its states are of."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, Rank]] = deque()
        self._new_at = -math.inf
        self._at = -math.inf

    def add(self, at: float, rank: Rank) -> bool:
        """Take in what was seen at `at`. Whether a counter is lower than it was."""
        if rank.taken_at is None:
            self._seen.clear()
            return False
        self._at = at
        if self._seen:
            before_at, before = self._seen[-1]
            if _went_back(before, rank):
                self._seen.clear()
                self._seen.append((rank.taken_at, rank))
                self._new_at = at
                return True
            if rank.taken_at == before_at:
                return False
            if rank.taken_at < before_at:  # the server's clock was set
                self._seen.clear()
        self._seen.append((rank.taken_at, rank))
        self._new_at = at
        while len(self._seen) > 2 and self._seen[1][0] <= rank.taken_at - self._window_s:
            self._seen.popleft()
        return False

    @property
    def span_s(self) -> float | None:
        """Seconds that the rates are over; None while they are too few, or the newest is too old."""
        if len(self._seen) < 2 or self._at - self._new_at > STALE_S:
            return None
        span = self._seen[-1][0] - self._seen[0][0]
        return span if span >= LEAST_S else None

    @property
    def decode(self) -> float | None:
        """Tokens a second."""
        return self._rate(self._seen[0][1].decoded, self._seen[-1][1].decoded) if self._seen else None

    @property
    def prefill(self) -> float | None:
        """Tokens a second."""
        return self._rate(self._seen[0][1].prefilled, self._seen[-1][1].prefilled) if self._seen else None

    @property
    def is_floor(self) -> bool:
        """Whether steps may be missing from `decode`."""
        return bool(self.prefill)

    def _rate(self, first: float | None, last: float | None) -> float | None:
        span = self.span_s
        return (last - first) / span if first is not None and last is not None and span is not None else None


def _went_back(before: Rank, now: Rank) -> bool:
    pairs = ((before.decoded, now.decoded), (before.prefilled, now.prefilled))
    return any(was is not None and new is not None and new < was for was, new in pairs)


def _rank(each: dict[str, Any], reply: dict[str, Any]) -> Rank:
    queues, moments, drafts = each.get("queues"), each.get("decode_moments"), each.get("speculative")
    queues = queues if isinstance(queues, dict) else {}
    drafts = drafts if isinstance(drafts, dict) else {}
    waiting, grammar = _count(each.get("num_waiting_reqs")), _count(queues.get("grammar")) or 0
    reasons = {"queued": waiting or 0, "grammar": grammar, "paused": _count(queues.get("paused")) or 0}
    used, pool = _count(each.get("num_used_tokens")), _count(each.get("max_total_num_tokens"))
    fraction = _number(each.get("token_usage"))
    if fraction is None and used is not None and pool:
        fraction = used / pool
    return Rank(
        name=_name(each),
        taken_at=_number(each.get("timestamp")) or None,
        running=_count(each.get("num_running_reqs")),
        waiting=waiting + grammar if waiting is not None else None,
        reasons={reason: count for reason, count in reasons.items() if count},
        used=used,
        pool=pool or None,
        fraction=min(1.0, fraction) if fraction is not None else None,
        sequences_max=_count(each.get("max_running_requests")) or None,
        throughput=_number(each.get("gen_throughput")),
        hit_fraction=_number(each.get("cache_hit_rate")),
        decoded=_number(moments[_TOKENS]) if isinstance(moments, list) and len(moments) > _TOKENS else None,
        prefilled=_number(each.get("total_prefill_uncached_tokens")),
        retracted=_count(queues.get("retracted")),
        memory_bytes=_memory(each.get("memory"), reply),
        accept_length=_number(drafts.get("accept_length")) or None,
        accept_rate=_number(drafts.get("accept_rate")),
    )


def _memory(found: Any, reply: dict[str, Any]) -> int | None:
    """Of one accelerator; with several behind a rank the others may hold more or less."""
    if not isinstance(found, dict) or reply.get("num_accelerators") != 1:
        return None
    parts = [_number(found.get(f"{part}_gb")) for part in ("weight", "kv_cache", "graph")]
    known = [part for part in parts if part is not None]
    return round(sum(known) * _GIB) if len(known) == len(parts) else None


def _distinct(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
    return tuple({rank.name: rank for rank in ranks}.values())


def _name(each: dict[str, Any]) -> str:
    rank = _count(each.get("dp_rank"))
    return str(rank if rank is not None else 0)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < MAX_TOTAL else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None
