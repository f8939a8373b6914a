"""What all agents of one order share: the engine, the shape of requests, what is known of its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.messages import Message
from agenttop.agents.prefix import Dialect, Prefixes, ToolSet, schemas
from agenttop.agents.probe import Book
from agenttop.agents.ratio import Parts, TokenRatio
from agenttop.agents.reply import Reply
from agenttop.agents.settings import Profile
from agenttop.agents.silence import Habit
from agenttop.agents.text import SAMPLE_CHARS, TextSource, sample
from agenttop.agents.trace import sessions_in
from agenttop.model.commands import Configure

TOKENIZE_PATH = "/tokenize"
TEMPLATE_PATH = "/apply-template"
ASK_AGAIN_S = 5.0

_encoder = msgspec.json.Encoder()


class _Tokens(msgspec.Struct):
    """llama.cpp answers with the tokens, vLLM and SGLang with their number as well."""

    tokens: list[Any] | None = None
    count: int | None = None


class _Templated(msgspec.Struct):
    prompt: str = ""


Note = Callable[[str, str], None]
"""Takes the name of an event and its sentence."""


class Load:
    """Raises UsageError for a URL or key that cannot be used, ValueError for settings of no profile."""

    def __init__(
        self,
        order: Configure,
        *,
        api_key: str | None,
        salt: str,
        now: Callable[[], float],
        note: Note | None = None,
    ) -> None:
        self.engine = order.engine
        self.profile_name = order.profile
        self.seed = order.seed
        self.profile = Profile.from_settings(order.settings)
        self.endpoint = Endpoint(order.engine, api_key, order.ca_file)
        self.salt = salt
        self.now = now
        self.rate = order.clock_rate
        """Session seconds per second: real sleeps are divided by it."""
        self.habit = Habit(order.clock_rate)
        """What is usual with this engine, for agents that have no past."""
        self.kernel_stamps: Callable[[], bool] = lambda: bool(order.kernel_stamps)
        """Whether the next connection takes its time stamps from the kernel."""
        self.ratio = TokenRatio()
        self.dialect = Dialect()
        self.prefixes = Prefixes(salt, self.ratio, self.dialect)
        self.book = Book(salt)
        self._missed_probes = False
        if self.profile.trace is not None:
            sessions_in(self.profile)  # an agent must not be the first to find that it cannot be read
        self._note = note
        self._slots_like = order.slots_like
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
        stamps = self.kernel_stamps
        return Client(self.endpoint, self.now, self.timeouts, rate=self.rate, kernel_stamps=stamps)

    def body(self, messages: list[Message], max_tokens: int, tools: ToolSet | None = None) -> bytes:
        """A chat request as JSON. 0.2 ms for a context of 100,000 tokens."""
        fields: dict[str, Any] = {"messages": messages, "max_tokens": max_tokens, **self._fixed}
        if tools is not None:
            fields["tools"] = tools.json
            fields["tool_choice"] = self.profile.request.tool_choice
        return _encoder.encode(fields)

    def refuse_tools(self, why: str) -> None:
        """The engine takes no tools: from now on they are text, and their results a user's messages."""
        if self.dialect.tools:
            self.dialect.refuse_tools()
            self._tell("agents.no-tools", f"tool schemas go into the system prompt as text: {why}")

    def refuse_tool_role(self, why: str) -> None:
        """The chat template takes no results of tools: from now on they are a user's messages."""
        if self.dialect.tool_role:
            self.dialect.tool_role = False
            self._tell("agents.no-tool-role", f"tool results go as messages of a user: {why}")

    def miss_probes(self, why: str) -> None:
        """Facts cannot be planted; said once for all agents."""
        if not self._missed_probes:
            self._missed_probes = True
            self._tell("agents.probes-wait", why)

    def _tell(self, event: str, text: str) -> None:
        if self._note is not None:
            self._note(event, text)

    async def learn_ratio(self) -> None:
        """Let the engine count a sample text, where it offers that, so that the first prompt fits.

        Asked once for all agents; when the engine does not answer, agents start from a usual ratio.
        """
        if self._counts_tokens is not None or self.now() - self._asked_at < ASK_AGAIN_S * self.rate:
            if self._asking is not None:
                await asyncio.shield(self._asking)
            return
        self._asked_at = self.now()
        self._asking = asyncio.ensure_future(self._ask())
        await asyncio.shield(self._asking)
        self._asking = None

    async def _ask(self) -> None:
        text = sample()
        reply = await self._post(TOKENIZE_PATH, {"content": text, "prompt": text})
        if reply.status is None or reply.status == 503:
            return
        self._counts_tokens = False
        count = _counted(reply)
        if count is not None and 0 < count <= 4 * SAMPLE_CHARS:
            self._counts_tokens = True
            self.ratio.learn(Parts(chars=len(text)), count)
            if self.profile.context.tools:
                await self._ask_tools()
        self.prefixes.prepare(self.profile)

    async def _ask_tools(self) -> None:
        """Let the engine put a conversation with tools into its chat template, without answering it.

        Templates without tools drop them in silence; those that take them say here what they weigh.
        """
        tools = schemas(TextSource("sample", "tools"), SAMPLE_CHARS)
        fields: dict[str, Any] = {"messages": [Message("user", "x")], "tools": tools.json}
        if self._slots_like == "llama.cpp":
            reply = await self._post(TEMPLATE_PATH, {**fields, "tool_choice": "none"})
            prompt = _decoded(reply, _Templated)
            if prompt is not None and prompt.prompt and tools.names[0] not in prompt.prompt:
                self.refuse_tools("the engine's chat template leaves them out")
                return
            reply = reply if prompt is None else await self._post(TOKENIZE_PATH, {"content": prompt.prompt})
        else:
            reply = await self._post(TOKENIZE_PATH, fields)
        count = _counted(reply)
        if count is not None and 0 < count < self.ratio.tokens(Parts(chars=tools.chars)) / 4:
            self.refuse_tools("by its own count the engine's chat template leaves them out")
        elif count is not None and 0 < count <= 4 * SAMPLE_CHARS:
            self.ratio.learn(Parts(chars=1, messages=1, tool_chars=tools.chars, openings=1), count)
        elif reply.refusal is not None and refuses_tools(reply.refusal.message):
            self.refuse_tools(f"the engine refuses them: {reply.refusal.message}")

    async def _post(self, path: str, fields: dict[str, Any]) -> Reply:
        """Ask for something that is no generation."""
        if self._model is not None:
            fields["model"] = self._model
        reply = Reply()
        patience = ASK_AGAIN_S * self.rate
        limits = Timeouts(queue_s=patience, stall_s=patience)
        client = Client(self.endpoint, self.now, limits, rate=self.rate)
        await client.send(_encoder.encode(fields), reply, path, stream=False)
        client.close()
        return reply


T = TypeVar("T")


def _decoded(reply: Reply, kind: type[T]) -> T | None:
    if reply.failed:
        return None
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _counted(reply: Reply) -> int | None:
    answer = _decoded(reply, _Tokens)
    if answer is None:
        return None
    return len(answer.tokens) if answer.tokens is not None else answer.count


def refuses_tools(message: str) -> bool:
    """Whether an engine explains a refusal with the tools of the request."""
    return "tool" in message.lower()


def refuses_roles(message: str) -> bool:
    """Whether a chat template refuses the order or the kinds of roles."""
    text = message.lower()
    return "role" in text or "tool" in text or "alternate" in text


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
