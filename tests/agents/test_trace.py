"""Replays: the same sizes and pauses as recorded, whatever the engine answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agenttop.agents.check import parse
from agenttop.agents.imports.fit import Observed
from agenttop.agents.imports.profile import make
from agenttop.agents.profile import read, scale
from agenttop.agents.scale import hasten
from agenttop.agents.settings import Profile
from agenttop.agents.trace import TracePlan, plan_for
from agenttop.agents.tracefile import TraceFile, TraceHead, TraceSession, TraceTurn
from agenttop.errors import UsageError
from tests.agents import scripted as s
from tests.agents.driving import driver
from tests.agents.readers import reader, said


def turn(prompt: int, output: int, pause: float | None = 0.0, kind: str = "tool", **more: Any) -> TraceTurn:
    return TraceTurn(prompt=prompt, output=output, pause_s=pause, kind=kind, **more)


def recorded(folder: Path, *sessions: list[TraceTurn], children: int = 0) -> Path:
    """A profile and its trace."""
    made = [TraceSession(session=f"s{n}", turns=turns) for n, turns in enumerate(sessions, start=1)]
    made += [
        TraceSession(session=f"s1-{n}", turns=[turn(90 + n, 5, None, "human")], parent="s1")
        for n in range(children)
    ]
    head = TraceHead(agenttop_trace=1, format=["weka"], sessions=len(sessions), turns=9)
    path = folder / "mine.trace.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (head, *made)))
    observed = Observed()
    for session in made:
        observed.add(session)
    profile = folder / "mine.toml"
    profile.write_text(make(observed, "recorded", path.name).text)
    return profile


SHORT = [
    turn(600, 20, None, "human"),
    turn(700, 12),
    turn(760, 30, 0.02, "human"),
    turn(900, 10, 0.0),
]


def steps(profile: Profile, number: int, count: int) -> list[tuple[int, int, float, str, bool]]:
    plan = plan_for(profile, 1, number)
    made = [plan.next() for _ in range(count)]
    return [(step.prompt or 0, step.output, step.pause_s, step.pause_kind, step.fresh) for step in made]


def test_a_plan_follows_the_recording_and_begins_again(tmp_path: Path) -> None:
    profile = read(recorded(tmp_path, SHORT, [turn(500, 7, None, "human"), turn(600, 8, 9.0)]))
    assert steps(profile, 1, 6) == [
        (600, 20, 0.0, "human", False),
        (700, 12, 0.0, "tool", False),
        (760, 30, 0.02, "human", False),
        (900, 10, 0.0, "tool", False),
        (600, 20, 0.02, "human", True),
        (700, 12, 0.0, "tool", False),
    ]
    assert steps(profile, 2, 3) == [
        (500, 7, 0.0, "human", False),
        (600, 8, 9.0, "tool", False),
        (500, 7, 9.0, "human", True),
    ]
    assert steps(profile, 3, 9) == steps(profile, 1, 9)  # there are two sessions


def test_pauses_that_the_source_does_not_tell_are_drawn(tmp_path: Path) -> None:
    profile = read(recorded(tmp_path, [turn(500, 7, None, "human"), turn(600, 8, None)]))
    assert [pause for _, _, pause, _, _ in steps(profile, 1, 4)][1] > 0
    assert steps(profile, 1, 4) == steps(profile, 1, 4)


def test_sub_agents_are_replayed_only_when_asked_for(tmp_path: Path) -> None:
    path = recorded(tmp_path, SHORT, children=2)
    assert steps(read(path), 2, 1)[0][0] == 600
    both = read(path, {"trace.subagents": "true"})
    assert [steps(both, number, 1)[0][0] for number in (1, 2, 3, 4)] == [600, 90, 91, 600]


def test_fitting_and_hastening_reach_the_trace(tmp_path: Path) -> None:
    big = [turn(50_000, 900, None, "human"), turn(60_000, 600, 8.0)]
    scaled = hasten(scale(read(recorded(tmp_path, big)), 8192), 4.0)
    first, second = steps(scaled.profile, 1, 2)
    assert second[0] < 8192
    assert second[0] / first[0] == pytest.approx(1.2, rel=0.01)
    assert second[2] == 2.0
    assert Profile.from_settings(scaled.profile.settings()) == scaled.profile


def test_a_profile_knows_where_its_trace_lies(tmp_path: Path) -> None:
    path = recorded(tmp_path, SHORT)
    profile = read(path)
    assert profile.trace is not None
    assert profile.trace.file == str(tmp_path / "mine.trace.jsonl")
    (tmp_path / "mine.trace.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="not a trace of agenttop"):
        read(path)
    (tmp_path / "mine.trace.jsonl").unlink()
    with pytest.raises(UsageError, match=r"mine\.trace\.jsonl: cannot be read: no such file"):
        read(path)


def test_damaged_traces_are_refused_with_a_sentence(tmp_path: Path) -> None:
    path = recorded(tmp_path, SHORT).with_name("mine.trace.jsonl")
    head, line = path.read_text().splitlines()
    for damaged, why in (
        (head, "without sessions"),
        (f"{head}\n{line[:-9]}", "a damaged session"),
        (f"{head}\n{line.replace('600', '-6')}", "beyond reason"),
        (f"{head}\n{line.replace('0.02', '1e9')}", "beyond reason"),
        (f'{head}\n{{"session":"s1","turns":[]}}', "has no turns"),
        (head.replace(":1,", ":99,", 1) + "\n" + line, "newer agenttop"),
    ):
        path.write_text(damaged + "\n")
        with pytest.raises(UsageError, match=why):
            TraceFile(path)


def test_what_does_not_go_with_a_replay_is_said(tmp_path: Path) -> None:
    text = recorded(tmp_path, SHORT).read_text()
    steady = text.replace('"poisson"', '"steady"').replace("stagger_s = 15\n", "")
    _, problems = parse(steady, "mine")
    assert [problem.key for problem in problems] == ["start.kind"]


async def replay(folder: Path, sessions: list[list[TraceTurn]], count: int, answer_share: float = 1.0) -> Any:
    """`count` turns against a server that counts four characters a token."""

    def answer(body: dict[str, Any]) -> tuple[str, str] | None:
        if answer_share == 1.0:
            return None
        return "word " * max(1, int(body["max_tokens"] * answer_share)), "stop"

    profile = read(recorded(folder, *sessions))
    async with s.serve(reader(answer)) as server:
        with driver() as d:
            d.configure(server.url, profile, 262_144, slots_like="openai")
            d.launch(1)
            turns = await asyncio.to_thread(
                d.until, lambda: found if len(found := d.turns()) >= count else None, "turns"
            )
    return turns[:count], server


async def test_prompts_have_the_recorded_sizes(tmp_path: Path) -> None:
    turns, server = await replay(tmp_path, [SHORT], 8)
    wanted = [600, 700, 760, 900] * 2
    assert [turn.output_limit_tokens for turn in turns] == [20, 12, 30, 10] * 2
    for found, size in list(zip(turns, wanted, strict=True))[2:]:
        assert found.planned_prompt_tokens == pytest.approx(size, abs=2)
        assert found.prompt_tokens == pytest.approx(size, rel=0.05)
    first, again = (said(server.requests[n].json) for n in (1, 5))
    assert first[:200] == again[:200]  # the system prompt stays
    assert first[-400:] != again[-400:]  # the conversation is another


async def test_a_model_that_answers_shorter_does_not_make_the_prompts_drift(tmp_path: Path) -> None:
    long = [turn(600, 200, None, "human")] + [turn(600 + 300 * n, 200) for n in range(1, 9)]
    turns, _ = await replay(tmp_path, [long], 9, answer_share=0.2)
    assert turns[8].prompt_tokens == pytest.approx(3000, rel=0.03)


async def test_a_recorded_compaction_is_one(tmp_path: Path) -> None:
    session = [
        turn(61_000, 20, None, "human"),
        turn(62_000, 20),
        turn(9_000, 20, 0.0, "compact"),
        turn(9_500, 20),
    ]
    turns, _ = await replay(tmp_path, [session], 5)
    assert [found.turn_kind for found in turns] == ["turn", "turn", "compact", "turn", "turn"]
    assert turns[3].prompt_tokens == pytest.approx(9_000, rel=0.06)
    assert turns[4].prompt_tokens == pytest.approx(9_500, rel=0.06)
    assert turns[3].compacted_from_tokens is not None


async def test_words_that_were_kept_are_said_again(tmp_path: Path) -> None:
    session = [turn(200, 5, None, "human", text="please look"), turn(260, 5, text="the result")]
    _, server = await replay(tmp_path, [session], 2)
    chats = [request.json for request in server.requests if request.line.startswith("POST /v1/")]
    assert chats[0]["messages"][-1]["content"] == "please look"
    assert chats[1]["messages"][-1]["content"] == "the result"


def test_the_plan_of_an_agent_is_that_of_its_number(tmp_path: Path) -> None:
    profile = read(recorded(tmp_path, SHORT, [turn(500, 7, None, "human")]))
    assert isinstance(plan_for(profile, 1, 2), TracePlan)
    assert plan_for(profile, 1, "2.1").next().prompt == 500
