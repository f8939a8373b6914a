"""What is known of a vLLM server, as frames. Pure."""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import KEY_HINT, Reasons
from agenttop.collect.engine.kinds.vllm.metrics import Figures
from agenttop.collect.process import Command
from agenttop.model.frames import EngineSample, Missing, PartSample
from agenttop.model.text import clean

FIGURES = (
    "running waiting waiting_reasons kv_used_fraction kv_used_tokens kv_pool_tokens kv_dtype decode_tok_s "
    "prefill_tok_s per_sequence_tok_s preemptions_total prompt_tokens_total cached_tokens_total "
    "output_tokens_total finished_total finish_reasons prefix_hits_tokens_total prefix_queries_tokens_total "
    "drafted_tokens_total accepted_tokens_total draft_acceptance tokens_per_step latencies"
)
"""Everything that comes from `/metrics`."""
GAUGES = "running waiting waiting_reasons kv_used_fraction kv_used_tokens per_sequence_tok_s"
"""What stands still when an engine takes no steps."""

NO_METRICS = "off", "hidden"
"""Why `/metrics` holds nothing: statistics are off, or something in between does not pass it on."""

_WHY = {
    "off": ("its statistics are off", "start vLLM without --disable-log-stats"),
    "hidden": ("GET /metrics is not there", "let the proxy in between pass /metrics on, or name vLLM itself"),
}
_WHOLE_PROMPTS = "vLLM counts a prompt when its prefill has ended; the rate is known then"
_NOT_TOLD = "this version does not tell it, or has not yet"
_NOT_COUNTED = "this version does not count it, or has not yet"
_DRAFTS = "drafted_tokens_total accepted_tokens_total draft_acceptance tokens_per_step"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Over the newest window; None where it is too short, or the counter is missing."""

    window_s: float | None = None
    decode: float | None = None
    prefill: float | None = None
    running: float | None = None
    """Mean of the running requests."""
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    parts: dict[str, float | None] = {}
    """Decode by part."""


class Settings(msgspec.Struct, frozen=True):
    """What only the command line tells. Texts are fit for a terminal."""

    seen: bool = False
    """Whether there is a command line of vLLM's to look at."""
    sequences_max: int | None = None
    quantisation: str | None = None
    kv_dtype: str | None = None


def settings(command: Command | None) -> Settings:
    """Of a server's process; what is not given is not known, as the default depends on much else."""
    if command is None or not command.words:
        return Settings()

    def text(*names: str) -> str | None:
        return clean(command.value(*names) or "", 40) or None

    most = command.number("--max-num-seqs", "--max_num_seqs")
    return Settings(
        True,
        most if most is not None and 0 < most < 10**7 else None,
        text("--quantization", "-q"),
        text("--kv-cache-dtype", "--kv_cache_dtype"),
    )


def with_figures(
    sample: EngineSample, found: Figures, rates: Rates, given: Settings, live: bool = True
) -> EngineSample:
    """`sample` with everything that moves; without the gauges where they are not `live`, but stand still."""
    pool = found.pool
    several = pool.engines > 1
    drafting = bool(rates.drafted) and rates.accepted is not None
    most = given.sequences_max
    return msgspec.structs.replace(
        sample,
        state="asleep" if found.asleep else sample.state,
        note="asleep: its weights are off the GPU; POST /wake_up wakes it" if found.asleep else sample.note,
        model=sample.model or found.model,
        window_s=rates.window_s,
        running=found.running if live else None,
        waiting=found.waiting if live else None,
        waiting_reasons=(found.waiting_reasons or {}) if live else {},
        kv_layout="paged" if pool.fraction is not None else None,
        kv_pool_tokens=pool.tokens,
        kv_used_tokens=pool.used if live else None,
        kv_active_tokens=pool.used if live else None,
        kv_used_fraction=pool.fraction if live else None,
        kv_fullest_fraction=pool.fullest_fraction if several and live else None,
        kv_dtype=found.kv_dtype or given.kv_dtype,
        quantisation=given.quantisation,
        sequences_max=most * pool.engines if most is not None else None,
        data_parallel=pool.engines if several else None,
        decode_tok_s=rates.decode,
        prefill_tok_s=rates.prefill,
        per_sequence_tok_s=_each(rates) if live else None,
        per_sequence_of=rates.running if live and _each(rates) is not None else None,
        preemptions_total=found.preemptions,
        prompt_tokens_total=found.prompt,
        cached_tokens_total=found.cached,
        output_tokens_total=found.output,
        finished_total=found.finished,
        finish_reasons=found.finish_reasons,
        prefix_hits_tokens_total=found.prefix_hits,
        prefix_queries_tokens_total=found.prefix_queries,
        prefix_hit_fraction=found.prefix_fraction if found.prefix_queries is None else None,
        drafted_tokens_total=found.drafted,
        accepted_tokens_total=found.accepted,
        draft_acceptance=(
            min(1.0, (rates.accepted or 0.0) / (rates.drafted or 1.0)) if drafting else _v0_acceptance(found)
        ),
        tokens_per_step=1 + (rates.accepted or 0.0) / rates.drafts if drafting and rates.drafts else None,
    )


