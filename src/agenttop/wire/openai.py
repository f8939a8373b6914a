"""OpenAI chat-completion streams as engines really send them: chunks and error replies to values.

Differences between engines that are handled here (each seen in a captured reply):
- thinking text: `delta.reasoning_content` (llama.cpp, SGLang) or `delta.reasoning` (vLLM);
- an opening chunk that carries only the role: it holds no token;
- `usage` in a chunk without choices, on the finish chunk, or on every chunk;
- llama.cpp's `timings` on each chunk and `prompt_progress` while it reads the prompt;
- `error` as an object, a string, or the whole reply (`{"object": "error", "message": ...}`), and `detail`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.model.text import clean

DONE = b"[DONE]"

# Structs of a stream live for microseconds and hold no cycles, so the garbage collector need not know them.


class Function(msgspec.Struct, gc=False):
    """The called function; both parts arrive in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """One piece of one tool call. Its first piece has the id; further ones only the index."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds. A role alone is not output."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """One alternative of the reply; agenttop asks for a single one."""

    delta: Delta | None = None
    text: str | None = None
    """Of the older completions API."""
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """Where the prompt tokens came from."""

    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """What the output tokens were."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts by the engine."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    reasoning_tokens: int | None = None
    """SGLang keeps it here."""


class Timings(msgspec.Struct, gc=False):
    """llama.cpp's own account of a request. `_n` tokens, `_ms` milliseconds."""

    cache_n: int | None = None
    prompt_n: int | None = None
    """Prompt tokens it computed; those from the cache are `cache_n`."""
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None


class Progress(msgspec.Struct, gc=False):
    """llama.cpp's prefill progress in tokens; `processed` includes those from the cache."""

    total: int | None = None
    cache: int | None = None
    processed: int | None = None
    time_ms: float | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: Progress | None = None
    error: Any = None
    message: Any = None
    detail: Any = None


class ErrorReply(msgspec.Struct, frozen=True):
    """A refusal, whatever its shape."""

    message: str
    """One line, cleaned; never empty."""
    type: str | None = None
    code: int | str | None = None
    prompt_tokens: int | None = None
    """Size of the refused prompt, where the engine tells."""
    context_tokens: int | None = None
    """Context size it would have had to fit, where the engine tells."""

    @property
    def is_context(self) -> bool:
        """The prompt does not fit into the engine's context."""
        if self.type == "exceed_context_size_error" or self.code == "context_length_exceeded":
            return True
        text = self.message.lower()
        return any(words in text for words in _CONTEXT_WORDS)


_CONTEXT_WORDS = (
    "maximum context length",
    "exceeds the available context",
    "context length exceeded",
    "max_model_len",
    "longer than the model's context",
)

decode_chunk = msgspec.json.Decoder(Chunk).decode
"""The quick way: raises msgspec.DecodeError where `read_chunk` looks closer."""
_anything = msgspec.json.Decoder()


def read_chunk(payload: bytes) -> Chunk:
    """The data of one event. Raises ValueError when it is not a JSON object.

    A field of an unexpected type is dropped, not fatal: the rest of the chunk still counts.
    """
    try:
        return decode_chunk(payload)
    except msgspec.ValidationError:
        value = _anything.decode(payload)
        if not isinstance(value, dict):
            raise ValueError("an event holds no JSON object") from None
        return _salvage(value)
    except RecursionError:
        raise ValueError("an event is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"an event is not JSON: {clean(payload[:80].decode('utf-8', 'replace'))}") from error


def _salvage(value: dict[str, Any]) -> Chunk:
    """Field by field, what can be read of a chunk that does not have the usual types."""
    return Chunk(
        choices=_field(value, "choices", list[Choice]) or _loose_choices(value.get("choices")),
        usage=_field(value, "usage", Usage),
        timings=_field(value, "timings", Timings),
        prompt_progress=_field(value, "prompt_progress", Progress),
        error=value.get("error"),
        message=value.get("message"),
        detail=value.get("detail"),
    )


def _field(value: dict[str, Any], name: str, wanted: Any) -> Any:
    try:
        return msgspec.convert(value.get(name), wanted | None, strict=False)
    except msgspec.ValidationError:
        return None


def _loose_choices(value: Any) -> list[Choice] | None:
    """Choices whose content is a list of parts, or whose finish reason is no string."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return None
    delta = value[0].get("delta")
    delta = delta if isinstance(delta, dict) else {}
    reason = value[0].get("finish_reason")
    return [
        Choice(
            delta=Delta(
                content=_loose_text(delta.get("content")),
                reasoning_content=_loose_text(delta.get("reasoning_content")),
                reasoning=_loose_text(delta.get("reasoning")),
            ),
            finish_reason=None if reason is None else clean(str(reason), 40),
        )
    ]


def _loose_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return None


def tool_text(calls: list[ToolCall] | None) -> str:
    """Names and arguments of tool calls: output like any other."""
    if not calls:
        return ""
    functions = [call.function for call in calls if call.function is not None]
    return "".join((function.name or "") + (function.arguments or "") for function in functions)


def chunk_error(chunk: Chunk) -> ErrorReply | None:
    """The failure an engine reports inside a stream it had begun with status 200."""
    if chunk.error is None and (chunk.choices is not None or chunk.usage is not None):
        return None
    if chunk.error is None and chunk.message is None and chunk.detail is None:
        return None
    return _error_of({"error": chunk.error, "message": chunk.message, "detail": chunk.detail})


def read_error(body: bytes, status: int) -> ErrorReply:
    """The body of a reply with an error status, whatever it is: JSON of any shape, HTML, nothing."""
    try:
        value = _anything.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        found = _error_of(value)
        if found is not None:
            return found
    text = body[:400].decode("utf-8", "replace").strip()
    if not text:
        return ErrorReply(f"status {status} without an explanation")
    if text.startswith("<"):
        return ErrorReply(f"status {status} with a web page instead of an explanation")
    return ErrorReply(clean(text))


def _error_of(value: dict[str, Any]) -> ErrorReply | None:
    inner = value.get("error")
    fields: dict[str, Any] = inner if isinstance(inner, dict) else value
    if isinstance(inner, str):
        message: Any = inner
    else:
        message = fields.get("message") or fields.get("detail") or value.get("detail")
    if message is None:
        if inner is None:
            return None
        message = fields.get("type") or "no message"
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    kind, code = fields.get("type"), fields.get("code")
    return ErrorReply(
        message=clean(message) or "no message",
        type=clean(kind, 60) if isinstance(kind, str) else None,
        code=clean(code, 60) if isinstance(code, str) else code if isinstance(code, int) else None,
        prompt_tokens=_whole(fields.get("n_prompt_tokens")),
        context_tokens=_whole(fields.get("n_ctx")),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
