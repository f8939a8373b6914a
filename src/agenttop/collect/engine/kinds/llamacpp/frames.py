"""What is known of a llama.cpp server, as frames. Pure."""

from __future__ import annotations

import re

import msgspec

from agenttop.collect.engine.base import Reasons
from agenttop.collect.engine.kinds.llamacpp.metrics import Metrics, MetricsSource, Speculation
from agenttop.collect.engine.kinds.llamacpp.pool import UNKNOWN, UNKNOWN_FIX, Pool
from agenttop.collect.engine.kinds.llamacpp.quantisation import quantisation
from agenttop.collect.engine.kinds.llamacpp.rates import Rates, SlotRates
from agenttop.collect.engine.kinds.llamacpp.slots import MAX_COUNT, Slot
from agenttop.model.frames import EngineSample, Missing, SlotSample
from agenttop.model.text import clean


class Hidden(msgspec.Struct, frozen=True):
    """Why something is not shown, and what would show it."""

    why: str
    fix: str | None = None


class _Generation(msgspec.Struct):
    n_ctx: int | None = None


class Props(msgspec.Struct):
    """What is read of `/props`."""

    total_slots: int | None = None
    model_alias: str | None = None
    model_path: str | None = None
    model_ftype: str | None = None
    build_info: str | None = None
    is_sleeping: bool | None = None
    """None: a build that cannot sleep."""
    role: str | None = None
    endpoint_slots: bool | None = None
    default_generation_settings: _Generation | None = None

    @property
    def model(self) -> str | None:
        """The alias, or the name of the file."""
        name = self.model_alias or self.model_path or ""
        return clean(re.split(r"[/\\]", name)[-1], 80) or None

    @property
    def quantisation(self) -> str | None:
        """Of the weights."""
        return quantisation(self.model_ftype, self.model_path or self.model_alias)

    @property
    def version(self) -> str | None:
        """`b1234-abcdef`; None where the build does not know it."""
        build = clean(self.build_info or "", 40)
        return build if build and "unknown" not in build else None

    @property
    def context_limit(self) -> int | None:
        """Tokens one slot may hold."""
        settings = self.default_generation_settings
        return _sensible(settings.n_ctx) or None if settings is not None else None

    @property
    def slots(self) -> int | None:
        """Number of slots."""
        return _sensible(self.total_slots)


def _sensible(count: int | None) -> int | None:
    return count if count is not None and 0 <= count < MAX_COUNT else None


def identity(t: float, url: str, props: Props, pid: int | None, kv_dtype: str | None = None) -> EngineSample:
    """The sample without any figure that moves."""
    return EngineSample(
        t=t,
        engine=url,
        url=url,
        name="llama.cpp",
        state="ok",
        version=props.version,
        model=props.model,
        pid=pid,
        slots_total=props.slots,
        context_limit_tokens=props.context_limit,
        quantisation=props.quantisation,
        kv_dtype=kv_dtype,
    )


def with_figures(
    sample: EngineSample,
    slots: list[Slot] | None,
    pool: Pool,
    rates: Rates,
    metrics: Metrics | None,
    prefill_tok_s: float | None,
    drafting: Speculation,
) -> EngineSample:
    """`slots` is None where they are not shown; `prefill_tok_s` stands in where slots do not count it."""
    running = sum(slot.processing for slot in slots) if slots is not None else None
    limits = [slot.context_limit for slot in slots or () if slot.context_limit]
    if running is None and metrics is not None:
        running = metrics.running
    return msgspec.structs.replace(
        sample,
        window_s=rates.window_s,
        running=running,
        waiting=metrics.waiting if metrics else None,
        slots_total=len(slots) if slots else sample.slots_total,
        context_limit_tokens=max(limits, default=sample.context_limit_tokens),
        kv_layout=pool.layout,
        kv_pool_tokens=pool.size,
        kv_used_tokens=pool.used,
        kv_active_tokens=pool.active,
        kv_idle_tokens=pool.idle,
        kv_used_fraction=pool.fraction,
        decode_tok_s=rates.decode,
        decode_is_floor=rates.floor,
        prefill_tok_s=prefill_tok_s if rates.prefill is None else rates.prefill,
        prompt_tokens_total=metrics.prompt_tokens if metrics else None,
        cached_tokens_total=metrics.cached_tokens if metrics else None,
        output_tokens_total=metrics.output_tokens if metrics else None,
        prefix_hits_tokens_total=metrics.cached_tokens if metrics else None,
        prefix_queries_tokens_total=metrics.looked_up if metrics else None,
        drafted_tokens_total=metrics.drafted if metrics else None,
        accepted_tokens_total=metrics.accepted if metrics else None,
        draft_acceptance=drafting.acceptance,
        tokens_per_step=drafting.tokens_per_step,
    )


