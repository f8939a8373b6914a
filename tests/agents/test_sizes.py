"""Sizes that the plan wants and sizes that engines count: within three per cent after three turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from agenttop.agents.settings import Profile
from agenttop.demo import gguf
from agenttop.model.frames import Turn
from tests.agents.driving import DriverProcess, driver
from tests.agents.profiles import profile
from tests.servers import LlamaServer

TOOL_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
Call one with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}{% if message.role in ('user', 'assistant') %}<|im_start|>{{ message.role }}
{{ message.content }}{% if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}{% endif %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""As chat templates with tools are written; the demo model's own template has none."""


@pytest.fixture
def llama_with_tools(
    start_llama: Callable[..., LlamaServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> LlamaServer:
    monkeypatch.setattr(gguf, "_CHAT_TEMPLATE", TOOL_TEMPLATE)
    file = tmp_path / "tools.gguf"
    gguf.write_tiny_gguf(file, gguf.TINY)
    return start_llama(model_path=file, slots=1, context=4096)


def agreed(d: DriverProcess, turns: int, after: int = 3) -> list[Turn]:
    """Wait for so many turns; those after the first few must be of the size that was planned."""
    d.until(lambda: len(d.turns(error_kind=None)) >= turns, f"{turns} turns", 60)
    done = [turn for turn in d.turns(error_kind=None) if turn.turn_kind in ("turn", "sub")]
    for turn in done[after:]:
        assert turn.prompt_tokens == pytest.approx(turn.planned_prompt_tokens, rel=0.03), turn
        assert turn.prompt_tokens == pytest.approx(turn.expected_prompt_tokens, rel=0.03), turn
    return done


def growth(turns: list[Turn]) -> list[tuple[int, int]]:
    """What each turn added: planned, and as the engine counted."""
    found = []
    for before, turn in pairwise(turns):
        if turn.compacted_from_tokens is None:
            held = before.prompt_tokens + before.output_tokens
            found.append((turn.planned_prompt_tokens - held, turn.prompt_tokens - held))
    return found


def small(**changes: Any) -> Profile:
    sizes = {"limit": 2400, "system": 200, "first": 300, "input": 150, "output": 20, "to_fraction": 0.5}
    return profile(**(sizes | changes))


@pytest.mark.engine
def test_llama_with_one_token_a_byte(llama_server: LlamaServer) -> None:
    with driver() as d:
        d.configure(llama_server.url, small(limit=1500), 2048)
        d.launch(1)
        turns = agreed(d, 12)
    added = growth(turns)[3:]
    # Of some 150 tokens; what the model made up is tokenised anew, and differs by a few.
    assert statistics.median(abs(real - wanted) / wanted for wanted, real in added) < 0.08
    compacted = next(turn for turn in turns if turn.compacted_from_tokens)
    assert compacted.compacted_from_tokens > 1300
    assert compacted.prompt_tokens < 1100
    assert compacted.cached_tokens < 350  # what a compaction costs: the rest is read anew


@pytest.mark.engine
def test_llama_with_tools_that_its_template_takes(llama_with_tools: LlamaServer) -> None:
    wanted = small(sets={"context.tools": "900", "turn.results": "tool"})
    with driver() as d:
        d.configure(llama_with_tools.url, wanted, 4096)
        d.launch(1)
        turns = agreed(d, 9, after=2)
        assert d.events("agents.no-tools") == []
    # 200 of system prompt, 900 of tools, 300 of text: they weigh what the profile says from the first turn on
    assert turns[0].planned_prompt_tokens == 1400
    assert turns[0].prompt_tokens == pytest.approx(1400, rel=0.08)  # the template's own words come on top
    assert statistics.median(turn.cached_tokens / turn.prompt_tokens for turn in turns[1:5]) > 0.7


@pytest.mark.engine
def test_llama_whose_template_drops_tools_gets_them_as_text(llama_server: LlamaServer) -> None:
    wanted = small(limit=1700, system=100, first=150, sets={"context.tools": "700", "turn.results": "tool"})
    with driver() as d:
        d.configure(llama_server.url, wanted, 2048)
        d.launch(1)
        turns = agreed(d, 6)
        told = d.events("agents.no-tools")
    assert [event.text for event in told] == [
        "tool schemas go into the system prompt as text: the engine's chat template leaves them out"
    ]
    assert turns[0].prompt_tokens == pytest.approx(950, rel=0.08)


@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
def test_the_simulated_wires(start_sim_here: Callable[..., Any], wire: str) -> None:
    engine = start_sim_here(wire=wire, speedup=200)
    sets = {"context.tools": "2000", "turn.results": "tool", "turn.fill_rate": "0.8"}
    wanted = profile(
        limit=12_000, system=800, first=3000, input=900, output=200, to_fraction=0.5, summary=300, sets=sets
    )
    with driver() as d:
        d.configure(
            engine.url,
            wanted,
            16_384,
            model=engine.model if wire == "vllm" else None,
            slots_like="vLLM" if wire == "vllm" else wire,
            clock_rate=200.0,
        )
        d.launch(2)
        turns = agreed(d, 24)
    assert {turn.agent for turn in turns} == {"a1", "a2"}
    assert any(turn.compacted_from_tokens for turn in turns)
