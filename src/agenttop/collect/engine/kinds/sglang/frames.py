"""What is known of an SGLang server, as frames. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agenttop.collect.engine.base import KEY_HINT, Reasons
from agenttop.collect.engine.kinds.sglang.loads import Loads, SnapshotRates
from agenttop.collect.engine.kinds.sglang.metrics import Figures
from agenttop.collect.engine.served import settled
from agenttop.model.frames import EngineSample, Missing, PartSample
from agenttop.model.text import clean

METRICS_FIX = "start SGLang with --enable-metrics"
_TOTALS = (
    "output_tokens_total prompt_tokens_total cached_tokens_total finished_total prefix_hits_tokens_total "
    "prefix_queries_tokens_total preemptions_total kv_idle_tokens"
)
"""Only `/metrics` tells them."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured now; None where it cannot be."""

    window_s: float | None = None
    decode: float | None = None
    is_floor: bool = False
    prefill: float | None = None
    share: float | None = None
    sequences: float | None = None
    why: str | None = None
    """Why there is no rate of decoding, where something better than the usual is known."""
    fix: str | None = None


class Info(msgspec.Struct, frozen=True):
    """Of `/server_info`, asked once: settings, nothing that moves."""

    version: str | None = None
    quantisation: str | None = None
    kv_dtype: str | None = None
    pool: int | None = None
    sequences_max: int | None = None
    drafts: bool | None = None
    """Whether it decodes speculatively; None: not told."""


def info(found: Mapping[str, Any]) -> Info:
    """From the fields of the reply. It may hold keys: nothing else of it is kept."""

    def text(name: str) -> str | None:
        value = found.get(name)
        return clean(value, 40) or None if isinstance(value, str) else None

    def whole(name: str) -> int | None:
        value = found.get(name)
        return (
            value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12 else None
        )

    kv = text("kv_cache_dtype")
    states = found.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    effective = state.get("effective_max_running_requests_per_dp")
    running = (
        effective if isinstance(effective, int) and 0 < effective < 10**9 else whole("max_running_requests")
    )
    return Info(
        version=text("version"),
        quantisation=text("quantization"),
        kv_dtype=kv if kv != "auto" else text("dtype") if text("dtype") != "auto" else None,
        pool=whole("max_total_num_tokens"),
        sequences_max=running,
        drafts=found.get("speculative_algorithm") is not None if "speculative_algorithm" in found else None,
    )


def with_loads(sample: EngineSample, found: Loads) -> EngineSample:
    """`sample` with what `/v1/loads` tells."""
    several = len(found.ranks) > 1
    fractions = [rank.fraction for rank in found.ranks if rank.fraction is not None]
    used = found.total("used")
    running = found.total("running")
    hits = found.mean("hit_fraction") if running else None  # it falls to 0 when the last request ends
    return msgspec.structs.replace(
        sample,
        version=found.version or sample.version,
        running=running,
        waiting=found.total("waiting"),
        waiting_reasons=found.reasons,
        kv_layout="paged",
        kv_pool_tokens=found.total("pool") or sample.kv_pool_tokens,
        kv_used_tokens=used,
        kv_active_tokens=used,
        kv_used_fraction=_share(fractions, used, found.total("pool") or sample.kv_pool_tokens),
        kv_fullest_fraction=max(fractions, default=None) if several else None,
        data_parallel=len(found.ranks) if several else None,
        sequences_max=found.total("sequences_max") or sample.sequences_max,
        prefix_hit_fraction=min(1.0, hits) if hits is not None else None,
        memory_bytes=found.total("memory_bytes"),
        tokens_per_step=found.mean("accept_length"),
        draft_acceptance=_clamped(found.mean("accept_rate")) if found.mean("accept_length") else None,
    )


def with_metrics(sample: EngineSample, found: Figures, *, loads: bool) -> EngineSample:
    """`sample` with what `/metrics` tells; `loads`: what moves is known better already."""
    queries = None
    if found.computed is not None and found.from_cache is not None:
        queries = int(found.computed + found.from_cache)
    if not loads:
        grammar = found.grammar or 0
        waits = {"queued": found.waiting or 0, "grammar": grammar}
        sample = msgspec.structs.replace(
            sample,
            running=found.running,
            waiting=found.waiting + grammar if found.waiting is not None else None,
            waiting_reasons={reason: count for reason, count in waits.items() if count},
            kv_layout="paged" if found.fraction is not None else None,
            kv_used_fraction=found.fraction,
            kv_fullest_fraction=found.fullest if found.ranks > 1 else None,
            kv_used_tokens=found.used,
            kv_active_tokens=found.used,
            data_parallel=found.ranks if found.ranks > 1 else None,
        )
    pool = sample.kv_pool_tokens or found.pool
    active, idle = sample.kv_active_tokens, found.evictable
    if idle is not None and active is not None and pool:
        idle = max(0, min(idle, pool - active))  # the two may be some steps apart
    drafts = sample.tokens_per_step is None and found.accept_length is not None
    return msgspec.structs.replace(
        sample,
        model=sample.model or found.model,
        context_limit_tokens=sample.context_limit_tokens or found.context,
        kv_pool_tokens=pool,
        kv_idle_tokens=idle,
        kv_used_tokens=active + (idle or 0) if active is not None else None,
        output_tokens_total=found.output,
        prompt_tokens_total=found.prompt,
        cached_tokens_total=found.cached,
        finished_total=found.requests,
        finish_reasons={"abort": found.aborted} if found.aborted else {},
        preemptions_total=found.retractions,
        prefix_hits_tokens_total=int(found.from_cache) if found.from_cache is not None else None,
        prefix_queries_tokens_total=queries,
        tokens_per_step=found.accept_length if drafts else sample.tokens_per_step,
        draft_acceptance=_clamped(found.accept_rate) if drafts else sample.draft_acceptance,
    )


