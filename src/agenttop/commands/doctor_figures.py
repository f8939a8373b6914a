"""Every figure that can be shown of an engine: its present value, or why there is none. Pure.

A figure that an adapter leaves out without a word is a mistake of the adapter, and is told as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from agenttop.model import units
from agenttop.model.frames import EngineSample, LatencySample, Missing, PartSample, SlotSample

SEEN, MISSING, QUIET, UNEXPLAINED = "seen", "missing", "quiet", "unexplained"
NO_REASON = "no reason given: this is a mistake in agenttop, please report it"
_NOTHING_RUNS = "nothing to measure: no request ran while doctor looked"
_NONE_COUNTED = "nothing to measure: none was counted while doctor looked"
_NOBODY_WAITS = "nobody waits, or it does not tell why"
_MOST_NAMES = 4

Value = tuple[Any, str]
"""As it stands in JSON, and in words."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has shown of one engine."""

    sample: EngineSample
    slots: Sequence[SlotSample] = ()
    latencies: Sequence[LatencySample] = ()
    """The newest of each measure."""
    parts: Sequence[PartSample] = ()
    missing: Sequence[Missing] = ()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the console."""

    name: str
    fields: tuple[str, ...]
    """By any of which an adapter says why it is missing; the first one names it in JSON."""
    value: Callable[[Seen], Value | None]
    quiet: bool = False
    """There is none while no request runs."""
    counted: bool = False
    """There is none until a request has come to its first token, or its end, while doctor looked."""
    also: tuple[str, ...] = ()
    """Fields whose reason explains this one as well, where nothing better is said."""
    rare: str = ""
    """Why most engines have none, where an adapter need not say so."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one engine."""

    figure: str
    field: str
    status: str
    """seen, missing, quiet (nothing to measure now), unexplained."""
    value: Any = None
    text: str = ""
    """The value in words, or why it is missing."""
    fix: str | None = None


def rows(seen: Seen) -> list[Row]:
    """All figures in the order of the console."""
    told = {_field(frame): frame for frame in seen.missing if frame.why is not None}
    return [_row(figure, seen, told) for figure in FIGURES]


def _row(figure: Figure, seen: Seen, told: dict[str, Missing]) -> Row:
    found = figure.value(seen)
    name, field = figure.name, figure.fields[0]
    if found is not None:
        return Row(figure=name, field=field, status=SEEN, value=found[0], text=found[1])
    reason = next((told[key] for key in figure.fields if key in told), None)
    if reason is not None:
        return Row(figure=name, field=field, status=MISSING, text=reason.why or "", fix=reason.fix)
    if seen.sample.state != "ok":
        text = f"nothing to measure: it is {seen.sample.state}"
        return Row(figure=name, field=field, status=QUIET, text=text)
    reason = next((told[key] for key in figure.also if key in told), None)
    if reason is not None:
        return Row(figure=name, field=field, status=MISSING, text=reason.why or "", fix=reason.fix)
    if figure.quiet and not _is_at_work(seen):
        return Row(figure=name, field=field, status=QUIET, text=_NOTHING_RUNS)
    if figure.counted:
        return Row(figure=name, field=field, status=QUIET, text=_NONE_COUNTED)
    if figure.rare:
        return Row(figure=name, field=field, status=MISSING, text=figure.rare)
    return Row(figure=name, field=field, status=UNEXPLAINED, text=NO_REASON)


def _is_at_work(seen: Seen) -> bool:
    """Whether requests run, as far as it is known."""
    rates = (seen.sample.decode_tok_s, seen.sample.prefill_tok_s)
    return bool(seen.sample.running) or any(rates) or any(slot.phase != "idle" for slot in seen.slots)


def unread(missing: Collection[Missing]) -> list[Missing]:
    """What an adapter says is missing that is no figure here, e.g. that watching has a cost."""
    known = {field for figure in FIGURES for field in (*figure.fields, *figure.also)}
    known |= set(EngineSample.__struct_fields__)
    return [frame for frame in missing if frame.why is not None and _field(frame) not in known]


def _field(frame: Missing) -> str:
    return frame.subject_and_field[1]


# Values


def _plain(field: str, words: Callable[[Any], str] = str) -> Callable[[Seen], Value | None]:
    def value(seen: Seen) -> Value | None:
        found = getattr(seen.sample, field)
        return None if found is None else (found, words(found))

    return value


