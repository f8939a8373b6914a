"""Probes along real conversations: servers that answer right, from elsewhere, half, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agenttop.agents.probe import Probes
from agenttop.agents.settings import Profile
from agenttop.model.frames import Turn
from tests.agents import scripted as s
from tests.agents.driving import DriverProcess, driver
from tests.agents.profiles import profile
from tests.agents.readers import Answer, asked_for, decoys, facts, reader, said


def probing(every: int = 2, decoys: int = 4, **sizes: Any) -> Profile:
    """Asks in every second turn of a conversation that begins with a document."""
    plain = profile(**({"limit": 6000, "first": 1600, "input": 40, "output": 12, "to_fraction": 0.1} | sizes))
    probes = Probes(depths=(0.2, 0.8), decoys=decoys, every=every, output=16)
    return msgspec.structs.replace(plain, probe=probes)


async def verdicts(
    answer: Answer, count: int = 4, agents: int = 1, cut: bool = False, **sizes: Any
) -> tuple[list[Turn], s.Server]:
    """The first `count` turns with a verdict."""
    async with s.serve(reader(answer, cut)) as server:
        with driver() as d:
            d.configure(server.url, probing(**sizes), 8192, slots_like="openai")
            d.launch(agents)

            def judged() -> list[Turn] | None:
                found = [turn for turn in d.turns() if turn.probe is not None]
                return found[:count] if len(found) >= count else None

            return await asyncio.to_thread(d.until, judged, "verdicts"), server


def telling(pick: Callable[[dict[str, Any], str], tuple[str, str]]) -> Answer:
    """Answers questions only."""

    def answer(body: dict[str, Any]) -> tuple[str, str] | None:
        place = asked_for(body)
        return None if place is None else pick(body, place)

    return answer


async def test_right_answers_and_where_the_facts_stand() -> None:
    turns, server = await verdicts(telling(lambda body, place: (f"It is {facts(body)[place]}.", "stop")))
    assert {turn.probe for turn in turns} == {"right"}
    assert sorted(turn.probe_detail for turn in turns[:2]) == ["depth 20%", "depth 80%"]
    assert [turn.turn for turn in turns] == [2, 4, 6, 8]
    assert {turn.output_limit_tokens for turn in turns} == {16}
    chats = [request for request in server.requests if request.line.startswith("POST /v1/")]
    document = chats[0].json["messages"][1]["content"]
    places = [document.index(code) / len(document) for code in facts(chats[0].json).values()]
    assert places == [pytest.approx(0.2, abs=0.05), pytest.approx(0.8, abs=0.05)]
    assert len(decoys(chats[0].json)) == 4
    assert len(facts(chats[7].json)) == 2  # planted once


async def test_planted_lines_do_not_make_the_document_longer() -> None:
    turns, server = await verdicts(telling(lambda body, place: ("", "stop")), count=1)
    first = next(request for request in server.requests if request.line.startswith("POST /v1/"))
    bare = len("".join(line for line in said(first.json).splitlines() if "station" not in line))
    assert bare < len(said(first.json))
    assert turns[0].planned_prompt_tokens is not None
    assert turns[0].prompt_tokens == pytest.approx(turns[0].planned_prompt_tokens, rel=0.05)


async def test_a_decoy_or_another_depth_is_the_wrong_region() -> None:
    def other(body: dict[str, Any], place: str) -> tuple[str, str]:
        codes = [code for name, code in facts(body).items() if name != place]
        return (codes[0] if len(body["messages"]) % 8 else decoys(body)[-1]), "stop"

    turns, _ = await verdicts(telling(other))
    assert {turn.probe for turn in turns} == {"wrong-region"}
    details = {str(turn.probe_detail).partition(": ")[2] for turn in turns}
    assert any(detail.startswith("decoy ") for detail in details)
    assert details & {"the fact of depth 20%", "the fact of depth 80%"}


async def test_a_number_of_another_agent_is_a_leak() -> None:
    seen: dict[str, str] = {}

    def leaking(body: dict[str, Any]) -> tuple[str, str] | None:
        task = body["messages"][0]["content"].splitlines()[0]
        seen[task] = next(iter(facts(body).values()))
        others = [code for name, code in seen.items() if name != task]
        return (others[0], "stop") if asked_for(body) and others else None

    turns, _ = await verdicts(leaking, count=6, agents=2)
    leaks = [turn for turn in turns if turn.probe == "leaked"]
    assert len(leaks) >= 4
    for turn in leaks:
        other = {"a1": "agent 2's", "a2": "agent 1's"}[turn.agent]
        assert turn.probe_detail.endswith(f"the number is {other}")


async def test_an_answer_that_ran_out_of_tokens_is_truncated() -> None:
    turns, _ = await verdicts(telling(lambda body, place: (f"It is {facts(body)[place][:5]}", "length")))
    assert {turn.probe for turn in turns} == {"truncated"}


async def test_an_answer_that_was_cut_off_is_truncated_and_asked_again() -> None:
    turns, _ = await verdicts(
        telling(lambda body, place: (f"It is {facts(body)[place][:3]}", "")), count=2, cut=True
    )
    assert [turn.probe for turn in turns] == ["truncated", "truncated"]
    assert {turn.error_kind for turn in turns} == {"cut"}
    assert turns[0].probe_detail.endswith(": cut")


async def test_empty_and_evasive_answers_are_none() -> None:
    for text in ("", "I cannot find it."):
        turns, _ = await verdicts(telling(lambda body, place, text=text: (text, "stop")), count=2)
        assert {turn.probe for turn in turns} == {"no-answer"}


async def test_after_a_compaction_another_document_is_planted() -> None:
    documents: list[list[str]] = []

    def watching(body: dict[str, Any], place: str) -> tuple[str, str]:
        codes = list(facts(body).values())
        if codes not in documents:
            documents.append(codes)
        return facts(body)[place], "stop"

    turns, server = await verdicts(
        telling(watching), count=8, limit=3000, input=700, first=1200, to_fraction=0.15, every=1
    )
    assert {turn.probe for turn in turns} == {"right"}
    assert len(documents) >= 2
    summaries = [
        request
        for request in server.requests
        if request.line.startswith("POST /v1/") and "Summarise" in request.json["messages"][-1]["content"]
    ]
    assert summaries


async def test_failures_have_no_verdict() -> None:
    state = {"failed": False}
    inner = reader(telling(lambda body, place: (facts(body)[place], "stop")))

    async def script(request: s.Request, wire: s.Wire) -> None:
        chat = request.line.startswith("POST /v1/")
        if chat and asked_for(request.json) and not state["failed"]:
            state["failed"] = True
            await wire.send(s.plain(500, b'{"error": "no"}'))
            return
        await inner(request, wire)

    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, probing(), 8192, slots_like="openai")
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: [t for t in d.turns() if t.probe], "a verdict")
    failed, again = _around(d)
    assert failed.probe is None
    assert (again.probe, again.error_kind) == ("right", None)


def _around(d: DriverProcess) -> tuple[Turn, Turn]:
    """The failure and the turn after it."""
    turns = d.turns()
    at = next(number for number, turn in enumerate(turns) if turn.error_kind is not None)
    return turns[at], turns[at + 1]


async def test_an_engine_too_small_for_a_document_is_an_event() -> None:
    async with s.serve(reader(lambda body: None)) as server:
        with driver() as d:
            d.configure(server.url, probing(), 1024, slots_like="openai")
            d.launch(3)
            await asyncio.to_thread(d.until, lambda: len(d.turns()) >= 12, "turns")
    assert not [turn for turn in d.turns() if turn.probe]
    [event] = d.events("agents.probes-wait")
    assert event.text.startswith("probes wait for a longer input: ")


@pytest.mark.engine
def test_a_real_server_with_random_weights_answers_nothing(start_llama: Any) -> None:
    server = start_llama(context=4096, slots=2)
    with driver() as d:
        d.configure(server.url, probing(limit=1900, first=1100, every=1, decoys=1), 2048)
        d.launch(2)
        asked = d.until(lambda: found if len(found := [t for t in d.turns() if t.probe]) >= 6 else None)
    assert {turn.probe for turn in asked} == {"no-answer"}
