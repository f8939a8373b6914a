"""The plan before anything runs: the same for the same seed, whatever the engine does, and drawn."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from agenttop import paths
from agenttop.agents.plan import AgentPlan
from agenttop.agents.profile import load
from agenttop.agents.starts import cycle_s, start_gap_s
from agenttop.agents.timeline import Speeds, planned
from agenttop.cli import main
from tests.agents import scripted as s
from tests.agents.driving import driver
from tests.agents.profiles import profile

PAUSES = ("tool", "human")
BUNDLED = sorted(file.stem for file in paths.bundled_profiles().glob("*.toml"))


@pytest.mark.parametrize("name", BUNDLED)
def test_the_same_seed_gives_the_same_plan(name: str) -> None:
    first, again = (planned(load(name), 5, 3, 1200) for _ in range(2))
    assert first == again
    assert planned(load(name), 6, 3, 1200) != first
    assert planned(load(name), 5, 2, 1200) == first[:2] or load(name).start.kind == "spread"


@pytest.mark.parametrize("name", BUNDLED)
def test_spans_follow_each_other_and_stay_below_the_limit(name: str) -> None:
    limit = load(name).context.limit
    for agent in planned(load(name), 1, 3, 3600):
        assert agent.spans[0].from_s == agent.start_s
        assert all(one.to_s == pytest.approx(other.from_s) for one, other in pairwise(agent.spans))
        assert max(span.context_tokens for span in agent.spans) <= limit


def test_the_plan_does_not_depend_on_the_speed_of_the_engine() -> None:
    slow, fast = (
        planned(load("human"), 2, 4, 4000, Speeds(prefill=rate * 40, decode=rate)) for rate in (10, 100)
    )
    for one, other in zip(slow, fast, strict=True):
        assert one.start_s == other.start_s
        pauses = [
            [(span.kind, round(span.to_s - span.from_s, 6)) for span in agent.spans if span.kind in PAUSES]
            for agent in (one, other)
        ]
        count = min(map(len, pauses)) - 1
        assert count > 5
        assert pauses[0][:count] == pauses[1][:count]


async def sent(delay_s: float) -> list[tuple[int | None, int | None, str]]:
    """What one agent asks of an engine that takes so long: planned sizes, output limits, kinds."""

    async def script(request: s.Request, wire: s.Wire) -> None:
        if not request.line.startswith("POST /v1/"):
            await wire.send(s.plain(404, b"{}"))
            return
        await asyncio.sleep(delay_s)
        prompt = sum(len(message["content"]) for message in request.json["messages"]) // 3
        output = request.json["max_tokens"]
        counts = s.usage(prompt, output)
        await wire.send(s.HEAD, s.token("abc" * output), s.finish("length"), counts, s.DONE, s.END)

    varied = profile(
        limit=6000,
        first='{ kind = "uniform", min = 50, max = 400 }',
        input='{ kind = "log-normal", mu = 5, sigma = 1, max = 900 }',
        output='{ kind = "geometric", mean = 40, max = 90 }',
    )
    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, varied, 100_000, slots_like="openai", seed=11)
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns()) >= 25)
        return [
            (turn.planned_prompt_tokens, turn.output_limit_tokens, turn.turn_kind) for turn in d.turns()[:25]
        ]


async def test_what_is_sent_is_the_plan_on_a_fast_and_on_a_slow_engine() -> None:
    assert await sent(0.0) == await sent(0.02)


def test_a_fill_rate_is_a_factor_on_all_inputs_of_an_agent() -> None:
    one = profile(sets={"turn.fill_rate": '{kind="uniform",min=0.5,max=2}'})
    rates = [AgentPlan(one, 0, number).fill_rate for number in range(1, 30)]
    assert len(set(rates)) == 29
    assert 0.5 <= min(rates) < 0.8 < 1.5 < max(rates) <= 2
    plan = AgentPlan(one, 0, 1)
    steps = [plan.next() for _ in range(5)]
    assert {step.input for step in steps[1:]} == {round(60 * rates[0])}
    assert steps[0].input == 100  # the first message is not an input of a turn


def test_steady_contexts_lie_anywhere_between_a_compaction_and_the_limit() -> None:
    steady = load("steady")
    sizes = sorted(AgentPlan(steady, 3, number).primed_tokens or 0 for number in range(1, 400))
    assert steady.compacted <= sizes[0] < steady.compacted * 1.1
    assert 0.95 * steady.context.limit < sizes[-1] <= steady.context.limit
    middle = (steady.compacted + steady.context.limit) / 2
    assert sizes[200] == pytest.approx(middle, rel=0.1)
    assert AgentPlan(load("human"), 3, 1).primed_tokens is None


def test_spread_starts_divide_one_cycle() -> None:
    spread = load("human", {"start.kind": "spread"})
    gap = start_gap_s(spread, 0, 2, 8)
    assert gap == pytest.approx(cycle_s(spread) / 8)
    assert gap == start_gap_s(spread, 9, 5, 8)
    assert start_gap_s(load("human", {"start.kind": "spread", "start.cycle_s": "80"}), 0, 2, 8) == 10
    # what a cycle is meant to last: turns until the context is full, each with its pause
    plain = profile(limit=1500, to_fraction=0.3, input=60, output=40, pause=9, summary=50)
    assert cycle_s(plain) == pytest.approx((1500 - 450) / 100 * (9 + 0.03 + 0.8) + 1 + 0.225, rel=0.01)


def test_sub_agents_are_sent_out_by_count_or_by_chance() -> None:
    by_count = load("swarm", {"children.every": "3"})
    plan = AgentPlan(by_count, 0, 1)
    steps = [plan.next() for _ in range(30)]
    assert [step.number for step in steps if step.children] == list(range(3, 31, 3))
    assert all(
        len(step.children) == 4 and set(step.children) <= {3, 4, 5, 6} for step in steps if step.children
    )
    after = [step for step, before in zip(steps[1:], steps, strict=False) if before.children]
    assert {step.pause_s for step in after} == {0.0}
    chance = profile(
        sets={"children.chance": "0.3", "children.count": "1", "children.turns": "1", "children.first": "9"}
    )
    plan = AgentPlan(chance, 0, 1)
    assert 60 < sum(bool(plan.next().children) for _ in range(300)) < 120


def test_a_timeline_is_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["profile", "show", "steady", "--agents", "3", "--for", "30m", "--seed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("steady: the plan of 3 agents for 30 m (seed 4)")
    assert "prefill 2000 tok/s, decode 50 tok/s" in " ".join(" ".join(lines[:2]).split())
    bars = [index for index, line in enumerate(lines) if line.startswith(("a1", "a2", "a3"))]
    assert len(bars) == 3
    assert all(max(map(len, lines[1:8])) <= 90 for _ in bars)
    for index in bars:
        assert "█" in lines[index]
        assert "C" in lines[index + 1]
        assert lines[index + 1].strip().startswith("P")


def test_a_timeline_as_json_holds_every_span(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "show", "human", "--agents", "2", "--for", "10m", "--decode-rate", "100", "--json"]
    assert main([*words, "--set", "context.limit=40k"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["assumed"] == {"prefill": 2000.0, "decode": 100.0}
    assert [agent["agent"] for agent in value["agents"]] == ["a1", "a2"]
    assert all(agent["turns"] > 3 for agent in value["agents"])
    kinds = {span["kind"] for agent in value["agents"] for span in agent["spans"]}
    assert {"prefill", "decode", "tool"} <= kinds


@pytest.mark.parametrize(
    "words",
    [
        ["--agents", "0"],
        ["--agents", "100000"],
        ["--agents", "2", "--for", "0"],
        ["--agents", "2", "--decode-rate", "nan"],
        ["--agents", "2", "--prefill-rate", "0"],
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "human", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
