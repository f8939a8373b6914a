"""What is known of a vLLM server, as frames. Pure."""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import KEY_HINT, Reasons
from agenttop.collect.engine.kinds.vllm.metrics import Figures
from agenttop.model.frames import EngineSample, Missing

FIGURES = (
    "running waiting kv_used_fraction kv_used_tokens kv_pool_tokens decode_tok_s prefill_tok_s "
    "preemptions_total prompt_tokens_total cached_tokens_total output_tokens_total "
    "prefix_hits_tokens_total prefix_queries_tokens_total"
)
"""Everything that comes from `/metrics`."""

NO_METRICS = "off", "hidden"
"""Why `/metrics` holds nothing: statistics are off, or something in between does not pass it on."""

_WHY = {
    "off": ("its statistics are off", "start vLLM without --disable-log-stats"),
    "hidden": ("GET /metrics is not there", "let the proxy in between pass /metrics on, or name vLLM itself"),
}
_WHOLE_PROMPTS = "vLLM counts a prompt when its prefill has ended; the rate is known then"


class Rates(msgspec.Struct, frozen=True):
    """Over the newest window; None where it is too short, or the counter is missing."""

    window_s: float | None = None
    decode: float | None = None
    prefill: float | None = None


def with_figures(sample: EngineSample, found: Figures, rates: Rates) -> EngineSample:
    """`sample` with everything that moves."""
    pool = found.pool
    several = pool.engines > 1
    return msgspec.structs.replace(
        sample,
        state="asleep" if found.asleep else sample.state,
        note="asleep: its weights are off the GPU; POST /wake_up wakes it" if found.asleep else sample.note,
        model=sample.model or found.model,
        window_s=rates.window_s,
        running=found.running,
        waiting=found.waiting,
        kv_layout="paged" if pool.fraction is not None else None,
        kv_pool_tokens=pool.tokens,
        kv_used_tokens=pool.used,
        kv_active_tokens=pool.used,
        kv_used_fraction=pool.fraction,
        kv_fullest_fraction=pool.fullest_fraction if several else None,
        data_parallel=pool.engines if several else None,
        decode_tok_s=rates.decode,
        prefill_tok_s=rates.prefill,
        preemptions_total=found.preemptions,
        prompt_tokens_total=found.prompt,
        cached_tokens_total=found.cached,
        output_tokens_total=found.output,
        prefix_hits_tokens_total=found.prefix_hits,
        prefix_queries_tokens_total=found.prefix_queries,
    )


def missing(
    t: float,
    url: str,
    found: Figures | None,
    rates: Rates,
    *,
    absent: str | None,
    locked: bool,
    context_known: bool,
    several_servers: bool,
) -> list[Missing]:
    """Everything that is not shown, and why. `absent` is one of `NO_METRICS` where there are no figures."""
    reasons = Reasons(url, t)
    reasons.add("slots_total", "vLLM has no slots: requests share one batch and one KV pool")
    if locked:
        reasons.add("context_limit_tokens", "GET /v1/models needs a key", KEY_HINT)
    elif not context_known:
        reasons.add("context_limit_tokens", "GET /v1/models does not tell it")
    if found is None:
        reasons.add(FIGURES, *_WHY[absent or "off"])
        return reasons.frames
    if found.pool.tokens is None:
        reasons.add("kv_pool_tokens kv_used_tokens", "this front end does not tell how large the pool is")
    reasons.add("kv_idle_tokens", "vLLM counts cached blocks that no request holds as free")
    if found.cached is None:
        reasons.add(
            "cached_tokens_total",
            "this version does not count cached prompt tokens, so prefill_tok_s includes them",
            "vLLM 0.9.2 or newer",
        )
    if found.prefix_queries is None:
        why = "this version does not count what it looks up in the prefix cache"
        reasons.add("prefix_hits_tokens_total prefix_queries_tokens_total", why, "vLLM 0.9.2 or newer")
    elif found.prefix_caching is False:
        why = "prefix caching is off, so every prompt is computed whole"
        reasons.add("prefix_hits_tokens_total", why, "start vLLM with --enable-prefix-caching")
    if several_servers:
        why = "several vLLM servers answer at this address in turn, so that no two looks belong together"
        reasons.add("decode_tok_s prefill_tok_s", why, "name each of them by its own address")
    elif rates.prefill is None and rates.window_s is not None:
        reasons.add("prefill_tok_s", _WHOLE_PROMPTS)
    return reasons.frames