def parts(
    t: float, url: str, found: Loads, rates: Mapping[str, SnapshotRates], decode: Mapping[str, float | None]
) -> list[PartSample]:
    """The data-parallel ranks, where there are several. `decode`: rates by rank from a better counter."""
    if len(found.ranks) < 2:
        return []
    told = []
    for rank in found.ranks:
        own = rates.get(rank.name)
        told.append(
            PartSample(
                t=t,
                engine=url,
                part=rank.name,
                role="rank",
                running=rank.running,
                waiting=rank.waiting,
                kv_used_fraction=rank.fraction,
                kv_used_tokens=rank.used,
                kv_pool_tokens=rank.pool,
                decode_tok_s=decode.get(rank.name, own.decode if own is not None else None),
                prefill_tok_s=own.prefill if own is not None else None,
            )
        )
    return told


def missing(
    sample: EngineSample, rates: Rates, *, loads: bool, metrics: bool, locked: bool, drafts: bool | None
) -> list[Missing]:
    """Everything that is not shown, and why."""
    reasons = Reasons(sample.url, sample.t)
    reasons.add("slots_total", "SGLang has no slots: requests share one batch and one KV pool")
    if sample.context_limit_tokens is None:
        why = "GET /v1/models needs a key" if locked else "GET /v1/models does not tell it"
        reasons.add("context_limit_tokens", why, KEY_HINT if locked else None)
    if not metrics:
        reasons.add(_TOTALS, "GET /metrics is not there: its metrics are off", METRICS_FIX)
    else:
        _of_metrics(reasons, sample)
    if not loads and not metrics:
        why = "this version tells what it does only in its metrics, which are off"
        reasons.add("running waiting kv_used_fraction kv_used_tokens kv_pool_tokens", why, METRICS_FIX)
    elif sample.kv_pool_tokens is None:
        reasons.add("kv_pool_tokens", "this version does not tell how large its pool is")
    if sample.running is not None and sample.kv_used_tokens is None and (loads or metrics):
        reasons.add("kv_used_tokens", "this version tells it only while no request waits")
    for field, rate in (("decode_tok_s", rates.decode), ("prefill_tok_s", rates.prefill)):
        if rate is None and rates.window_s is not None:
            reasons.add(field, "this version counts tokens only when a request ends")
        elif rate is None:
            reasons.add(field, rates.why or "the first looks are still being taken", rates.fix)
    if sample.tokens_per_step is None:
        off = (
            "speculative decoding is off"
            if drafts is False
            else "no draft has been verified yet, or it is off"
        )
        reasons.add("tokens_per_step draft_acceptance", off)
    return settled(sample, reasons, "its replies do not tell it")


def _of_metrics(reasons: Reasons, sample: EngineSample) -> None:
    if sample.preemptions_total is None:
        why = "SGLang writes this counter with the first retraction, from 0.5.10 on; there has been none"
        reasons.add("preemptions_total", why)
    if sample.cached_tokens_total is None:
        reasons.add(
            "cached_tokens_total", "SGLang writes this counter with the first hit; there has been none"
        )
    if sample.prefix_queries_tokens_total is None:
        why = "it counts them from the first request on, in 0.5.10 and newer"
        reasons.add("prefix_hits_tokens_total prefix_queries_tokens_total", why)
    if sample.output_tokens_total is None:
        reasons.add("output_tokens_total prompt_tokens_total finished_total", "no request has ended yet")
    if sample.kv_idle_tokens is None:
        reasons.add("kv_idle_tokens", "this version does not tell what its prefix cache holds")


def _share(fractions: list[float], used: int | None, pool: int | None) -> float | None:
    if fractions:
        return sum(fractions) / len(fractions)
    return min(1.0, used / pool) if used is not None and pool else None


def _clamped(value: float | None) -> float | None:
    return min(1.0, value) if value is not None else None
