"""What is known of a vllm-mlx server, as frames. Pure."""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import KEY_HINT, Reasons
from agenttop.collect.engine.kinds.vllm_mlx.status import Request, Status
from agenttop.collect.engine.kinds.vllm_mlx.work import Work
from agenttop.model.frames import EngineSample, Missing, PartSample, SlotSample

FIGURES = (
    "running waiting decode_tok_s prefill_tok_s slots output_tokens_total prompt_tokens_total memory_bytes "
    "kv_pool_tokens kv_used_tokens kv_used_fraction"
)
"""Everything that comes from `/v1/status` of a server with one model."""

_TOO_EARLY = "it needs two looks, about a second apart"


def with_figures(sample: EngineSample, found: Status, work: Work) -> EngineSample:
    """`sample` with everything that moves."""
    held = [(request.prompt or 0) + request.decoded for request in found.at_work]
    active = sum(held) if not found.hidden and all(request.prompt for request in found.at_work) else None
    return msgspec.structs.replace(
        sample,
        window_s=work.window_s,
        running=found.running,
        waiting=found.waiting,
        kv_active_tokens=active if found.running is not None else None,
        decode_tok_s=work.decode_tok_s,
        decode_is_floor=work.decode_is_floor and work.decode_tok_s is not None,
        prefill_tok_s=work.prefill_tok_s,
        prompt_tokens_total=found.prompt_total,
        cached_tokens_total=found.cached_total,
        output_tokens_total=found.output_total,
        finished_total=found.finished,
        drafted_tokens_total=found.drafted,
        accepted_tokens_total=found.accepted,
        draft_acceptance=work.draft_acceptance,
        memory_bytes=found.memory_bytes,
    )


def slots(t: float, url: str, work: Work) -> list[SlotSample]:
    """One for each request that runs, and idle ones for the numbers that are free again."""
    shown = {slot: _slot(t, url, slot, task, request, rate) for slot, task, request, rate in work.shown()}
    idle = (SlotSample(t=t, engine=url, slot=number, phase="idle") for number in range(work.slots_used))
    return [shown.get(slot.slot, slot) for slot in idle]


def _slot(t: float, url: str, slot: int, task: int, request: Request, rate: float | None) -> SlotSample:
    computed = None
    if request.prefilled is not None and request.prompt is not None:
        computed = int(request.prefilled * request.prompt)
    decoding = request.phase == "decode"
    return SlotSample(
        t=t,
        engine=url,
        slot=slot,
        phase=request.phase,
        task=task,
        context_tokens=request.prompt + request.decoded if request.prompt is not None and decoding else None,
        cached_tokens=request.cached,
        prefilled_tokens=computed,
        decoded_tokens=request.decoded,
        remaining_tokens=max(0, request.limit - request.decoded) if request.limit is not None else None,
        decode_tok_s=rate if decoding else None,
    )


def parts(t: float, url: str, found: Status) -> list[PartSample]:
    """The models of a registry."""
    return [
        PartSample(
            t=t, engine=url, part=model.name, role="model", state=model.state, memory_bytes=model.memory_bytes
        )
        for model in found.registry or ()
    ]


def missing(
    t: float, url: str, found: Status, work: Work, *, sequences_known: bool, metrics_off: bool
) -> list[Missing]:
    """Everything that is not shown, and why."""
    reasons = Reasons(url, t)
    if found.registry is not None:
        why = "with several models GET /v1/status tells only which of them are loaded"
        reasons.add(FIGURES, why, "serve one model by vllm-mlx serve MODEL")
        return reasons.frames
    reasons.add("slots_total", "vllm-mlx has no slots: a number is given to each request while it runs")
    reasons.add(
        "kv_pool_tokens kv_used_tokens kv_used_fraction",
        "MLX lets the KV cache of each request grow by itself: there is no pool to fill",
    )
    reasons.add("context_limit_tokens", "vllm-mlx does not tell the model's context")
    reasons.add("preemptions_total", "vllm-mlx preempts no request")
    reasons.add(
        "prefix_hit_fraction", "it tells how many requests found a prefix, not how many tokens they found"
    )
    for field in ("running", "waiting"):
        if getattr(found, field) is None:
            reasons.add(field, "GET /v1/status does not tell it")
    if work.window_s is None:
        reasons.add("decode_tok_s prefill_tok_s", _TOO_EARLY)
    elif work.decode_tok_s is None and found.hidden:
        why = "a request that is not streamed tells its tokens when it ends"
        reasons.add("decode_tok_s slots", why, "start vllm-mlx with --continuous-batching")
    if work.window_s is not None and work.prefill_why is not None:
        reasons.add("prefill_tok_s", work.prefill_why)
    elif work.prefill_tok_s is None and work.window_s is not None:
        reasons.add("prefill_tok_s", "a prompt is counted when its prefill has ended; the rate is known then")
    if found.memory_bytes is None:
        reasons.add("memory_bytes", "MLX tells its memory only where it runs on Metal")
    if not sequences_known:
        reasons.add("sequences_max", "the command line of the server cannot be seen")
    if metrics_off:
        reasons.add("latencies", "its /metrics is off", "start vllm-mlx with --enable-metrics")
    return reasons.frames


def locked(sample: EngineSample, url: str, *, given: bool) -> EngineSample:
    """The server wants a key for everything but `/health`."""
    how = "does not accept the key that was given" if given else f"wants a key: {KEY_HINT}"
    note = f"vllm-mlx at {url} lives, and {how}"
    return msgspec.structs.replace(sample, state="unauthorised", note=note)
