"""What all agents of one order share: the engine, the shape of requests, what is known of its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.conversation import Message
from agenttop.agents.ratio import Parts, TokenRatio
from agenttop.agents.reply import Reply
from agenttop.agents.settings import Profile
from agenttop.agents.text import SAMPLE_CHARS, sample
from agenttop.model.commands import Configure

TOKENIZE_PATH = "/tokenize"
ASK_AGAIN_S = 5.0

_encoder = msgspec.json.Encoder()


class _Tokens(msgspec.Struct):
    """llama.cpp answers with the tokens, vLLM and SGLang with their number as well."""

    tokens: list[Any] | None = None
    count: int | None = None


class Load:
    """Raises UsageError for a URL or key that cannot be used, ValueError for settings of no profile."""

    def __init__(self, order: Configure, *, api_key: str | None, salt: str, now: Callable[[], float]) -> None:
        self.engine = order.engine
        self.profile_name = order.profile
        self.seed = order.seed
        self.profile = Profile.from_settings(order.settings)
        self.endpoint = Endpoint(order.engine, api_key)
        self.salt = salt
        self.now = now
        self.rate = order.clock_rate
        """Session seconds per second: real sleeps are divided by it."""
        self.ratio = TokenRatio()
        request = self.profile.request
        self.timeouts = Timeouts(queue_s=request.queue_s, stall_s=request.stall_s)
        self._model = order.model
        self._fixed = _fixed_fields(self.profile, order)
        self._asking: asyncio.Task[None] | None = None
        self._counts_tokens: bool | None = None
        """Whether the engine counts tokens on request; None: it has not answered yet."""
        self._asked_at = float("-inf")

    def client(self) -> Client:
        """A client for one agent."""
        return Client(self.endpoint, self.now, self.timeouts, rate=self.rate)

    def body(self, messages: list[Message], max_tokens: int) -> bytes:
        """A chat request as JSON. 0.2 ms for a context of 100,000 tokens."""
        return _encoder.encode({"messages": messages, "max_tokens": max_tokens, **self._fixed})

    async def learn_ratio(self) -> None:
        """Let the engine count a sample text, where it offers that, so that the first prompt fits.

        Asked once for all agents; when the engine does not answer, agents start from a usual ratio.
        """
        if self._counts_tokens is not None or self.now() - self._asked_at < ASK_AGAIN_S * self.rate:
            if self._asking is not None:
                await asyncio.shield(self._asking)
            return
        self._asked_at = self.now()
        self._asking = asyncio.ensure_future(self._ask_ratio())
        await asyncio.shield(self._asking)
        self._asking = None

    async def _ask_ratio(self) -> None:
        text = sample()
        fields: dict[str, Any] = {"content": text, "prompt": text}
        if self._model is not None:
            fields["model"] = self._model
        reply = Reply()
        patience = ASK_AGAIN_S * self.rate
        limits = Timeouts(queue_s=patience, stall_s=patience)
        client = Client(self.endpoint, self.now, limits, rate=self.rate)
        await client.send(_encoder.encode(fields), reply, TOKENIZE_PATH, stream=False)
        client.close()
        if reply.status is None or reply.status == 503:
            return
        self._counts_tokens = False
        if reply.failed:
            return
        try:
            answer = msgspec.json.decode(reply.body, type=_Tokens)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        count = len(answer.tokens) if answer.tokens is not None else answer.count
        if count is not None and 0 < count <= 4 * SAMPLE_CHARS:
            self._counts_tokens = True
            self.ratio.learn(Parts(chars=len(text)), count)


def _fixed_fields(profile: Profile, order: Configure) -> dict[str, Any]:
    """What every request says besides its messages."""
    fields: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": profile.request.temperature,
    }
    if order.model is not None:
        fields["model"] = order.model
    if order.slots_like == "llama.cpp":
        fields["timings_per_token"] = True
        fields["return_progress"] = True
        fields["cache_prompt"] = True
        if profile.request.ignore_eos:
            fields["ignore_eos"] = True
    elif order.slots_like in ("vllm", "vLLM", "sglang", "SGLang"):
        fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return fields
