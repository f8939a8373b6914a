"""One row per level: what scripts and the tables of `compare` rely on. All from raw turns and samples.

Every figure is over the steady window of its level (`analyse.levels`). What was not measured is None,
never 0; what was counted and did not happen is 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agenttop.analyse.levels import Span, find_levels
from agenttop.analyse.stats import drift, median, percentile
from agenttop.analyse.tokens import arrival_times, decode_rate, share, tokens_between, tokens_per_event
from agenttop.analyse.verdict import completed, failed, why_invalid
from agenttop.model.frames import (
    HARMLESS_THROTTLE,
    EngineSample,
    Frame,
    GpuSample,
    HostSample,
    Level,
    LoadSample,
    Session,
    Turn,
)
from agenttop.record.read import Recording

F = TypeVar("F", bound=Frame)

UNSPLIT_SHARE = 0.1
"""With more than this share of the requests silent about their cached tokens, prefill cannot be told."""


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one recording."""

    file: str
    host: str
    engine: str | None = None
    model: str | None = None
    profile: str | None = None
    demo: bool = False
    """The engine is the demo engine: a real server on random weights."""
    level: int
    """Counted from 1 within the file."""
    agents: int
    decode_tok_s_per_agent_p50: float | None = None
    """Median over turns whose decoding lies within the window, each by `analyse.tokens.decode_rate`."""
    decode_tok_s: float | None = None
    """Output tokens of all requests that arrived in the window, per second."""
    prefill_tok_s: float | None = None
    """Prompt tokens not taken from the cache, spread over the time of their prefill, per second."""
    ttft_s_p50: float | None = None
    """From sent to the first token, over requests sent in the window."""
    ttft_s_p95: float | None = None
    itl_s_p50: float | None = None
    """Between neighbouring stream events with text of one request, both within the window."""
    itl_s_p99: float | None = None
    turns: int | None = None
    """Turns completed in the window, without compactions."""
    completions_per_min: float | None = None
    """The same per minute."""
    prefix_hit_fraction: float | None = None
    """Prompt tokens from the cache over all prompt tokens, of requests sent in the window."""
    kv_max_fraction: float | None = None
    waiting_max: int | None = None
    """Requests the engine held back, at most."""
    compactions: int | None = None
    preemptions: int | None = None
    """None where the engine does not count them (llama.cpp) or was restarted."""
    failures: int | None = None
    cpu_max_fraction: float | None = None
    gpu_throttled_fraction: float | None = None
    """Share of GPU samples with a reason that held the clocks down."""
    decode_drift_fraction: float | None = None
    """Decode rate of the last third of the turns against the first, as a share of the median."""
    estimated_fraction: float | None = None
    """Share of `decode_tok_s` from requests that were cut off before the engine told their count."""
    t_start: float
    t_end: float
    warm_up_s: float
    """Time at the start of the level that is left out."""
    window_s: float
    """The steady window that all figures are over."""
    valid: bool
    why_invalid: str | None = None


@dataclass(frozen=True, slots=True)
class _Material:
    """What a recording holds of interest here, in order of t."""

    session: Session
    turns: Sequence[Turn]
    loads: Sequence[LoadSample]
    engines: Sequence[EngineSample]
    hosts: Sequence[HostSample]
    gpus: Sequence[GpuSample]
    per_event: float | None


def level_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of several recordings, file by file, as plain values. Raises AgenttopError for a bad file."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        with Recording(path) as recording:
            rows += map(msgspec.to_builtins, levels_of(recording))
    return rows


def levels_of(recording: Recording, name: str | None = None) -> list[LevelRow]:
    """The rows of a recording, in order; none when no agents ran. `name` stands for the file in them."""
    turns = recording.turns()
    loads = recording.of(LoadSample)
    spans = find_levels(recording.of(Level), loads, turns, recording.events(), recording.duration)
    if not spans:
        return []
    first, last = spans[0].start, spans[-1].end
    material = _Material(
        session=recording.session,
        turns=turns,
        loads=loads,
        engines=recording.of(EngineSample, first, last),
        hosts=recording.of(HostSample, first, last),
        gpus=recording.of(GpuSample, first, last),
        per_event=tokens_per_event(turns),
    )
    return [_row(name or str(recording.path), span, material) for span in spans]


def _row(file: str, span: Span, material: _Material) -> LevelRow:
    loads = _within(material.loads, span)
    load = next((load for load in reversed(material.loads) if load.engine and load.t <= span.end), None)
    turns = [turn for turn in material.turns if load is None or turn.engine == load.engine]
    engines = [
        sample for sample in _within(material.engines, span) if load is None or sample.engine == load.engine
    ]
    ended = [turn for turn in turns if span.steady <= turn.t < span.end]
    reasons = why_invalid(span, loads, ended, engines)
    row = LevelRow(
        file=file,
        host=material.session.host,
        engine=load.engine if load else None,
        model=next((sample.model for sample in engines if sample.model), None),
        profile=load.profile if load else None,
        demo=material.session.demo,
        level=span.number,
        agents=span.agents,
        t_start=span.start,
        t_end=span.end,
        warm_up_s=span.steady - span.start,
        window_s=span.window_s,
        valid=not reasons,
        why_invalid="; ".join(reasons) or None,
    )
    if span.window_s <= 0:
        return row
    figures = _rates(span, turns, material.per_event)
    figures |= _latencies(span, turns)
    figures |= _counts(span, ended)
    figures |= _samples(span, engines, material)
    return msgspec.structs.replace(row, **figures)


