"""How agents talk: tools and their results, new conversations, sub-agents, contexts filled beforehand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agenttop.model.commands import HaltAgent, PauseAll
from agenttop.model.frames import Turn
from tests.agents import scripted as s
from tests.agents.driving import DriverProcess, driver
from tests.agents.profiles import profile

PER_TOKEN = 4


def tokens_of(body: dict[str, Any], tools: bool = True) -> int:
    """What a prompt weighs here: four characters a token, eight tokens a message."""
    size = len(json.dumps(body["tools"])) if tools and "tools" in body else 0
    for message in body["messages"]:
        size += len(message["content"]) + len(json.dumps(message.get("tool_calls") or "")) + 8 * PER_TOKEN
    return size // PER_TOKEN


def answering(
    *, tools: bool = True, piece: bytes | None = None, hold: asyncio.Event | None = None
) -> s.Script:
    """Counts as above, and sends what was asked for; `hold`: not before it is set."""

    async def script(request: s.Request, wire: s.Wire) -> None:
        if not request.line.startswith("POST /v1/"):
            await wire.send(s.plain(404, b"{}"))
            return
        await wire.send(s.HEAD, s.role())
        if hold is not None:
            await hold.wait()
        output = request.json["max_tokens"]
        counts = s.usage(tokens_of(request.json, tools), output)
        said = piece if piece is not None else s.token("word" * output)
        await wire.send(said, s.finish("length"), counts, s.DONE, s.END)

    return script


def refusing(word: str, message: str, script: s.Script) -> s.Script:
    """Refuses every request whose body holds a word."""

    async def wrapped(request: s.Request, wire: s.Wire) -> None:
        if word.encode() in request.body and request.line.startswith("POST /v1/"):
            await wire.send(s.plain(400, json.dumps({"error": {"message": message}}).encode()))
        else:
            await script(request, wire)

    return wrapped


def chats(server: s.Server) -> list[dict[str, Any]]:
    return [request.json for request in server.requests if request.line.startswith("POST /v1/")]


async def talked(script: s.Script, turns: int, **changes: Any) -> tuple[list[dict[str, Any]], DriverProcess]:
    """The bodies that one agent sent, until it had so many turns."""
    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, profile(**changes), 100_000, slots_like="openai")
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns(error_kind=None)) >= turns)
        return chats(server), d


TOOLS = {"context.tools": "400", "turn.results": "tool"}


# Tools


async def test_tools_are_sent_and_results_answer_a_call() -> None:
    bodies, d = await talked(answering(), 3, sets=TOOLS)
    assert d.events("agents.no-tools") == []
    third = bodies[2]
    assert third["tool_choice"] == "none"
    names = [tool["function"]["name"] for tool in third["tools"]]
    assert len(set(names)) == len(names)
    assert all(set(tool["function"]) == {"name", "description", "parameters"} for tool in third["tools"])
    assert [message["role"] for message in third["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "tool"
    ]  # fmt: skip
    called = third["messages"][2]["tool_calls"]
    assert called[0]["function"]["name"] in names
    assert json.loads(called[0]["function"]["arguments"])["path"].startswith("src/")
    assert third["messages"][3]["tool_call_id"] == called[0]["id"]
    assert third["messages"][2]["content"] == "word" * 40  # as received
    assert bodies[1]["messages"] == third["messages"][:4]  # nothing that was sent is changed afterwards
    assert bodies[1]["tools"] == third["tools"]


async def test_people_speak_as_users_though_results_do_not() -> None:
    sets = TOOLS | {"pacing.human_pause_s": "0", "pacing.tool_turns": "1"}
    bodies, _ = await talked(answering(), 5, sets=sets)
    roles = [message["role"] for message in bodies[4]["messages"] if message["role"] != "assistant"]
    assert roles == ["system", "user", "tool", "user", "tool", "user"]


@pytest.mark.parametrize(
    "message", ['"auto" tool choice requires --enable-auto-tool-choice', "tools param requires --jinja flag"]
)
async def test_an_engine_that_refuses_tools_gets_them_as_text(message: str) -> None:
    bodies, d = await talked(refusing('"tools":', message, answering()), 2, sets=TOOLS)
    assert "tools" in bodies[0]
    assert all("tools" not in body for body in bodies[1:])
    assert "# Tools\n[{" in bodies[1]["messages"][0]["content"]
    assert [m["role"] for m in bodies[2]["messages"]] == ["system", "user", "assistant", "user"]
    told = d.events("agents.no-tools")
    assert len(told) == 1
    assert message[:20] in told[0].text
    first, second = d.turns()[:2]
    assert (first.error_kind, second.error_kind) == ("http-4xx", None)
    assert second.t_sent - first.t < 0.4  # at once: that was no trouble of the engine


async def test_an_engine_that_drops_tools_in_silence_is_found_out_by_its_counts() -> None:
    sizes = {"limit": 9000, "first": 500, "input": 300}
    bodies, d = await talked(answering(tools=False), 7, sets={"context.tools": "3000"}, **sizes)
    assert [event.text for event in d.events("agents.no-tools")] == [
        "tool schemas go into the system prompt as text: "
        "by its counts the engine leaves them out of the prompt"
    ]
    assert "tools" in bodies[0]
    assert "tools" not in bodies[-1]
    turn = d.turns(error_kind=None)[6]
    assert turn.prompt_tokens == pytest.approx(turn.expected_prompt_tokens, rel=0.03)


async def test_a_template_without_the_role_gets_results_from_a_user() -> None:
    why = "After the optional system message, conversation roles must alternate user/assistant"
    bodies, d = await talked(refusing('"role":"tool"', why, answering()), 3, sets=TOOLS)
    assert [m["role"] for m in bodies[-1]["messages"] if "tool" in m["role"]] == []
    assert "tool_calls" not in json.dumps(bodies[-1]["messages"])
    assert "tools" in bodies[-1]
    assert len(d.events("agents.no-tool-role")) == 1


async def test_calls_that_the_model_makes_go_back_as_it_made_them() -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c9", "function": {"name": "look", "arguments": ""}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1}'}}]}
    piece = s.event({"choices": [{"delta": delta}]}) + s.event({"choices": [{"delta": more}]})
    bodies, _ = await talked(answering(piece=piece), 2, sets=TOOLS | {"request.tool_choice": "auto"})
    _, _, reply, result = bodies[1]["messages"]
    function = {"name": "look", "arguments": '{"x":1}'}
    assert reply == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c9", "function": function, "type": "function"}],
    }
    assert result["role"] == "tool"
    assert result["tool_call_id"] == "c9"


@pytest.mark.parametrize("kept", [True, False])
async def test_reasoning_is_kept_or_dropped_as_the_profile_says(kept: bool) -> None:
    thought = s.event({"choices": [{"delta": {"reasoning_content": "hm, "}}]}) * 3
    sets = {"context.reasoning": "keep" if kept else "drop"}
    bodies, _ = await talked(answering(piece=thought + s.token("said")), 2, sets=sets)
    reply = bodies[1]["messages"][2]
    assert reply.pop("reasoning_content", None) == ("hm, hm, hm, " if kept else None)
    assert reply == {"role": "assistant", "content": "said"}


# Contexts


async def test_truncation_asks_nothing_and_keeps_the_system_prompt_and_what_is_newest() -> None:
    sets = {"compaction.kind": "truncate", **TOOLS}
    bodies, d = await talked(answering(), 20, limit=1800, to_fraction=0.6, first=600, sets=sets)
    assert d.turns(turn_kind="compact") == []
    marked = [turn for turn in d.turns() if turn.compacted_from_tokens]
    assert marked
    index = d.turns().index(marked[0])
    before, after = bodies[index - 1], bodies[index]
    assert marked[0].compacted_from_tokens > 1500
    assert after["messages"][0] == before["messages"][0]
    assert after["messages"][1]["role"] == "user"
    kept = [message["content"] for message in after["messages"][2:-1]]
    assert kept[:-1] == [message["content"] for message in before["messages"]][-len(kept) + 1 :]
    assert marked[0].prompt_tokens == pytest.approx(0.6 * 1800 + 60, rel=0.1)
    assert d.agent("a1").compactions >= 1


async def test_a_compaction_tells_where_it_came_from_on_the_first_turn_after_it() -> None:
    _, d = await talked(answering(), 30)
    turns = d.turns()
    compact = next(index for index, turn in enumerate(turns) if turn.turn_kind == "compact")
    assert turns[compact].compacted_from_tokens is None
    assert turns[compact + 1].compacted_from_tokens == turns[compact - 1].context_tokens
    assert turns[compact + 2].compacted_from_tokens is None


async def test_new_conversations_keep_the_system_prompt_and_nothing_else() -> None:
    bodies, d = await talked(answering(), 5, sets={"context.turns": "2"})
    sizes = [len(body["messages"]) for body in bodies[:5]]
    assert sizes == [2, 4, 2, 4, 2]
    assert len({body["messages"][0]["content"] for body in bodies}) == 1
    assert len({body["messages"][1]["content"] for body in bodies[:5:2]}) == 3
    assert [turn.turn_kind for turn in d.turns()[:5]] == ["turn"] * 5


async def test_a_steady_start_fills_the_context_and_goes_on_after_a_pause() -> None:
    sets = {"start.kind": "steady", "pacing.tool_pause_s": "0.05"}
    hold = asyncio.Event()
    async with s.serve(answering(hold=hold)) as server:
        with driver() as d:
            d.configure(server.url, profile(limit=4000, to_fraction=0.3, sets=sets), 100_000)
            d.launch(6)
            await asyncio.to_thread(d.until, lambda: d.state("a1") == "prime")
            hold.set()
            await asyncio.to_thread(d.until, lambda: len(d.turns(turn_kind="turn")) >= 6)
            primes = d.turns(turn_kind="prime")
    assert len(primes) == 6
    assert {turn.output_tokens for turn in primes} == {8}
    sizes = [turn.prompt_tokens for turn in primes]
    assert len(set(sizes)) == 6
    assert 1000 < min(sizes) < max(sizes) < 4200
    for agent in {turn.agent for turn in primes}:
        mine = [turn for turn in d.turns() if turn.agent == agent]
        assert mine[0].turn_kind == "prime"
        assert mine[0].turn == 1
        assert all(turn.turn_kind != "prime" for turn in mine[1:])
    later = next(turn for turn in d.turns(turn_kind="turn") if turn.agent == primes[0].agent)
    assert later.t_queued >= primes[0].t + 0.05
    assert later.prompt_tokens > primes[0].prompt_tokens


async def test_what_agents_share_is_the_same_text_and_the_rest_is_not() -> None:
    sets = {"context.shared_system": "true", "context.shared_document": "200", "context.tools": "400"}
    async with s.serve(answering()) as server:
        with driver() as d:
            d.configure(server.url, profile(limit=9000, sets=sets), 100_000, salt="abc")
            d.launch(3)
            await asyncio.to_thread(d.until, lambda: len({turn.agent for turn in d.turns()}) == 3)
        firsts = [body for body in chats(server) if len(body["messages"]) == 2]
    assert len({body["messages"][0]["content"] for body in firsts}) == 1
    assert len({json.dumps(body["tools"]) for body in firsts}) == 1
    users = {body["messages"][1]["content"] for body in firsts}
    assert len(users) == 3
    assert len({text[:600] for text in users}) == 1
    assert len({text[-200:] for text in users}) == 3


async def test_nothing_is_shared_unless_it_is_asked_for() -> None:
    async with s.serve(answering()) as server:
        with driver() as d:
            d.configure(server.url, profile(sets=TOOLS), 100_000, salt="abc")
            d.launch(3)
            await asyncio.to_thread(d.until, lambda: len({turn.agent for turn in d.turns()}) == 3)
        firsts = [body for body in chats(server) if len(body["messages"]) == 2]
    assert len({body["messages"][0]["content"][:24] for body in firsts}) == 3
    assert len({body["tools"][0]["function"]["name"] for body in firsts}) == 3


# Sub-agents

SWARM = {
    "children.every": "2", "children.count": "3", "children.turns": "2", "children.first": "80",
    "children.system": "40", "children.input": "30", "children.output": "10",
}  # fmt: skip


def family(d: DriverProcess, parent: str = "a1") -> list[Turn]:
    return [turn for turn in d.turns() if turn.parent == parent]


async def test_sub_agents_have_small_contexts_of_their_own_and_are_waited_for() -> None:
    async with s.serve(answering()) as server:
        with driver() as d:
            d.configure(server.url, profile(sets=SWARM), 100_000)
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns(turn_kind="turn")) >= 5)
            await asyncio.to_thread(d.until, lambda: d.load() is not None)
    subs = family(d)
    first_six = [turn for turn in subs if turn.agent in ("a1.1", "a1.2", "a1.3")]
    assert len(first_six) == 6
    assert {turn.turn_kind for turn in subs} == {"sub"}
    own = [turn for turn in d.turns(turn_kind="turn") if turn.agent == "a1"]
    assert all(own[1].t <= turn.t_queued and turn.t <= own[2].t_queued + 1e-6 for turn in first_six)
    assert max(turn.prompt_tokens for turn in subs) < 300
    assert {"a1.4", "a1.5", "a1.6"} <= {turn.agent for turn in subs}  # names do not come again
    samples = [
        frame for frame in d.frames if getattr(frame, "agent", None) == "a1.1" and hasattr(frame, "state")
    ]
    assert samples[-1].state == "stopped"
    assert samples[0].parent == "a1"
    assert all(load.active <= 1 for load in d.frames if type(load).__name__ == "LoadSample")


async def test_stopping_pausing_and_draining_reach_sub_agents() -> None:
    hold = asyncio.Event()

    async def script(request: s.Request, wire: s.Wire) -> None:
        mine = hold if b"word" in request.body or request.json.get("max_tokens") == 10 else None
        await answering(hold=mine)(request, wire)

    sets = SWARM | {"children.every": "1"}
    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, profile(sets=sets), 100_000)
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: d.state("a1") == "children")
            await asyncio.to_thread(d.until, lambda: d.agent("a1").children == 3)
            await asyncio.to_thread(d.until, lambda: d.state("a1.3") in ("queued", "prefill"))
            d.send(HaltAgent(agent="a1", now=True))
            await asyncio.to_thread(d.until, lambda: all(d.state(f"a1.{n}") == "stopped" for n in (1, 2, 3)))
            await asyncio.to_thread(d.until, lambda: d.state("a1") == "stopped")
            assert {turn.error_kind for turn in family(d)} == {"cancelled"}
            hold.set()
            d.send(PauseAll(on=True))
            d.launch(1, first=2)
            await asyncio.to_thread(d.until, lambda: d.state("a2") == "paused")
            d.send(PauseAll(on=False))
            await asyncio.to_thread(d.until, lambda: len(family(d, "a2")) >= 3)
            d.send(HaltAgent(agent="a2", now=False))
            await asyncio.to_thread(d.until, lambda: d.state("a2") == "stopped")
            alive = {turn.agent for turn in family(d, "a2")}
            await asyncio.to_thread(d.until, lambda: all(d.state(name) == "stopped" for name in alive))
            assert {turn.error_kind for turn in family(d, "a2")} == {None}


async def test_a_sub_agent_that_fails_for_good_does_not_take_its_parent_along() -> None:
    async def script(request: s.Request, wire: s.Wire) -> None:
        if request.line.startswith("POST /v1/") and request.json["max_tokens"] == 10:
            await wire.send(s.plain(400, b'{"error":{"message":"no"}}'))
        else:
            await answering()(request, wire)

    sets = SWARM | {"children.count": "1", "children.every": "1"}
    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, profile(sets=sets), 100_000)
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns(turn_kind="turn", error_kind=None)) >= 2)
            assert d.events("agent.gave-up")[0].subject == "a1.1"
