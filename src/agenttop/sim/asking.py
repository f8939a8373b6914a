"""What clients ask of a simulated engine: request bodies, and one request on its way.

Sampling parameters are read over: the text is made up, and its length is what counts.
"""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec

from agenttop.sim.prompt import Message, Prompt


class StreamOptions(msgspec.Struct):
    """How often token counts are wanted."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Body(msgspec.Struct):
    """A request to `/v1/chat/completions` or `/v1/completions`, as far as it matters here."""

    model: str | None = None
    messages: list[Message] | None = None
    prompt: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    """llama.cpp's own name for it."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None

    @property
    def schemas(self) -> bytes:
        """The tool schemas as JSON; empty where there are none."""
        given = bytes(self.tools)
        return b"" if given in (b"null", b"[]") else given

    @property
    def limit(self) -> int | None:
        """The most output tokens, as asked."""
        for value in (self.max_completion_tokens, self.max_tokens, self.n_predict):
            if value is not None:
                return value
        return None

    def prompt_text(self) -> str:
        """The prompt of the completions API; of a list of token numbers, one token for each."""
        if isinstance(self.prompt, list):
            if all(isinstance(part, int) for part in self.prompt):
                return "".join(f"{part & 0xFFFF:04x}" for part in self.prompt)
            return "".join(str(part) for part in self.prompt)
        return str(self.prompt)


decode_body = msgspec.json.Decoder(Body).decode

_MEDIAN_TOKENS, _SPREAD = 220.0, 0.7


def own_length(mark: int, seed: int) -> int:
    """Tokens after which a reply ends by itself when the client sets no limit: log-normal, a few hundred."""
    rng = random.Random(f"length:{seed}:{mark}")
    return max(8, min(4096, round(_MEDIAN_TOKENS * math.exp(rng.gauss(0.0, _SPREAD)))))


class Job(msgspec.Struct):
    """One request in progress: what was asked, and how far it is. Times are simulated seconds."""

    number: int
    """In order of arrival, from 1."""
    id: str
    """As its reply names it."""
    created: int
    """Wall clock, whole seconds since 1970: the only real time in a reply."""
    chat: bool
    stream: bool
    model: str
    prompt: Prompt
    words: int
    """Where its text begins in `Words`."""
    limit: int | None
    arrived: float
    usage: bool = False
    """Token counts are wanted at the end of the stream."""
    continuous: bool = False
    """On every chunk."""
    timings: bool = False
    progress: bool = False
    ignore_eos: bool = False
    started: float | None = None
    first: float | None = None
    last: float | None = None
    cached: int = 0
    done: int = 0
    """Output tokens the engine has made."""
    reason: str | None = None
    usage_factor: float | None = 1.0
    """What counts are multiplied with; other than 1 they lie, None: there are none."""
    reasoning: int = 0
    """The first so many output tokens are thinking."""
    head: bytes = b""
    """What every event of its stream begins with; the wire keeps it here."""

    def shown(self, tokens: int) -> int:
        """A count as the reply tells it."""
        return tokens if self.usage_factor == 1.0 else round(tokens * (self.usage_factor or 0.0))

    @property
    def prompt_s(self) -> float:
        """From the queue to the first token."""
        return (self.first or 0.0) - (self.started or 0.0) if self.first is not None else 0.0