def _each(rates: Rates) -> float | None:
    return rates.decode / rates.running if rates.decode is not None and rates.running else None


def _v0_acceptance(found: Figures) -> float | None:
    """By V0's own account, where there are no counters to take it from."""
    return found.acceptance if found.drafted is None else None


def parts(t: float, url: str, found: Figures, rates: Rates, role: str, live: bool = True) -> list[PartSample]:
    """Every engine or replica by itself."""
    return [
        PartSample(
            t=t,
            engine=url,
            part=part.name or "?",
            role=role,
            running=part.running if live else None,
            waiting=part.waiting if live else None,
            kv_used_fraction=part.kv_fraction if live else None,
            kv_used_tokens=(
                round(part.kv_fraction * part.pool)
                if part.kv_fraction is not None and part.pool is not None and live
                else None
            ),
            kv_pool_tokens=part.pool,
            decode_tok_s=rates.parts.get(part.name),
            note=part.model if part.model != found.model else None,
        )
        for part in found.parts
    ]


class Doubts(msgspec.Struct, frozen=True, kw_only=True):
    """Why figures may be missing, besides the version."""

    absent: str | None = None
    """One of `NO_METRICS` where there are no figures."""
    locked: bool = False
    context_known: bool = False
    several_servers: bool = False
    frozen: bool = False


def missing(
    t: float, url: str, found: Figures | None, rates: Rates, given: Settings, doubts: Doubts
) -> list[Missing]:
    """Everything that is not shown, and why."""
    reasons = Reasons(url, t)
    reasons.add("slots_total", "vLLM has no slots: requests share one batch and one KV pool")
    if doubts.locked:
        reasons.add("context_limit_tokens", "GET /v1/models needs a key", KEY_HINT)
    elif not doubts.context_known:
        reasons.add("context_limit_tokens", "GET /v1/models does not tell it")
    _settings(reasons, found, given)
    if found is None:
        reasons.add(FIGURES, *_WHY[doubts.absent or "off"])
        return reasons.frames
    if doubts.frozen:
        why = "vLLM repeats what it told and generates nothing: it hangs, or its requests were given up"
        reasons.add(GAUGES, why)
    if doubts.several_servers:
        why = "several vLLM servers answer at this address in turn, so that no two looks belong together"
        fix = "name each of them by its own address"
        reasons.add("decode_tok_s prefill_tok_s per_sequence_tok_s latencies", why, fix)
    elif rates.prefill is None and rates.window_s is not None and found.computed is not None:
        reasons.add("prefill_tok_s", _WHOLE_PROMPTS)
    figures(reasons, found)
    gauges(reasons, found)
    return once_each(reasons.frames)


def once_each(frames: list[Missing]) -> list[Missing]:
    """The first reason for every field."""
    found: dict[str, Missing] = {}
    for frame in frames:
        found.setdefault(frame.what, frame)
    return list(found.values())


def gauges(reasons: Reasons, found: Figures) -> None:
    """Which gauges are not there."""
    told = {
        "running per_sequence_tok_s": found.running,
        "waiting": found.waiting,
        "kv_used_fraction": found.pool.fraction,
    }
    for fields, value in told.items():
        if value is None:
            reasons.add(fields, _NOT_TOLD)


def _settings(reasons: Reasons, found: Figures | None, given: Settings) -> None:
    if given.seen:
        why, fix = "no reply tells it, and its command line leaves it to the model or to vLLM", None
    else:
        why = "no reply tells it, and its command line cannot be seen from here"
        fix = "run agenttop on the host of the engine, as root or as its user"
    unknown = [
        *(["sequences_max"] if given.sequences_max is None else []),
        *(["quantisation"] if given.quantisation is None else []),
        *(["kv_dtype"] if given.kv_dtype is None and found is not None and found.kv_dtype is None else []),
    ]
    reasons.add(" ".join(unknown), why, fix)


def figures(reasons: Reasons, found: Figures) -> None:
    """What this version of vLLM does not tell, wherever its figures are read."""
    counted = {
        "output_tokens_total decode_tok_s per_sequence_tok_s": found.output,
        "prompt_tokens_total prefill_tok_s": found.prompt,
        "finished_total finish_reasons": found.finished,
        "preemptions_total": found.preemptions,
    }
    for fields, value in counted.items():
        if value is None:
            reasons.add(fields, _NOT_COUNTED)
    if found.pool.tokens is None:
        reasons.add("kv_pool_tokens kv_used_tokens", "this front end does not tell how large the pool is")
    reasons.add("kv_idle_tokens", "vLLM counts cached blocks that no request holds as free")
    if found.waiting_reasons is None:
        why = "this version does not tell why requests wait"
        reasons.add("waiting_reasons", why, "vLLM 0.20.2 or newer")
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
    if found.drafted is None and found.acceptance is None:
        why = "it drafts no tokens: it was started without speculative decoding"
        reasons.add(_DRAFTS, why, "start vLLM with --speculative-config")
    if not found.histograms:
        reasons.add("latencies", "this version keeps no histograms of latencies that can be read")