def _rate(field: str, last: str) -> Callable[[Seen], Value | None]:
    """A rate of now; where there is none, that of the request that ended last, named as such."""

    def value(seen: Seen) -> Value | None:
        now, before = getattr(seen.sample, field), getattr(seen.sample, last)
        if now is not None:
            floor = "at least " if field == "decode_tok_s" and seen.sample.decode_is_floor else ""
            return now, f"{floor}{units.rate(now)} tok/s{_over(seen.sample.window_s)}"
        return None if before is None else (before, f"{units.rate(before)} tok/s in the last request")

    return value


def _over(window_s: float | None) -> str:
    return "" if window_s is None else f" over {units.seconds(window_s)}"


def _slots(seen: Seen) -> Value | None:
    sample = seen.sample
    if sample.slots_total is not None:
        return sample.slots_total, units.plural(sample.slots_total, "slot")
    if sample.sequences_max is not None:
        return sample.sequences_max, f"{sample.sequences_max} requests at once"
    return None


def _pool(seen: Seen) -> Value | None:
    sample = seen.sample
    if sample.kv_pool_tokens is None:
        return None
    layout = f", {sample.kv_layout}" if sample.kv_layout is not None else ""
    return sample.kv_pool_tokens, f"{sample.kv_pool_tokens} tokens{layout}"


def _used(seen: Seen) -> Value | None:
    share, tokens = seen.sample.kv_used_fraction, seen.sample.kv_used_tokens
    if share is None and tokens is None:
        return None
    words = [units.percent(share)] if share is not None else []
    words += [f"{tokens} tokens"] if tokens is not None else []
    return (share if share is not None else tokens), ", ".join(words)


def _held(seen: Seen) -> Value | None:
    """What a finished request has left for the next one."""
    idle = seen.sample.kv_idle_tokens
    return None if idle is None else (idle, f"{idle} tokens")


def _per_request(seen: Seen) -> Value | None:
    rates = [slot.decode_tok_s for slot in seen.slots if slot.decode_tok_s is not None]
    if rates:
        return rates, ", ".join(units.rate(rate) for rate in rates[:8]) + " tok/s, slot by slot"
    mean, of = seen.sample.per_sequence_tok_s, seen.sample.per_sequence_of
    if mean is None:
        return None
    many = f"average over {of:.1f} requests" if of is not None else "average"
    return mean, f"{units.rate(mean)} tok/s, {many}"


def _prefix(seen: Seen) -> Value | None:
    sample = seen.sample
    hits, asked = sample.prefix_hits_tokens_total, sample.prefix_queries_tokens_total
    if hits is not None and asked is not None:
        share = f"{units.percent(min(1.0, hits / asked))} of " if asked else ""
        return {"hits": hits, "queries": asked}, f"{share}{asked} tokens looked up since its start"
    if sample.prefix_hit_fraction is not None:
        return sample.prefix_hit_fraction, f"{units.percent(sample.prefix_hit_fraction)}, over its own span"
    if sample.cached_tokens_total is not None:
        return sample.cached_tokens_total, f"{sample.cached_tokens_total} prompt tokens since its start"
    cached = [slot.cached_tokens for slot in seen.slots if slot.cached_tokens is not None]
    return (sum(cached), f"{sum(cached)} tokens of the requests in its slots") if cached else None


def _latency(measure: str) -> Callable[[Seen], Value | None]:
    def value(seen: Seen) -> Value | None:
        found = next((each for each in seen.latencies if each.measure == measure), None)
        if found is None or not found.count:
            return None
        named = {"p50": found.p50_s, "p95": found.p95_s, "mean": found.mean_s}
        words = [f"{name} {units.seconds(each)}" for name, each in named.items() if each is not None]
        if found.p50_s is None and found.below_s is not None:
            words.insert(0, f"p50 below {units.seconds(found.below_s)}")
        text = f"{', '.join(words)} of {found.count}{_over(found.window_s)}"
        return msgspec.to_builtins(found), text

    return value


def _speculation(seen: Seen) -> Value | None:
    sample = seen.sample
    if sample.draft_acceptance is not None:
        per_step = f", {sample.tokens_per_step:.1f} tokens a step" if sample.tokens_per_step else ""
        text = f"{units.percent(sample.draft_acceptance)} of the drafts taken{per_step}"
        return sample.draft_acceptance, text + _over(sample.window_s)
    if sample.drafted_tokens_total is not None:
        return sample.drafted_tokens_total, f"{sample.drafted_tokens_total} tokens drafted since its start"
    return None