def _rates(span: Span, turns: Sequence[Turn], per_event: float | None) -> dict[str, float | None]:
    total = estimated = 0.0
    uncounted = False
    for turn in turns:
        if turn.t_sent is not None and turn.t_sent < span.end and turn.t >= span.steady:
            tokens, is_estimate = tokens_between(turn, span.steady, span.end, per_event)
            total += tokens
            estimated += tokens if is_estimate else 0.0
            uncounted |= turn.output_tokens is None and turn.t_first_token is not None
    felt = [
        rate
        for turn in turns
        if (rate := decode_rate(turn)) is not None
        and turn.t_first_token is not None
        and turn.t_last_token is not None
        and span.steady <= turn.t_first_token
        and turn.t_last_token < span.end
    ]
    moved = drift(felt)
    return {
        "decode_tok_s_per_agent_p50": median(felt),
        "decode_tok_s": total / span.window_s if total or not uncounted else None,
        "prefill_tok_s": _prefill(span, turns),
        "decode_drift_fraction": moved.change if moved else None,
        "estimated_fraction": estimated / total if total else None,
    }


def _prefill(span: Span, turns: Sequence[Turn]) -> float | None:
    answered = [turn for turn in turns if turn.t_first_token is not None and turn.prompt_tokens is not None]
    split = [turn for turn in answered if turn.cached_tokens is not None]
    if not split or len(answered) - len(split) > UNSPLIT_SHARE * len(answered):
        return None
    total = 0.0
    for turn in split:
        assert turn.prompt_tokens is not None
        assert turn.cached_tokens is not None
        assert turn.t_first_token is not None
        begun = turn.t_first_token - turn.prefill_s if turn.prefill_s is not None else turn.t_sent
        if begun is not None:
            part = share(begun, turn.t_first_token, span.steady, span.end)
            total += max(0, turn.prompt_tokens - turn.cached_tokens) * part
    return total / span.window_s


def _latencies(span: Span, turns: Sequence[Turn]) -> dict[str, float | None]:
    sent = [turn for turn in turns if turn.t_sent is not None and span.steady <= turn.t_sent < span.end]
    waits = [
        turn.t_first_token - turn.t_sent
        for turn in sent
        if turn.t_first_token is not None and turn.t_sent is not None
    ]
    gaps: list[float] = []
    for turn in turns:
        if turn.t >= span.steady and (turn.t_sent or 0.0) < span.end:
            times = arrival_times(turn)
            inside = times[bisect_left(times, span.steady) : bisect_left(times, span.end)]
            gaps += [later - earlier for earlier, later in pairwise(inside)]
    known = [turn for turn in sent if turn.prompt_tokens and turn.cached_tokens is not None]
    prompt = sum(turn.prompt_tokens or 0 for turn in known)
    return {
        "ttft_s_p50": median(waits),
        "ttft_s_p95": percentile(waits, 0.95),
        "itl_s_p50": median(gaps),
        "itl_s_p99": percentile(gaps, 0.99),
        "prefix_hit_fraction": sum(turn.cached_tokens or 0 for turn in known) / prompt if prompt else None,
    }


def _counts(span: Span, ended: Sequence[Turn]) -> dict[str, float | None]:
    done = [turn for turn in ended if completed(turn)]
    turns = sum(turn.turn_kind == "turn" for turn in done)
    return {
        "turns": turns,
        "completions_per_min": turns * 60 / span.window_s,
        "compactions": len(done) - turns,
        "failures": sum(map(failed, ended)),
    }


def _samples(span: Span, engines: Sequence[EngineSample], material: _Material) -> dict[str, float | None]:
    hosts, gpus = _within(material.hosts, span), _within(material.gpus, span)
    looked = [gpu for gpu in gpus if gpu.throttle is not None]
    return {
        "kv_max_fraction": max(
            (fill for sample in engines if (fill := _fill(sample)) is not None), default=None
        ),
        "waiting_max": max(
            (sample.waiting for sample in engines if sample.waiting is not None), default=None
        ),
        "preemptions": _preemptions(engines),
        "cpu_max_fraction": max((h.cpu_fraction for h in hosts if h.cpu_fraction is not None), default=None),
        "gpu_throttled_fraction": sum(map(_held_down, looked)) / len(looked) if looked else None,
    }


def _held_down(gpu: GpuSample) -> bool:
    return not HARMLESS_THROTTLE.issuperset(gpu.throttle or ())


def _fill(sample: EngineSample) -> float | None:
    if sample.kv_used_fraction is not None or not sample.kv_pool_tokens or sample.kv_used_tokens is None:
        return sample.kv_used_fraction
    return sample.kv_used_tokens / sample.kv_pool_tokens


def _preemptions(engines: Sequence[EngineSample]) -> int | None:
    counted = [sample for sample in engines if sample.preemptions_total is not None]
    if len(counted) < 2 or counted[0].restarts != counted[-1].restarts:
        return None
    first, last = counted[0].preemptions_total, counted[-1].preemptions_total
    assert first is not None
    assert last is not None
    return max(0, last - first)


def _within(samples: Sequence[F], span: Span) -> Sequence[F]:
    first = bisect_left(samples, span.steady, key=lambda sample: sample.t)
    return samples[first : bisect_left(samples, span.end, key=lambda sample: sample.t)]
