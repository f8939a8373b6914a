"""What is read of SGLang's `/metrics` (`--enable-metrics`), from 0.4 to 0.5.23. Pure.

- Every scheduler process that reports says the whole of its group again: of the tensor, pipeline and expert
  parallel ranks one counts, the data-parallel ones (`dp_rank`) are added up.
- With priorities a gauge is written once for all of them (`priority=""`) and once for each.
- `realtime_tokens_total` moves with every decode step and every prefill batch; `generation_tokens_total` and
  `prompt_tokens_total` when a request ends. The first token of a request comes from its prefill and is in no
  count of decoded ones: the count of first tokens is added.
- Gauges are written every 40 decode steps or so, and stand still for up to 30 s after the last one.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition, Series
from agenttop.collect.engine.histogram import MAX_TOTAL, Histogram
from agenttop.model.text import clean
from agenttop.wire.prometheus import Labels

PREFIXES = ("sglang:", "sglang_")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def of_one_process(series: Series) -> Series:
    """Without what other processes, or other priorities, say again."""
    if len(series) < 2:
        return series
    if any(labels.get("priority") == "" for labels, _ in series):
        series = [(labels, value) for labels, value in series if not labels.get("priority")]
    first: dict[str, tuple[int, ...]] = {}
    for labels, _ in series:
        group, place = labels.get("dp_rank", ""), _place(labels)
        first[group] = min(first.get(group, place), place)
    return [(labels, value) for labels, value in series if _place(labels) == first[labels.get("dp_rank", "")]]


def _place(labels: Labels) -> tuple[int, ...]:
    texts = [labels.get(name, "") for name in _RANKS]
    return tuple(int(text[:9]) if text.isascii() and text.isdigit() else -1 for text in texts)


CATALOGUE = Catalogue(
    PREFIXES,
    {
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "grammar": ("num_grammar_queue_reqs",),
        "fraction": ("token_usage",),
        "used": ("kv_used_tokens", "num_used_tokens"),
        "evictable": ("kv_evictable_tokens",),
        "pool": ("max_total_num_tokens",),
        "context": ("context_len",),
        "throughput": ("gen_throughput",),
        "hit_rate": ("cache_hit_rate",),
        "realtime": ("realtime_tokens_total",),
        "output": ("generation_tokens_total",),
        "prompt": ("prompt_tokens_total",),
        "cached": ("cached_tokens_total",),
        "requests": ("num_requests_total",),
        "aborted": ("num_aborted_requests_total",),
        "retractions": ("num_retracted_requests_total",),
        "accept_length": ("spec_accept_length",),
        "accept_rate": ("spec_accept_rate",),
        "first_tokens": ("time_to_first_token_seconds_count",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "queue": ("queue_time_seconds",),
    },
    keep=of_one_process,
)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not in this version. Counters are since the start of the server."""

    at: float
    model: str | None
    running: int | None
    waiting: int | None
    grammar: int | None
    fraction: float | None
    """Mean over the data-parallel ranks."""
    fullest: float | None
    ranks: int
    used: int | None
    evictable: int | None
    pool: int | None
    context: int | None
    throughput: float | None
    hit_rate: float | None
    decoded: dict[str, float] | None
    """By data-parallel rank, without first tokens; None where this version does not count them live."""
    first_tokens: float
    computed: float | None
    from_cache: float | None
    output: int | None
    prompt: int | None
    cached: int | None
    requests: int | None
    aborted: int | None
    retractions: int | None
    accept_length: float | None
    accept_rate: float | None
    histograms: dict[str, Histogram]

    @property
    def counters(self) -> dict[str, float | None]:
        """What never goes back while the server lives."""
        decoded = None
        if self.decoded is not None:
            decoded = sum(self.decoded.values()) + self.first_tokens
        return {
            "decode": decoded,
            "prefill": self.computed,
            "output": self.output,
            "prompt": self.prompt,
            "requests": self.requests,
            **{f"decode {rank}": value for rank, value in (self.decoded or {}).items()},
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of SGLang's own in the text."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    fractions = [min(1.0, max(0.0, value)) for value in found.each("fraction", "dp_rank").values()]
    decoded, computed, from_cache = _realtime(found)
    model = found.labels("running").get("model_name") or found.labels("output").get("model_name") or ""
    return Figures(
        at=at,
        model=clean(model, 80) or None,
        running=found.count("running"),
        waiting=found.count("waiting"),
        grammar=found.count("grammar"),
        fraction=sum(fractions) / len(fractions) if fractions else None,
        fullest=max(fractions, default=None),
        ranks=max(1, len(found.each("running", "dp_rank"))),
        used=found.count("used"),
        evictable=found.count("evictable"),
        pool=found.count("pool") or None,
        context=found.count("context") or None,
        throughput=found.total("throughput"),
        hit_rate=_mean(found, "hit_rate"),
        decoded=decoded,
        first_tokens=found.total("first_tokens") or 0.0,
        computed=computed,
        from_cache=from_cache,
        output=found.count("output"),
        prompt=found.count("prompt"),
        cached=found.count("cached"),
        requests=found.count("requests"),
        aborted=found.count("aborted"),
        retractions=found.count("retractions"),
        accept_length=_mean(found, "accept_length") or None,
        accept_rate=_mean(found, "accept_rate"),
        histograms=dict(found.histograms),
    )


def _realtime(found: Exposition) -> tuple[dict[str, float] | None, float | None, float | None]:
    """(decoded by rank, prompt tokens computed, prompt tokens from the cache).

    A mode that has not happened yet has no series, so that one mode shows that the others are counted.
    """
    decoded: dict[str, float] = {}
    computed = from_cache = 0.0
    counted = False
    for labels, value in found.series("realtime"):
        if not 0 <= value < MAX_TOTAL:
            continue
        counted, mode, rank = True, labels.get("mode"), labels.get("dp_rank", "")
        decoded.setdefault(rank, 0.0)
        if mode == "decode":
            decoded[rank] += value
        elif mode == "prefill_compute":
            computed += value
        elif mode == "prefill_cache":
            from_cache += value
    return (decoded, computed, from_cache) if counted else (None, None, None)


def _mean(found: Exposition, key: str) -> float | None:
    values = [value for _, value in found.series(key) if 0 <= value < MAX_TOTAL]
    return sum(values) / len(values) if values else None
