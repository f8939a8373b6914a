"""When the tokens of a turn arrived: the raw material of every rate.

Token counts are the engine's own; an arrival is one stream event, which may hold several tokens. So the
tokens of a turn are spread evenly over its events.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable

from agenttop.analyse.stats import median
from agenttop.model.frames import Turn


def arrival_times(turn: Turn) -> list[float]:
    """Session time of each event that carried text, in order; empty where none were kept."""
    if not turn.arrivals or turn.t_sent is None:
        return []
    offsets = array("I")
    offsets.frombytes(turn.arrivals[: len(turn.arrivals) // 4 * 4])
    if sys.byteorder == "big":
        offsets.byteswap()
    sent = turn.t_sent
    return sorted(sent + offset / 1e6 for offset in offsets)


def decode_rate(turn: Turn) -> float | None:
    """Tokens per second one request felt: the tokens after the first, over the time they took.

    (output_tokens - 1) / (t_last_token - t_first_token), the inverse of TPOT as vLLM defines it. None with
    fewer than two tokens, and for requests that failed.
    """
    if turn.error_kind is not None or turn.output_tokens is None or turn.output_tokens < 2:
        return None
    if turn.t_first_token is None or turn.t_last_token is None or turn.t_last_token <= turn.t_first_token:
        return None
    return (turn.output_tokens - 1) / (turn.t_last_token - turn.t_first_token)


def tokens_per_event(turns: Iterable[Turn]) -> float | None:
    """The usual number of tokens in one event, from turns that tell both; None when none does."""
    return median([turn.output_tokens / turn.events for turn in turns if turn.output_tokens and turn.events])


def tokens_between(turn: Turn, start: float, end: float, per_event: float | None) -> tuple[float, bool]:
    """Output tokens that arrived in `start` <= t < `end`, and whether their number is estimated.

    Estimated are only those of requests that were cut off before the engine told a count: their
    events times `per_event`.
    """
    times = arrival_times(turn)
    total = turn.output_tokens
    if times:
        inside = bisect_left(times, end) - bisect_left(times, start)
        if total is not None:
            return total * inside / len(times), False
        return (inside * per_event, inside > 0) if per_event is not None else (0.0, False)
    first, last = turn.t_first_token, turn.t_last_token
    if not total or first is None or last is None:
        return 0.0, False
    return total * share(first, last, start, end), False


def share(first: float, last: float, start: float, end: float) -> float:
    """The part of the time from `first` to `last` that lies in `start` <= t < `end`."""
    if last <= first:
        return 1.0 if start <= first < end else 0.0
    return max(0.0, min(last, end) - max(first, start)) / (last - first)
