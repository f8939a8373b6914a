"""The figures of one level, each from raw turns and samples within its steady window."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agenttop.analyse.levels import Span
from agenttop.analyse.stats import drift, median, percentile
from agenttop.analyse.tokens import arrival_times, decode_rate, share, tokens_between
from agenttop.analyse.verdict import completed, failed
from agenttop.model.frames import EngineSample, LoadSample, Turn

UNSPLIT_SHARE = 0.1
"""With more than this share of the requests silent about their cached tokens, prefill cannot be told."""

SILENCE = frozenset({"stall", "queue-timeout"})

Figures = dict[str, Any]


def rates(span: Span, turns: Sequence[Turn], per_event: float | None) -> Figures:
    """Decode and prefill, all together and per agent."""
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
        if turn.parent is None
        and (rate := decode_rate(turn)) is not None
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


def latencies(span: Span, turns: Sequence[Turn]) -> Figures:
    """Waits for the first token, for the next one, for the whole turn; and what the cache saved."""
    sent = [turn for turn in turns if turn.t_sent is not None and span.steady <= turn.t_sent < span.end]
    first = [
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
    opening = _openings(turns)
    known = [
        turn
        for turn in sent
        if turn.prompt_tokens and turn.cached_tokens is not None and opening.get(turn.agent) is not turn
    ]
    prompt = sum(turn.prompt_tokens or 0 for turn in known)
    done = [turn for turn in turns if span.steady <= turn.t < span.end and is_full(turn)]
    return {
        "ttft_s_p50": median(first),
        "ttft_s_p95": percentile(first, 0.95),
        "wait_s_p50": median([wait for turn in done if (wait := waited(turn)) is not None]),
        "turn_s_p50": median(
            [
                turn.t_last_token - turn.t_sent
                for turn in done
                if turn.t_last_token and turn.t_sent is not None
            ]
        ),
        "itl_s_p50": median(gaps),
        "itl_s_p99": percentile(gaps, 0.99),
        "prefix_hit_fraction": sum(turn.cached_tokens or 0 for turn in known) / prompt if prompt else None,
    }


def _openings(turns: Sequence[Turn]) -> dict[str, Turn]:
    """The first answered request of each agent: no cache can know it, however few agents there are.

    Those of sub-agents recur as long as a level lasts, and count.
    """
    first: dict[str, Turn] = {}
    for turn in turns:
        if turn.parent is None and turn.t_sent is not None and turn.t_first_token is not None:
            before = first.get(turn.agent)
            if before is None or before.t_sent is None or turn.t_sent < before.t_sent:
                first[turn.agent] = turn
    return first


def is_full(turn: Turn) -> bool:
    """A turn of an agent itself, neither a compaction nor one of a sub-agent, answered to its end."""
    return turn.turn_kind == "turn" and turn.parent is None and completed(turn)


def waited(turn: Turn) -> float | None:
    """From when the plan wanted a request sent to its last token: what its agent waited for it."""
    return None if turn.t_last_token is None else turn.t_last_token - turn.t_queued


def counts(span: Span, ended: Sequence[Turn], loads: Sequence[LoadSample]) -> Figures:
    """What was completed and what went wrong. `loads`: those of the steady window."""
    turns = sum(map(is_full, ended))
    kinds = Counter(turn.error_kind for turn in ended if failed(turn))
    return {
        "turns": turns,
        "completions_per_min": turns * 60 / span.window_s,
        "failures": sum(kinds.values()),
        "failure_kinds": dict(kinds.most_common()),
        # Most stalls end well. A request that was given up had stalled, though no sample may have shown it.
        "stalls": max(_stalls(loads), sum(count for kind, count in kinds.items() if kind in SILENCE)),
        "retries": sum(turn.attempt > 1 for turn in ended),
    }


def _stalls(loads: Sequence[LoadSample]) -> int:
    """How often an agent was found silent for far longer than usual; one that went on in between counts
    again. From the number stalled in each second's sample: who changes places within one is not seen."""
    numbers = [0, *(load.stalled for load in loads)]
    return sum(max(0, later - earlier) for earlier, later in pairwise(numbers))


def compactions(ended: Sequence[Turn]) -> Figures:
    """How often contexts were shortened, and what that cost."""
    done = [turn for turn in ended if turn.turn_kind == "compact" and completed(turn)]
    after = [
        max(0, turn.prompt_tokens - turn.cached_tokens)
        for turn in ended
        if turn.compacted_from_tokens is not None
        and turn.prompt_tokens is not None
        and turn.cached_tokens is not None
    ]
    return {
        # A cheap truncation sends no request of its own: it shows in the turn after it.
        "compactions": max(len(done), sum(turn.compacted_from_tokens is not None for turn in ended)),
        "compaction_s_p50": median(
            [
                turn.t_last_token - turn.t_sent
                for turn in done
                if turn.t_last_token and turn.t_sent is not None
            ]
        ),
        "compaction_prefill_tokens_p50": median(after),
    }


