"""Every way an engine can fail a request: shown while it lasts, recorded as its kind, and survived.

The engine is simulated, with one fault on purpose each; the driver is the real process.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.reply import Reply
from agenttop.agents.retry import POLICIES
from agenttop.model.frames import AgentSample
from agenttop.sim.faults import KINDS
from tests.agents import scripted as s
from tests.agents.driving import DriverProcess, driver
from tests.agents.profiles import profile
from tests.waiting import until_async

pytestmark = pytest.mark.slow

SHOWN = {
    "refuse": ("refuse=503@first=1", "http-5xx"),
    "4xx": ("4xx=429@first=1", "http-4xx"),
    "5xx": ("5xx=500@first=1", "http-5xx"),
    "context": ("context@first=1", "context"),
    "queue-timeout": ("queue-timeout@first=1", "queue-timeout"),
    "comments": ("comments=0.05s@first=1", "queue-timeout"),
    "stall": ("stall@first=1", "stall"),
    "stall, keep-alives": ("stall@first=1,comments", "stall"),
    "cut": ("cut=5@first=1", "cut"),
    "error": ("error=out of luck@first=1", "stream-error"),
    "restart": ("restart=1s@first=1", "restarted"),
}
"""Faults that end a request, and the kind of failure they are."""

BORNE = {
    "role-only": "role-only",
    "slow": "slow=0.02s",
    "tokens-per-chunk": "tokens-per-chunk=4",
    "reasoning": "reasoning=0.5",
    "wrong-usage": "wrong-usage=none",
}
"""Faults that spoil no request."""


def agents_on(d: DriverProcess, engine: Any, wire: str, count: int = 1, **changes: Any) -> None:
    sizes = {"limit": 1800, "first": 50, "output": 40, "queue_s": 0.6, "stall_s": 0.4} | changes
    d.configure(engine.url, profile(**sizes), 2048, slots_like="vLLM" if wire == "vllm" else wire)
    d.launch(count)


def test_every_switch_of_the_simulator_is_here() -> None:
    assert {name.partition(",")[0] for name in SHOWN} | set(BORNE) == set(KINDS)


@pytest.mark.parametrize(("fault", "kind"), SHOWN.values(), ids=list(SHOWN))
def test_a_fault_is_recorded_as_its_kind_and_survived(start_sim_here, fault: str, kind: str) -> None:
    wire = "llama.cpp" if kind == "context" else "vllm"
    engine = start_sim_here(wire=wire, fault=[fault])
    with driver() as d:
        agents_on(d, engine, wire)
        failed = d.until(lambda: d.turns(error_kind=kind), f"a turn of kind {kind}")[0]
        again = d.until(lambda: d.turns(error_kind=None), "a turn that succeeds")[0]
        load = d.until(lambda: (new := d.load()) and new.failure_kinds.get(kind) and new, "the count")
    assert (failed.turn, failed.attempt) == (1, 1)
    assert again.turn == again.attempt >= 2  # a retry is a turn of its own
    assert load.failures == sum(load.failure_kinds.values()) == again.attempt - 1
    assert failed.error
    if kind == "context":  # cut and sent again at once
        assert failed.error in d.events("agent.context-cut")[0].text
    else:
        told = {frame.error for frame in d.of(AgentSample) if frame.error}
        assert f"{kind}: {failed.error}" in told
    if kind == "restarted":
        assert "right after that it" in failed.error


@pytest.mark.parametrize("fault", BORNE.values(), ids=list(BORNE))
def test_what_is_odd_but_whole_is_no_failure(start_sim_here, fault: str) -> None:
    engine = start_sim_here(wire="vllm", fault=[fault])
    with driver() as d:
        agents_on(d, engine, "vllm", queue_s=10, stall_s=10)
        d.until(lambda: len(d.turns(error_kind=None)) >= 2, "two whole turns")
        assert not d.turns(error_kind="protocol")
        assert all(turn.error_kind in (None, "cancelled") for turn in d.turns())
        turn = d.turns()[0]
        if fault.startswith("tokens-per-chunk"):
            assert turn.events < turn.output_tokens
        if fault.startswith("role-only"):
            assert turn.t_first_byte < turn.t_first_token
        if fault.startswith("wrong-usage"):
            assert turn.output_tokens is None
            assert turn.tokens_from is None


def test_refused_connections_are_waited_for(start_sim_here) -> None:
    engine = start_sim_here(wire="vllm", fault=["refuse@at=0.001s,for=2s"])
    with driver() as d:
        agents_on(d, engine, "vllm", queue_s=10, stall_s=10)
        d.until(lambda: d.turns(error_kind="refused"), "a refusal")
        d.until(lambda: d.events("agent.recovered"), "the recovery")
    kinds = Counter(turn.error_kind for turn in d.turns())
    assert kinds["refused"] >= 1
    assert all(turn.status is None for turn in d.turns(error_kind="refused"))


def test_a_stall_is_shown_long_before_it_is_a_failure(start_sim_here) -> None:
    engine = start_sim_here(wire="vllm", speedup=10, fault=["stall=40s@request=4"])
    with driver() as d:
        sizes = profile(limit=1800, first=50, output=350, queue_s=600, stall_s=600)
        d.configure(engine.url, sizes, 2048, slots_like="vLLM", clock_rate=10.0)
        d.launch(1)
        shown = d.until(
            lambda: (a := d.agent("a1")) and a.state == "stalled" and a, "the agent to be shown as stalled"
        )
        assert shown.silent_s >= 10.0
        event = d.until(lambda: d.events("agent.stalled"), "the event")[0]
        assert (event.subject, event.severity) == ("a1", "warn")
        assert event.text.startswith("a1 stalled: nothing for ")
        d.until(lambda: d.load().stalled == 1, "the count")
        d.until(lambda: d.events("agent.unstalled"), "it to go on")
        d.until(lambda: d.load().stalled == 0, "the count to fall")
        assert not [turn for turn in d.turns() if turn.error_kind]
        states = [frame.state for frame in d.of(AgentSample)]
        # ten times faster than life the rest of the reply may be over before the next sample
        after = states[len(states) - states[::-1].index("stalled") :]
        assert after
        assert set(after) <= {"decode", "queued", "prefill", "tool", "compact"}


def test_keep_alives_are_told_from_silence(start_sim_here) -> None:
    engine = start_sim_here(wire="vllm", speedup=20, fault=["stall@request=4,comments"])
    with driver() as d:
        sizes = profile(limit=1800, first=50, output=60, queue_s=600, stall_s=30)
        d.configure(engine.url, sizes, 2048, slots_like="vLLM", clock_rate=20.0)
        d.launch(1)
        event = d.until(lambda: d.events("agent.stalled"), "the event")[0]
        assert "keep-alives, but no token" in event.text
        failed = d.until(lambda: d.turns(error_kind="stall"), "its end")[0]
        assert "only keep-alives for" in failed.error
    assert len(d.events("agent.stalled")) == 1  # a keep-alive does not make it move again


def test_a_restart_hits_all_agents_and_is_told_by_one_look(start_sim_here) -> None:
    engine = start_sim_here(wire="llama.cpp", fault=["restart=2s@request=6"])
    with driver() as d:
        agents_on(d, engine, "llama.cpp", count=4, output=400, queue_s=30, stall_s=30)
        d.until(lambda: d.turns(error_kind="restarted"), "the restart")
        d.until(lambda: d.events("agent.recovered"), "the recovery")
    assert not d.turns(error_kind="cut")


def test_an_agent_that_gives_up_says_why(start_sim_here) -> None:
    engine = start_sim_here(wire="vllm", fault=["4xx=404"])
    with driver() as d:
        agents_on(d, engine, "vllm")
        event = d.until(lambda: d.events("agent.gave-up"), "giving up")[0]
        assert len(d.turns()) == 1  # a wrong path stays wrong
        assert "404" in event.text


def test_every_kind_has_a_policy_and_a_line_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
    kinds = {kind for _, kind in SHOWN.values()} | {"refused", "protocol", "engine-limit"}
    assert kinds == set(POLICIES)
    for kind in kinds:
        assert f"`{kind}`" in page


# On scripted servers: what no engine does on request


async def comments_for_ever(_: s.Request, wire: s.Wire) -> None:
    await wire.send(s.HEAD, s.role())
    while True:
        await wire.send(s.chunked(b": ping\n\n" * 4000))


async def test_comments_without_end_cost_little_and_end() -> None:
    async with s.serve(comments_for_ever) as server:
        reply = Reply()
        own = Client(Endpoint(server.url), time.monotonic, Timeouts(queue_s=0.5, stall_s=0.5))
        sending = asyncio.ensure_future(own.send(b"{}", reply))
        await until_async(lambda: reply.t_first_byte is not None)
        cpu, start = time.process_time(), time.monotonic()
        await sending
        busy = (time.process_time() - cpu) / (time.monotonic() - start)
        own.close()
    assert reply.error_kind == "queue-timeout"
    assert "only keep-alives" in reply.error
    # Client and server share this process; a reader without rests keeps both busy all the time.
    assert busy < 0.6


async def test_a_flood_of_comments_does_not_lose_what_follows() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.role(), s.token("a"))
        for _ in range(4):
            await wire.send(s.chunked(b": ping\n\n" * 4000))
        await wire.send(s.token("b"), s.finish(), s.DONE, s.END)

    async with s.serve(script) as server:
        reply = Reply()
        own = Client(Endpoint(server.url), time.monotonic, Timeouts(queue_s=20, stall_s=20))
        await own.send(b"{}", reply)
        own.close()
    assert (reply.text, reply.failed) == ("ab", False)


async def test_a_cut_by_an_engine_that_is_still_there_is_no_restart() -> None:
    async def script(request: s.Request, wire: s.Wire) -> None:
        if "completions" not in request.line:
            await wire.send(s.plain(200, b'{"status":"ok"}'))
            return
        await wire.send(s.HEAD, s.token("x"))
        wire.writer.close()

    async with s.serve(script) as server:
        reply = Reply()
        own = Client(Endpoint(server.url), time.monotonic, Timeouts())
        await own.send(b"{}", reply)
        own.close()
        assert [request.line.split()[1] for request in server.requests][-1] == "/props"
    assert reply.error_kind == "cut"


async def test_a_cut_by_an_engine_that_loads_right_after_is_a_restart() -> None:
    async def script(request: s.Request, wire: s.Wire) -> None:
        if "completions" not in request.line:
            await wire.send(s.plain(503, b'{"error":{"message":"Loading model"}}'))
            return
        await wire.send(s.HEAD, s.token("x"))
        wire.writer.close()

    async with s.serve(script) as server:
        reply = Reply()
        own = Client(Endpoint(server.url), time.monotonic, Timeouts())
        await own.send(b"{}", reply)
        own.close()
    assert reply.error_kind == "restarted"
    assert reply.error.endswith("right after that it says that it is loading")


async def test_an_engine_that_drops_the_look_as_well_is_looked_at_again() -> None:
    """What is ending may still accept a connection, and drop it."""
    looks = 0

    async def script(request: s.Request, wire: s.Wire) -> None:
        nonlocal looks
        if "completions" in request.line:
            await wire.send(s.HEAD, s.token("x"))
        else:
            looks += 1
            if looks == 3:
                await wire.send(s.plain(503, b"{}"))
        wire.writer.close()

    async with s.serve(script) as server:
        reply = Reply()
        own = Client(Endpoint(server.url), time.monotonic, Timeouts())
        await own.send(b"{}", reply)
        own.close()
    assert (reply.error_kind, looks) == ("restarted", 3)
