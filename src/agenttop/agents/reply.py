"""What one request got back: times, counts and text, filled in while the stream arrives."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable

import msgspec

from agenttop.model.text import clean, without
from agenttop.wire.openai import (
    DONE,
    Chunk,
    ErrorReply,
    Progress,
    Timings,
    ToolCall,
    Usage,
    chunk_error,
    decode_chunk,
    read_chunk,
    tool_text,
)

MAX_TEXT_CHARS = 16 * 1024 * 1024
"""More than this in one reply is no answer to a request that limits its output; it is cut off."""

MAX_COUNT = 2**53
"""A token count beyond this is nonsense and is treated as not given."""

_QUOTE_CHARS = 8
_QUOTE_SEARCHED = 100_000

_MAX_ARRIVAL_US = 2**32 - 1


class Reply:
    """One reply in the making. Times are session seconds, stamped before the bytes are looked at.

    `error_kind` None after the end means that it is whole: `[DONE]` came, or a finish reason and the end.
    `watch` is called at the first byte, at each report of prefill progress and at the first token.
    """

    __slots__ = (
        "_text_chars",
        "arrivals",
        "body",
        "by_kernel",
        "calls",
        "connect_s",
        "content",
        "done",
        "error",
        "error_kind",
        "events",
        "finish_reason",
        "first_counts",
        "merged",
        "progress",
        "reasoning",
        "reasoning_chars",
        "refusal",
        "secret",
        "shared_reads",
        "status",
        "t_any_byte",
        "t_end",
        "t_first_byte",
        "t_first_token",
        "t_last_token",
        "t_progress",
        "t_sent",
        "timings",
        "usage",
        "watch",
    )

    def __init__(self, watch: Callable[[], None] | None = None) -> None:
        self.watch = watch
        self.t_sent: float | None = None
        self.t_first_byte: float | None = None
        self.t_first_token: float | None = None
        self.t_last_token: float | None = None
        self.t_end: float | None = None
        self.t_any_byte = 0.0
        """When the engine last sent anything that was no token; a keep-alive comment counts."""
        self.t_progress = 0.0
        """When something last moved that is no token: prefill progress, a count of tokens held back."""
        self.connect_s = 0.0
        """Time spent opening the connection before `t_sent`; 0 on one that was kept."""
        self.arrivals: array[int] = array("I")
        """Per event that carried text: microseconds after `t_sent`."""
        self.events = 0
        self.shared_reads = 0
        """Socket reads that held several events with text: those share a time stamp."""
        self.merged = 0
        """Events with text that were not the first of their read."""
        self.by_kernel = 0
        """Socket reads with events that the kernel stamped."""
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []
        """Tool calls in the pieces they came in."""
        self.reasoning_chars = 0
        self._text_chars = 0
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.progress: Progress | None = None
        self.first_counts: tuple[float, int] | None = None
        """Time and output tokens at the first token: the base of a decode rate."""
        self.finish_reason: str | None = None
        self.done = False
        self.status: int | None = None
        self.error_kind: str | None = None
        self.error: str | None = None
        self.refusal: ErrorReply | None = None
        self.secret: str | None = None
        """The API key that was sent: it must not come back in an error, which is shown and recorded."""
        self.body = b""
        """Of a reply that is not a stream."""

    @property
    def failed(self) -> bool:
        """A failure was noted."""
        return self.error_kind is not None

    @property
    def text(self) -> str:
        """The answer without its reasoning."""
        return "".join(self.content)

    @property
    def reads(self) -> int:
        """Socket reads that held at least one event with text."""
        return self.events - self.merged

    @property
    def kernel_stamped(self) -> bool:
        """Every time in `arrivals` is the kernel's."""
        return 0 < self.by_kernel == self.events - self.merged

    @property
    def t_alive(self) -> float:
        """When the last byte came, whatever it said."""
        return max(self.t_any_byte, self.t_last_token or 0.0)

    @property
    def t_moved(self) -> float:
        """When it last came nearer to its end: sent, a step of the prefill, a token."""
        return max(self.t_progress, self.t_last_token or 0.0, self.t_sent or 0.0)

    @property
    def answer_chars(self) -> int:
        """Length of the answer and of the tool calls in it."""
        return self._text_chars

    @property
    def output_tokens(self) -> int | None:
        """Output tokens so far by the engine's own count."""
        counted = _count(self.usage.completion_tokens) if self.usage is not None else None
        if counted is None and self.timings is not None:
            counted = _count(self.timings.predicted_n)
        return counted

    @property
    def tokens_from(self) -> str | None:
        """Which part of the reply `output_tokens` was read from."""
        if self.usage is not None and _count(self.usage.completion_tokens) is not None:
            return "usage"
        if self.timings is not None and _count(self.timings.predicted_n) is not None:
            return "timings"
        return None

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, cached ones included."""
        counted = _count(self.usage.prompt_tokens) if self.usage is not None else None
        if counted is None and self.progress is not None:
            counted = _count(self.progress.total)
        if counted is None and self.timings is not None and self.timings.prompt_n:
            counted = _count(self.timings.prompt_n + (self.timings.cache_n or 0))
        return counted

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that came from the prefix cache."""
        details = self.usage.prompt_tokens_details if self.usage is not None else None
        counted = _count(details.cached_tokens) if details is not None else None
        if counted is None and self.progress is not None:
            counted = _count(self.progress.cache)
        if counted is None and self.timings is not None:
            counted = _count(self.timings.cache_n)
        prompt = self.prompt_tokens
        # More than the whole prompt is no count.
        return None if counted is not None and prompt is not None and counted > prompt else counted

    @property
    def reasoning_tokens(self) -> int | None:
        """Output tokens that were reasoning, where the engine tells."""
        if self.usage is None:
            return None
        details = self.usage.completion_tokens_details
        counted = _count(details.reasoning_tokens) if details is not None else None
        return _count(self.usage.reasoning_tokens) if counted is None else counted

    @property
    def prefilled_tokens(self) -> int | None:
        """Prompt tokens done so far, cached ones included."""
        if self.t_first_token is not None:
            return self.prompt_tokens
        return _count(self.progress.processed) if self.progress is not None else None

    def packed_arrivals(self) -> bytes | None:
        """`arrivals` as little-endian uint32; None when nothing arrived."""
        if not self.arrivals:
            return None
        packed = self.arrivals
        if sys.byteorder == "big":
            packed = packed[:]
            packed.byteswap()
        return packed.tobytes()

    def fail(self, kind: str, message: str) -> None:
        """Note a failure; the first one stands."""
        if self.error_kind is None:
            self.error_kind = kind
            self.error = clean(without(self.secret, message))

    def event(self, payload: bytes, now: float) -> None:
        """Take in one event of the stream. Raises ValueError when it is unreadable."""
        if payload == DONE:
            self.done = True
            return
        try:
            chunk = decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            chunk = read_chunk(payload)
        self.take(chunk, now)

    def take(self, chunk: Chunk, now: float) -> None:
        """Take in what an event said. Raises ValueError when the reply grows beyond all measure.

        Written flat: it runs for every token of every agent.
        """
        if chunk.timings is not None:
            self.timings = chunk.timings
        if chunk.usage is not None:
            if self.usage is None or chunk.usage.completion_tokens != self.usage.completion_tokens:
                self.t_progress = now
            self.usage = chunk.usage
        choices = chunk.choices
        if not choices or chunk.error is not None:
            self._without_choices(chunk)
            return
        if chunk.prompt_progress is not None:
            if self.progress is None or chunk.prompt_progress.processed != self.progress.processed:
                self.t_progress = now
            self.progress = chunk.prompt_progress
            if self.watch is not None:
                self.watch()
        choice = choices[0]
        if choice.finish_reason is not None:
            self.finish_reason = clean(without(self.secret, choice.finish_reason), 40)
        delta, called = choice.delta, 0
        if delta is None:
            text, reasoning = choice.text, None
        else:
            text, reasoning = delta.content, delta.reasoning_content or delta.reasoning
            if delta.tool_calls is not None:
                called = self._called(delta.tool_calls)
        if text:
            self.content.append(text)
            self._text_chars += len(text)
        if reasoning:
            self.reasoning.append(reasoning)
            self.reasoning_chars += len(reasoning)
        elif not text and not called:
            return
        if self._text_chars + self.reasoning_chars > MAX_TEXT_CHARS:
            raise ValueError(f"the reply is longer than {MAX_TEXT_CHARS} characters")
        self.events += 1
        after = int((now - (self.t_sent or 0.0)) * 1e6)
        self.arrivals.append(after if 0 <= after <= _MAX_ARRIVAL_US else _MAX_ARRIVAL_US if after > 0 else 0)
        self.t_last_token = now
        if self.t_first_token is None:
            self.t_first_token = now
            self.first_counts = (now, self.output_tokens or 0)
            if self.watch is not None:
                self.watch()

    def _called(self, calls: list[ToolCall]) -> int:
        """Note pieces of tool calls; how much text they hold."""
        self.calls += calls
        size = len(tool_text(calls))
        self._text_chars += size
        return size

    def _without_choices(self, chunk: Chunk) -> None:
        found = chunk_error(chunk)
        if found is not None:
            self.refusal = found
            # llama.cpp ends every running request this way when its one shared KV pool is full.
            full = "context size has been exceeded" in found.message.lower()
            self.fail("engine-limit" if full else "stream-error", self._without_output(found.message))

    def _without_output(self, message: str) -> str:
        """An explanation without the output it quotes (llama.cpp does, when it cannot parse it)."""
        text = clean((self.text + tool_text(self.calls))[:_QUOTE_SEARCHED], _QUOTE_SEARCHED)
        for start in range(len(message) - _QUOTE_CHARS + 1):
            if message[start : start + _QUOTE_CHARS] in text:
                return message[:start].rstrip(" :") + " …"
        return message


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < MAX_COUNT else None