def engine(span: Span, engines: Sequence[EngineSample]) -> Figures:
    """Pool, queue and preemptions."""
    waiting = [sample.waiting for sample in engines if sample.waiting is not None]
    preempted = _preemptions(engines)
    pools = [sample.kv_pool_tokens for sample in engines if sample.kv_pool_tokens]
    slots = [sample.slots_total for sample in engines if sample.slots_total is not None]
    return {
        "kv_max_fraction": max((f for sample in engines if (f := fill(sample)) is not None), default=None),
        "kv_active_max_fraction": max(
            (f for sample in engines if (f := active_fill(sample)) is not None), default=None
        ),
        "kv_pool_tokens": pools[-1] if pools else None,
        "slots_total": slots[-1] if slots else None,
        "waiting_max": max(waiting, default=None),
        "waiting_fraction": sum(count > 0 for count in waiting) / len(waiting) if waiting else None,
        "preemptions": preempted,
        "preemptions_per_min": None if preempted is None else preempted * 60 / span.window_s,
        "engine_hit_fraction": _share(engines, "prefix_hits_tokens_total", "prefix_queries_tokens_total"),
        "draft_acceptance": _share(engines, "accepted_tokens_total", "drafted_tokens_total"),
        "finish_reasons": _finished(engines),
    }


def fill(sample: EngineSample) -> float | None:
    """Share of the KV pool in use, left-overs of finished requests included where the engine counts them."""
    if sample.kv_used_fraction is not None or not sample.kv_pool_tokens or sample.kv_used_tokens is None:
        return sample.kv_used_fraction
    return sample.kv_used_tokens / sample.kv_pool_tokens


def active_fill(sample: EngineSample) -> float | None:
    """Share of the KV pool held by requests in progress: left-overs can be dropped, these cannot."""
    if sample.kv_active_tokens is not None and sample.kv_pool_tokens:
        return sample.kv_active_tokens / sample.kv_pool_tokens
    # An engine without left-overs of its own counts only what is held.
    return fill(sample) if sample.kv_idle_tokens is None else None


def _preemptions(engines: Sequence[EngineSample]) -> int | None:
    grown = _growth(engines, "preemptions_total")
    return None if grown is None else max(0, grown)


def _growth(engines: Sequence[EngineSample], counter: str) -> int | None:
    """By how much a counter of the engine has grown from the first sample to the last; None where it does
    not count, or was restarted in between."""
    counted = [sample for sample in engines if getattr(sample, counter) is not None]
    if len(counted) < 2 or counted[0].restarts != counted[-1].restarts:
        return None
    grown: int = getattr(counted[-1], counter) - getattr(counted[0], counter)
    return grown


def _share(engines: Sequence[EngineSample], part: str, whole: str) -> float | None:
    """The growth of one counter over that of another; None where there was none, or one went back."""
    of, some = _growth(engines, whole), _growth(engines, part)
    if some is None or of is None or of <= 0 or some < 0:
        return None
    return min(1.0, some / of)


def _finished(engines: Sequence[EngineSample]) -> dict[str, int]:
    """Requests that ended from the first sample to the last, by reason."""
    counted = [sample for sample in engines if sample.finish_reasons]
    if len(counted) < 2 or counted[0].restarts != counted[-1].restarts:
        return {}
    first, last = counted[0].finish_reasons, counted[-1].finish_reasons
    grown = {why: count - first.get(why, 0) for why, count in last.items()}
    return grown if all(count >= 0 for count in grown.values()) else {}


def mean_context(span: Span, turns: Sequence[Turn]) -> float | None:
    """Mean context of an agent over the window, by time: each keeps what its last turn left it with."""
    ends: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for turn in turns:
        if turn.context_tokens is not None and turn.parent is None and turn.t < span.end:
            ends[turn.agent].append((turn.t, turn.context_tokens))
    held = seconds = 0.0
    for known in ends.values():
        for (since, tokens), (until, _) in pairwise([*known, (span.end, 0)]):
            lasted = max(0.0, min(until, span.end) - max(since, span.steady))
            held += tokens * lasted
            seconds += lasted
    return held / seconds if seconds else None
