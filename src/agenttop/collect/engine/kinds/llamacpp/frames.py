"""What is known of a llama.cpp server, as frames. Pure."""

from __future__ import annotations

import re

import msgspec

from agenttop.collect.engine.base import Reasons
from agenttop.collect.engine.kinds.llamacpp.metrics import Metrics
from agenttop.collect.engine.kinds.llamacpp.pool import UNKNOWN, UNKNOWN_FIX, Pool
from agenttop.collect.engine.kinds.llamacpp.rates import Rates, SlotRates
from agenttop.collect.engine.kinds.llamacpp.slots import MAX_COUNT, Slot
from agenttop.model.frames import EngineSample, Missing, SlotSample
from agenttop.model.text import clean


class _Generation(msgspec.Struct):
    n_ctx: int | None = None


class Props(msgspec.Struct):
    """What is read of `/props`."""

    total_slots: int | None = None
    model_alias: str | None = None
    model_path: str | None = None
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


def identity(t: float, url: str, props: Props, pid: int | None) -> EngineSample:
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
    )


def with_figures(
    sample: EngineSample,
    slots: list[Slot] | None,
    pool: Pool,
    rates: Rates,
    metrics: Metrics | None,
    prefill_tok_s: float | None,
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
    props: Props,
    pool: Pool,
    *,
    slots_off: bool,
    metrics_wanted: bool,
    metrics_off: bool,
    kept_awake: bool,
) -> list[Missing]:
    """Why values are not there, and what would bring them."""
    reasons = Reasons(url, t)
    if slots_off:
        reasons.add(
            "slots kv_used_tokens kv_pool_tokens decode_tok_s",
            "this server does not show its slots",
            "start llama-server with --slots (without --no-slots)",
        )
    else:
        if pool.used is None:
            why = "this build of llama.cpp does not tell how many tokens a slot holds"
            reasons.add("kv_used_tokens kv_used_fraction", why, "update llama.cpp")
        if pool.layout is None:
            reasons.add("kv_layout kv_pool_tokens kv_used_fraction", UNKNOWN, UNKNOWN_FIX)
    counters = "waiting prompt_tokens_total cached_tokens_total output_tokens_total"
    if not metrics_wanted:
        reasons.add(counters, "reading /metrics was switched off for this session")
    elif metrics_off:
        reasons.add(counters, "the server's /metrics is off", "start llama-server with --metrics")
    if kept_awake:
        reasons.add(
            "sleep",
            "watching its slots keeps this server from falling asleep",
            "start llama-server with --metrics: that can be read without keeping it awake",
        )
    if props.version is None:
        reasons.add("version", "this build of llama.cpp does not know its own number")
    return reasons.frames
