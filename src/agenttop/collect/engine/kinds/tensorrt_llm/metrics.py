"""What is read of TensorRT-LLM's `/prometheus/metrics`. Pure.

- 1.1 and 1.2 name their samples without a prefix; later ones with `trtllm_`, and have many more.
- Everything is written when a request ends: counters of tokens too, and the gauges hold the state of the last
  engine step of which the server has read by then. So there is no live rate, and the gauges are of now only
  right after a request has ended.
- Labels may say `model_name="undefined"`. Gauges carry the `pid` of the process that wrote them.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition
from agenttop.collect.engine.histogram import MAX_TOTAL, Histogram
from agenttop.model.text import clean

CATALOGUE = Catalogue(
    ("trtllm_", ""),
    {
        "finished": ("request_success_total",),
        "errors": ("request_error_total",),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "sequences_max": ("max_num_active_requests", "max_batch_size_static"),
        "fraction": ("kv_cache_utilization",),
        "max_blocks": ("kv_cache_max_blocks",),
        "used_blocks": ("kv_cache_used_blocks",),
        "tokens_per_block": ("kv_cache_tokens_per_block",),
        "hit_rate": ("kv_cache_hit_rate",),
        "prompt": ("prompt_tokens_total",),
        "output": ("generation_tokens_total",),
        "cached": ("prompt_cached_tokens_total",),
        "drafted": ("spec_decode_num_draft_tokens_total",),
        "accepted": ("spec_decode_num_accepted_tokens_total",),
        "accept_length": ("spec_decode_acceptance_length",),
        "token_time": ("time_per_output_token_seconds_sum",),
        "token_times": ("time_per_output_token_seconds_count",),
        "model": ("model_config_info",),
        "kv": ("kv_cache_config_info",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "e2e": ("e2e_request_latency_seconds",),
        "queue": ("request_queue_time_seconds",),
        "prefill": ("request_prefill_time_seconds",),
        "decode": ("request_decode_time_seconds",),
    },
)
_UNKNOWN = ("undefined", "unknown", "auto", "none")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not told. Counters are since the start of the server."""

    at: float
    model: str | None
    quantisation: str | None
    kv_dtype: str | None
    finished: int | None
    reasons: dict[str, int]
    has_gauges: bool
    running: int | None
    waiting: int | None
    sequences_max: int | None
    fraction: float | None
    pool: int | None
    used: int | None
    hit_rate: float | None
    prompt: int | None
    output: int | None
    cached: int | None
    drafted: int | None
    accepted: int | None
    accept_length: float | None
    token_time_s: float | None
    """Sum over the requests that ended of their mean time for an output token, and how many they are."""
    token_times: int | None
    histograms: dict[str, Histogram]

    @property
    def counters(self) -> dict[str, float | None]:
        """What never goes back while the server lives."""
        return {
            "finished": self.finished,
            "output": self.output,
            "prompt": self.prompt,
            "drafted": self.drafted,
            "accepted": self.accepted,
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of TensorRT-LLM's own in the text: before the first request has ended."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    per_block = _one(found, "tokens_per_block")
    blocks, used = _one(found, "max_blocks"), _one(found, "used_blocks")
    fraction, hits = _one(found, "fraction"), _one(found, "hit_rate")
    most = _one(found, "sequences_max")
    return Figures(
        at=at,
        model=_label(found, "model", "model"),
        quantisation=_label(found, "model", "quantization"),
        kv_dtype=_label(found, "kv", "cache_dtype"),
        finished=found.count("finished"),
        reasons={name: count for name, count in found.counts("finished", "finished_reason").items() if count},
        has_gauges=bool(found.series("running")),
        running=_whole(_one(found, "running")),
        waiting=_whole(_one(found, "waiting")),
        sequences_max=int(most) if most and most < 10**9 else None,
        fraction=min(1.0, fraction) if fraction is not None else None,
        pool=_tokens(blocks, per_block) or None,
        used=_tokens(used, per_block),
        hit_rate=min(1.0, hits) if hits is not None else None,
        prompt=found.count("prompt"),
        output=found.count("output"),
        cached=found.count("cached"),
        drafted=found.count("drafted"),
        accepted=found.count("accepted"),
        accept_length=_one(found, "accept_length") or None,
        token_time_s=found.total("token_time"),
        token_times=found.count("token_times"),
        histograms=dict(found.histograms),
    )


def _one(found: Exposition, key: str) -> float | None:
    """Of a gauge that one process writes; where several do, nobody can tell which one is right."""
    series = found.series(key)
    return series[0][1] if len(series) == 1 and 0 <= series[0][1] < MAX_TOTAL else None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None else None


def _tokens(blocks: float | None, per_block: float | None) -> int | None:
    tokens = blocks * per_block if blocks is not None and per_block else None
    return int(tokens) if tokens is not None and tokens < MAX_TOTAL else None


def _label(found: Exposition, key: str, label: str) -> str | None:
    text = clean(found.labels(key).get(label, ""), 80)
    return text if text and text.lower() not in _UNKNOWN else None
