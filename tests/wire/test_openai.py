"""Chunks of real streams, and refusals of every shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenttop.wire.openai import chunk_error, read_chunk, read_error, tool_text
from agenttop.wire.sse import SseParser

CAPTURES = Path(__file__).parent / "captures"


def chunks(name: str) -> list:
    payloads = SseParser().feed((CAPTURES / f"{name}.sse").read_bytes())
    return [read_chunk(payload) for payload in payloads if payload != b"[DONE]"]


def test_llama_progress_then_tokens() -> None:
    stream = chunks("llama-progress")
    progress = [chunk.prompt_progress for chunk in stream if chunk.prompt_progress is not None]
    steps = [(p.total, p.processed) for p in progress]
    assert steps == [(1328, 1), (1328, 640), (1328, 812), (1328, 1324), (1328, 1328)]
    assert progress[0].cache == 1


def test_llama_thinking_is_reasoning_not_content() -> None:
    stream = chunks("llama-thinking")
    deltas = [chunk.choices[0].delta for chunk in stream if chunk.choices]
    assert deltas[0].content is None
    assert deltas[0].reasoning_content is None
    assert sum(bool(delta.reasoning_content) for delta in deltas) == 14
    assert sum(bool(delta.content) for delta in deltas) == 48
    final = stream[-1]
    assert final.choices == []
    assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (52, 64)
    assert final.usage.prompt_tokens_details.cached_tokens == 0
    assert (final.timings.predicted_n, final.timings.cache_n) == (64, 0)
    assert stream[-2].choices[0].finish_reason == "length"


def test_vllm_reasoning_field_and_count() -> None:
    stream = chunks("vllm-reasoning")
    assert sum(bool(chunk.choices[0].delta.reasoning) for chunk in stream if chunk.choices) > 50
    usage = next(chunk.usage for chunk in stream if chunk.usage)
    assert usage.completion_tokens == 100
    assert usage.completion_tokens_details.reasoning_tokens == 45


def test_vllm_and_sglang_count_on_every_chunk() -> None:
    for name in ("vllm-usage", "sglang-usage"):
        counts = [chunk.usage.completion_tokens for chunk in chunks(name) if chunk.usage is not None]
        assert counts == sorted(counts)
        assert len(counts) > 10


def test_an_error_event_inside_a_stream() -> None:
    found = chunk_error(chunks("llama-pool-full")[-1])
    assert found is not None
    assert found.message == "Context size has been exceeded."
    assert (found.code, found.type) == (500, "server_error")
    assert not found.is_context
    assert all(chunk_error(chunk) is None for chunk in chunks("llama-thinking"))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            b'{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}',
            401,
            "Invalid API Key",
        ),
        (b'{"error":"Unauthorized"}', 401, "Unauthorized"),
        (b'{"detail":"Not Found"}', 404, "Not Found"),
        (b'{"object":"error","message":"too many","type":"BadRequestError","code":400}', 400, "too many"),
        (
            b'{"detail":[{"loc":["body"],"msg":"field required"}]}',
            422,
            '[{"loc":["body"],"msg":"field required"}]',
        ),
        (b'{"error":{"type":"overloaded_error"}}', 529, "overloaded_error"),
        (b"", 502, "status 502 without an explanation"),
        (b"<html><h1>Bad gateway</h1></html>", 502, "status 502 with a web page instead of an explanation"),
        (b"upstream timed out\n", 504, "upstream timed out"),
        (b'{"error":{"message":"bad \\u001b[2J\\nthing"}}', 500, "bad [2J thing"),
        (b'{"error":null}', 500, '{"error":null}'),
        (b"\xff\xfe\x00", 500, "��"),
    ],
)
def test_refusals_of_every_shape(body: bytes, status: int, message: str) -> None:
    assert read_error(body, status).message == message


def test_a_context_that_does_not_fit_is_recognised() -> None:
    llama = read_error(
        b'{"error":{"code":400,"message":"request (6024 tokens) exceeds the available context size '
        b'(2048 tokens), try increasing it","type":"exceed_context_size_error",'
        b'"n_prompt_tokens":6024,"n_ctx":2048}}',
        400,
    )
    assert llama.is_context
    assert (llama.prompt_tokens, llama.context_tokens) == (6024, 2048)
    vllm = read_error(
        b'{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, your prompt '
        b'contains at least 2049 input tokens","type":"BadRequestError","param":"input_tokens","code":400}}',
        400,
    )
    assert vllm.is_context
    assert not read_error(b'{"error":"Unauthorized"}', 401).is_context


def test_a_field_of_another_type_does_not_cost_the_rest() -> None:
    chunk = read_chunk(
        json.dumps(
            {
                "choices": [{"delta": {"content": [{"type": "text", "text": "hi"}]}, "finish_reason": 3}],
                "usage": {"prompt_tokens": "12", "completion_tokens": 4},
                "timings": "soon",
            }
        ).encode()
    )
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "hi"
    assert chunk.choices[0].finish_reason == "3"
    assert chunk.usage is not None
    assert (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) == (12, 4)
    assert chunk.timings is None


@pytest.mark.parametrize(
    "payload",
    [b"", b"hello", b"[1]", b'"x"', b'{"choices":', b"\xff", b"null", b"7", b'{"x":' + b"[" * 50_000],
)
def test_what_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="an event"):
        read_chunk(payload)


def test_tool_calls_are_output() -> None:
    chunk = read_chunk(
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function",'
        b'"function":{"name":"read","arguments":"{\\"path\\""}}]}}]}'
    )
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert tool_text(chunk.choices[0].delta.tool_calls) == 'read{"path"'
    assert tool_text(None) == ""