def _finished(seen: Seen) -> Value | None:
    reasons, total = seen.sample.finish_reasons, seen.sample.finished_total
    if reasons:
        most = sorted(reasons.items(), key=lambda each: -each[1])[:_MOST_NAMES]
        return reasons, ", ".join(f"{name} {number}" for name, number in most) + " since its start"
    return None if total is None else (total, f"{total} since its start, reasons not told")


def _waiting_reasons(seen: Seen) -> Value | None:
    found = seen.sample.waiting_reasons
    return (found, ", ".join(f"{name} {number}" for name, number in found.items())) if found else None


def _tokens(seen: Seen) -> Value | None:
    sample = seen.sample
    counted = {"prompt": sample.prompt_tokens_total, "output": sample.output_tokens_total}
    known = {name: number for name, number in counted.items() if number is not None}
    if not known:
        return None
    return known, ", ".join(f"{number} {name}" for name, number in known.items()) + " since its start"


def _memory(seen: Seen) -> Value | None:
    total, on_gpu = seen.sample.memory_bytes, seen.sample.gpu_memory_bytes
    if total is None:
        return None
    share = f", {units.size(on_gpu)} of it on GPUs" if on_gpu is not None else ""
    return total, units.size(total) + share


def _figure(
    name: str,
    fields: str,
    value: Callable[[Seen], Value | None],
    *,
    quiet: bool = False,
    counted: bool = False,
    also: str = "",
    rare: str = "",
) -> Figure:
    return Figure(
        name=name,
        fields=tuple(fields.split()),
        value=value,
        quiet=quiet,
        counted=counted,
        also=tuple(also.split()),
        rare=rare,
    )


FIGURES = (
    _figure("version", "version", _plain("version")),
    _figure("model", "model", _plain("model")),
    _figure("quantisation", "quantisation", _plain("quantisation")),
    _figure("context", "context_limit_tokens", _plain("context_limit_tokens", lambda n: f"{n} tokens")),
    _figure("slots", "slots_total slots sequences_max", _slots),
    _figure("KV pool", "kv_pool_tokens", _pool),
    _figure("KV dtype", "kv_dtype", _plain("kv_dtype"), also="kv_pool_tokens"),
    _figure("memory", "memory_bytes", _memory, rare="it does not tell; see the memory of the GPUs"),
    _figure("running", "running", _plain("running")),
    _figure("waiting", "waiting", _plain("waiting")),
    _figure("why they wait", "waiting_reasons waiting", _waiting_reasons, rare=_NOBODY_WAITS),
    _figure("KV used", "kv_used_fraction kv_used_tokens", _used),
    _figure("KV kept", "kv_idle_tokens", _held, also="kv_used_tokens kv_used_fraction slots"),
    _figure("decode", "decode_tok_s", _rate("decode_tok_s", "last_decode_tok_s"), quiet=True),
    _figure("prefill", "prefill_tok_s", _rate("prefill_tok_s", "last_prefill_tok_s"), quiet=True),
    _figure("rate per request", "per_sequence_tok_s", _per_request, quiet=True, also="decode_tok_s"),
    _figure("tokens", "output_tokens_total prompt_tokens_total", _tokens, also="running"),
    _figure(
        "prefix cache",
        "prefix_hits_tokens_total prefix_queries_tokens_total prefix_hit_fraction cached_tokens_total",
        _prefix,
        quiet=True,
        also="running",
    ),
    _figure("preemptions", "preemptions_total", _plain("preemptions_total"), also="running"),
    _figure("TTFT", "ttft latencies", _latency("ttft"), counted=True, also="running"),
    _figure("time per token", "itl latencies", _latency("itl"), counted=True, also="running"),
    _figure("whole request", "e2e latencies", _latency("e2e"), counted=True, also="running"),
    _figure("time in queue", "queue latencies", _latency("queue"), counted=True, also="ttft e2e running"),
    _figure(
        "speculation",
        "draft_acceptance drafted_tokens_total tokens_per_step",
        _speculation,
        counted=True,
        also="running",
    ),
    _figure("finish reasons", "finish_reasons finished_total", _finished, also="running"),
)
