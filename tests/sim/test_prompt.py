"""Prompts to tokens and blocks, and the text of replies: sizes agree in both directions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.sim.prompt import BYTES_PER_TOKEN, MESSAGE_TOKENS, Message, PromptReader, count
from agenttop.sim.words import Words

BLOCK = 16
texts = st.text(max_size=300)
conversations = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), texts), max_size=6
)


def common(first, second):
    """Blocks at the beginning that both have."""
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        shared += 1
    return shared


@given(conversations)
def test_tokens_are_those_of_the_messages_and_their_markers(messages):
    prompt = PromptReader().chat(messages)
    assert prompt.tokens == 3 + sum(MESSAGE_TOKENS + count(message.text()) for message in messages)
    assert len(prompt.blocks) == prompt.tokens // BLOCK


@given(conversations, conversations, conversations)
def test_prompts_share_the_blocks_of_their_common_beginning_and_no_others(start, one, other):
    reader = PromptReader()
    first, second = reader.chat([*start, *one]), reader.chat([*start, *other])
    together = reader.chat(start).tokens - 3
    assert common(first.blocks, second.blocks) >= together // BLOCK
    if one and other and one[0] != other[0]:
        longest = together + MESSAGE_TOKENS + max(count(one[0].text()), count(other[0].text()))
        assert common(first.blocks, second.blocks) <= longest // BLOCK


@given(conversations)
def test_what_was_remembered_is_what_would_be_read(messages):
    reader = PromptReader()
    again = [reader.chat(messages) for _ in range(2)]
    assert again[0] == again[1] == PromptReader().chat(messages)


@given(texts, st.integers(1, 200), texts)
def test_a_reply_sent_back_is_the_same_tokens_in_the_same_blocks(question, length, following):
    words, reader = Words(7), PromptReader()
    asked = [Message("user", question)]
    prompt = reader.chat(asked)
    reply = words.text(words.start(prompt.mark), length)
    assert count(reply.decode("ascii")) == length
    answered = [*asked, Message("assistant", reply.decode("ascii")), Message("user", following)]
    known, later = reader.with_reply(prompt, reply), reader.chat(answered)
    assert len(known) == (prompt.tokens + length) // BLOCK
    assert common(known, later.blocks) == len(known)


@pytest.mark.parametrize("block", [1, 7, 16, 32])
def test_blocks_of_any_size(block):
    prompt = PromptReader(block).chat([Message("user", "x" * 1000)])
    assert len(prompt.blocks) == prompt.tokens // block
    assert len(set(prompt.blocks)) == len(prompt.blocks)


def test_equal_blocks_after_different_beginnings_are_different():
    reader = PromptReader()
    first, second = (
        reader.chat([Message("system", name * 64), Message("user", "same " * 100)]) for name in "ab"
    )
    assert common(first.blocks, second.blocks) == 0
    assert not set(first.blocks) & set(second.blocks)


def test_a_turn_costs_what_is_new_in_it():
    reader = PromptReader()
    context = [Message("user", "def f(x): return x\n" * 20_000)]  # 95,000 tokens
    begun = time.perf_counter()
    reader.chat(context)
    first = time.perf_counter() - begun
    shortest = first
    for turn in range(5):
        context.append(Message("user", f"turn {turn}"))
        begun = time.perf_counter()
        reader.chat(context)
        shortest = min(shortest, time.perf_counter() - begun)
    assert shortest < first / 5


def test_the_memory_of_messages_has_a_limit(monkeypatch):
    monkeypatch.setattr("agenttop.sim.prompt._KEPT_BLOCKS", 100)
    reader = PromptReader()
    for number in range(50):
        reader.chat([Message("user", f"{number} " * 400)])
    assert reader._kept <= 100 or len(reader._seen) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}], "two parts"),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}], None),
        ({"odd": 1}, '{"odd":1}'),
    ],
)
def test_content_in_every_form(content, text):
    raw = msgspec.json.encode({"role": "user", "content": content})
    message = msgspec.json.decode(raw, type=Message)
    assert message.text() == (json.dumps(content, separators=(",", ":")) if text is None else text)


def test_tool_schemas_and_calls_have_their_weight():
    reader = PromptReader()
    messages = [Message("user", "x")]
    plain, with_tools = reader.chat(messages), reader.chat(messages, b'[{"type":"function"}]' * 10)
    assert with_tools.tokens == plain.tokens + MESSAGE_TOKENS + count('[{"type":"function"}]' * 10)
    call = msgspec.json.decode(b'{"role":"assistant","tool_calls":[{"id":"1"}]}', type=Message)
    assert call.text() == '[{"id":"1"}]'


def test_blocks_and_text_do_not_depend_on_the_hash_seed_of_python():
    program = (
        "from agenttop.sim.prompt import *; from agenttop.sim.words import Words;"
        "p = PromptReader().chat([Message('user', 'hello ' * 100)]);"
        "w = Words(1); print(list(p.blocks), w.text(w.start(p.mark), 20))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_tokens_escaped_for_json_are_the_text():
    words = Words(3)
    whole = b'"' + b"".join(words.escaped(position) for position in range(9000)) + b'"'
    assert msgspec.json.decode(whole).encode() == words.text(0, 9000)
    assert len(words.text(5, 9000)) == 9000 * BYTES_PER_TOKEN