def asleep(sample: EngineSample) -> tuple[EngineSample, list[SlotSample]]:
    """A server that has unloaded its model, and its KV cache with it."""
    sleeping = msgspec.structs.replace(
        sample,
        state="asleep",
        note="asleep: the model is unloaded until a request comes; agenttop does not wake it",
        running=0,
        waiting=0,
        kv_used_tokens=0,
        kv_active_tokens=0,
        kv_idle_tokens=0,
    )
    slots = [
        SlotSample(t=sample.t, engine=sample.engine, slot=number, phase="idle", context_tokens=0)
        for number in range(min(sample.slots_total or 0, 1024))
    ]
    return sleeping, slots


def slot_samples(t: float, url: str, slots: list[Slot], rates: Rates) -> list[SlotSample]:
    """One frame per slot; the counts of a finished request are not those of one in progress."""
    frames: list[SlotSample] = []
    for slot in slots:
        rate = rates.slots.get(slot.number, SlotRates())
        frames.append(
            SlotSample(
                t=t,
                engine=url,
                slot=slot.number,
                phase=slot.phase,
                task=slot.task,
                context_tokens=slot.held,
                context_limit_tokens=slot.context_limit,
                cached_tokens=slot.cached if slot.processing else None,
                prefilled_tokens=slot.processed if slot.processing else None,
                prefill_tok_s=rate.prefill,
                decoded_tokens=slot.decoded if slot.processing else None,
                remaining_tokens=slot.remaining if slot.processing else None,
                decode_tok_s=rate.decode,
            )
        )
    return frames


def missing(
    t: float,
    url: str,
    sample: EngineSample,
    pool: Pool,
    source: MetricsSource,
    *,
    hidden: Hidden | None,
    kept_awake: Hidden | None,
) -> list[Missing]:
    """Why values are not there, and what would bring them. `hidden`: why the slots are not shown."""
    reasons = Reasons(url, t)
    if hidden is not None:
        fields = "slots decode_tok_s prefill_tok_s kv_layout"
        fields += " kv_used_tokens kv_used_fraction" if pool.used is None else ""
        fields += " kv_pool_tokens" if pool.size is None else ""
        reasons.add(fields, hidden.why, hidden.fix)
    else:
        if pool.used is None:
            why = "this build of llama.cpp does not tell how many tokens a slot holds"
            reasons.add("kv_used_tokens", why, "update llama.cpp")
            if pool.fraction is None:
                reasons.add("kv_used_fraction", why, "update llama.cpp")
        if pool.layout is None:
            fields = "kv_layout" + (" kv_pool_tokens kv_used_fraction" if pool.size is None else "")
            reasons.add(fields, UNKNOWN, UNKNOWN_FIX)
    counters = "waiting prompt_tokens_total cached_tokens_total output_tokens_total prefix_hits_tokens_total"
    metrics = source.latest
    if not source.wanted:
        reasons.add(counters, "reading /metrics was switched off for this session")
    elif source.refused:
        reasons.add(counters, source.why, source.fix)
    elif metrics is not None and metrics.cached_tokens is None:
        why = "this build of llama.cpp does not count what it finds in its prompt cache"
        reasons.add("cached_tokens_total prefix_hits_tokens_total", why, "update llama.cpp")
    if sample.kv_dtype is None:
        reasons.add("kv_dtype", "only the command line of llama-server tells the type of its KV cache")
    if sample.quantisation is None:
        why = "neither this build of llama.cpp nor the name of the model's file tells it"
        reasons.add("quantisation", why, "name the file after it (model-Q4_K_M.gguf), or update llama.cpp")
    if kept_awake is not None:
        reasons.add("sleep", kept_awake.why, kept_awake.fix)
    if sample.version is None:
        reasons.add("version", "this build of llama.cpp does not know its own number")
    reasons.add("preemptions_total", "llama.cpp preempts nothing: without room a request waits, or is ended")
    reasons.add("ttft itl e2e finish_reasons", "llama.cpp counts neither latencies nor how requests end")
    return reasons.frames
