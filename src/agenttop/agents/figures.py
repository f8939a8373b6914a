"""From replies to the figures of the frames."""

from __future__ import annotations

from collections import deque

import msgspec

from agenttop.agents.reply import Reply
from agenttop.model.frames import Turn

RATE_WINDOW_S = 3.0


class Sizes(msgspec.Struct, frozen=True):
    """What is known of a prompt when its request is written, in tokens; named as in Turn."""

    planned: int | None = None
    expected: int | None = None
    compacted_from: int | None = None


class DecodeRate:
    """Output tokens per second of the request in progress, over its last 3 seconds.

    The counts are the engine's, the times those of their arrival, so it is exact although it is looked at
    only a few times a second.
    """

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def clear(self) -> None:
        """A new request begins."""
        self._counts.clear()

    def note(self, reply: Reply, now: float) -> None:
        """How far the reply is; call it a few times a second."""
        if reply.t_last_token is None or reply.output_tokens is None:
            return
        if not self._counts and reply.first_counts is not None:
            self._counts.append(reply.first_counts)
        self._counts.append((reply.t_last_token, reply.output_tokens))
        while len(self._counts) > 2 and self._counts[1][0] <= now - RATE_WINDOW_S:
            self._counts.popleft()

    def of(self, reply: Reply | None) -> float | None:
        """None before the second token, and where the engine does not count while it streams."""
        if reply is None or reply.t_last_token is None or reply.first_counts is None:
            return None
        output = reply.output_tokens
        if output is None:
            return None
        start = self._counts[0] if self._counts else reply.first_counts
        if start[0] >= reply.t_last_token:
            start = reply.first_counts
        elapsed = reply.t_last_token - start[0]
        return (output - start[1]) / elapsed if elapsed > 0 and output > start[1] else None


def answer_tokens(reply: Reply) -> int:
    """Output tokens without reasoning; where that is not counted, split by characters."""
    output = reply.output_tokens or 0
    if reply.reasoning_tokens is not None:
        return max(0, output - reply.reasoning_tokens)
    if reply.reasoning_chars:
        text_chars = reply.answer_chars
        return round(output * text_chars / (text_chars + reply.reasoning_chars))
    return output


def turn_frame(
    reply: Reply,
    *,
    now: float,
    agent: str,
    engine: str,
    profile: str,
    turn: int,
    kind: str,
    t_queued: float,
    output_limit: int | None,
    context_tokens: int | None,
    sizes: Sizes,
    attempt: int = 1,
    parent: str | None = None,
) -> Turn:
    """The record of one request."""
    timings = reply.timings
    return Turn(
        t=reply.t_end if reply.t_end is not None else now,
        agent=agent,
        engine=engine,
        profile=profile,
        turn=turn,
        turn_kind=kind,
        t_queued=t_queued,
        t_sent=reply.t_sent,
        t_first_byte=reply.t_first_byte,
        t_first_token=reply.t_first_token,
        t_last_token=reply.t_last_token,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        output_tokens=reply.output_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        output_limit_tokens=output_limit,
        tokens_from=reply.tokens_from,
        context_tokens=context_tokens,
        status=reply.status,
        finish_reason=reply.finish_reason,
        error_kind=reply.error_kind,
        error=reply.error,
        events=reply.events,
        prefill_s=_seconds(timings.prompt_ms) if timings is not None else None,
        decode_s=_seconds(timings.predicted_ms) if timings is not None else None,
        attempt=attempt,
        stamps="kernel" if reply.kernel_stamped else None,
        arrivals=reply.packed_arrivals(),
        parent=parent,
        planned_prompt_tokens=sizes.planned,
        expected_prompt_tokens=sizes.expected,
        compacted_from_tokens=sizes.compacted_from,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds is not None and milliseconds >= 0 else None
