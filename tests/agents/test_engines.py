"""What the driver asks of which engine, and what it makes of engines that tell less than llama.cpp."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenttop.agents.agent import Agent
from agenttop.agents.driver import Driver
from agenttop.model.commands import Configure, LaunchAgent
from agenttop.model.frames import AgentSample, Event, Frame, LoadSample, Missing, Turn
from tests.agents import scripted as s
from tests.agents.driving import driver
from tests.agents.profiles import profile
from tests.waiting import until_async


def counting(prompt: int = 100, **extra: Any) -> s.Script:
    """Replies of as many tokens as were asked for."""

    async def script(request: s.Request, wire: s.Wire) -> None:
        if not request.line.startswith("POST /v1/"):
            await wire.send(s.plain(404, b"{}"))
            return
        tokens = request.json["max_tokens"]
        counts = s.usage(prompt + 50 * len(request.json["messages"]), tokens, **extra)
        await wire.send(s.HEAD, s.role(), s.token("x") * tokens, s.finish("length"), counts, s.DONE, s.END)

    return script


async def silent(request: s.Request, wire: s.Wire) -> None:
    if request.line.startswith("POST /v1/"):
        await wire.send(s.HEAD, s.token("x"), s.token("y"), s.finish("length"), s.DONE, s.END)
    else:
        await wire.send(s.plain(404, b"{}"))


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        ("llama.cpp", {"timings_per_token", "return_progress", "cache_prompt", "ignore_eos"}),
        ("openai", set()),
    ],
)
async def test_only_llama_gets_llamas_extras(engine: str, asked: set[str]) -> None:
    async with s.serve(counting()) as server:
        with driver() as d:
            d.configure(server.url, profile(), 4096, slots_like=engine, model="m1")
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns(error_kind=None)) >= 2)
    request = next(request for request in server.requests if request.line.startswith("POST /v1/"))
    usual = {"messages", "max_tokens", "stream", "stream_options", "temperature", "model"}
    assert set(request.json) == usual | asked
    assert request.json["model"] == "m1"
    assert request.json["stream_options"] == {"include_usage": True}
    assert [message["role"] for message in request.json["messages"]] == ["system", "user"]


async def test_an_engine_without_counts_shows_none_and_says_why() -> None:
    async with s.serve(silent) as server:
        with driver() as d:
            d.configure(server.url, profile(pause=0.02), 4096, slots_like="openai")
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: d.of(Missing) and len(d.of(LoadSample)) >= 2)
            missing = d.of(Missing)
            assert [(frame.what, frame.why) for frame in missing] == [
                (f"{server.url}:output_tokens", "the engine sends no token counts (usage) with its replies")
            ]
            turn = d.turns(error_kind=None)[0]
            assert (turn.output_tokens, turn.tokens_from, turn.prompt_tokens) == (None, None, None)
            assert (turn.events, turn.context_tokens) == (2, None)
            sample = d.of(AgentSample)[-1]
            assert (sample.context_tokens, sample.decode_tok_s) == (None, None)


async def test_reasoning_does_not_go_back() -> None:
    async def script(request: s.Request, wire: s.Wire) -> None:
        if not request.line.startswith("POST /v1/"):
            await wire.send(s.plain(404, b"{}"))
            return
        thought = s.event({"choices": [{"delta": {"reasoning_content": "hush " * 40}}]})
        counts = s.usage(200, 30, completion_tokens_details={"reasoning_tokens": 25})
        await wire.send(s.HEAD, thought, s.token("said"), s.finish(), counts, s.DONE, s.END)

    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, profile(), 4096, slots_like="openai")
            d.launch(1)
            await asyncio.to_thread(d.until, lambda: len(d.turns(error_kind=None)) >= 2)
    later = [request.json["messages"] for request in server.requests if b"assistant" in request.body]
    assert later[0][2] == {"role": "assistant", "content": "said"}
    assert b"hush" not in b"".join(request.body for request in server.requests)
    assert d.turns()[0].reasoning_tokens == 25


async def test_the_engine_is_asked_once_how_it_counts() -> None:
    async def script(request: s.Request, wire: s.Wire) -> None:
        if request.line.startswith("POST /tokenize"):
            count = len(request.json["content"]) // 2
            await wire.send(s.plain(200, b'{"tokens":[' + b",".join([b"7"] * count) + b"]}"))
        else:
            await counting()(request, wire)

    async with s.serve(script) as server:
        with driver() as d:
            d.configure(server.url, profile(system=400, first=600), 4096)
            d.launch(6)
            await asyncio.to_thread(d.until, lambda: len(d.turns(error_kind=None)) >= 6)
    lines = [request.line for request in server.requests]
    assert sum(line.startswith("POST /tokenize") for line in lines) == 1
    first = next(request for request in server.requests if request.line.startswith("POST /v1/"))
    chars = sum(len(message["content"]) for message in first.json["messages"])
    assert chars == pytest.approx(2 * 1000, rel=0.03)  # it said: two characters a token


class Frames:
    """Stands where the outbox stands."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def add(self, frame: Frame, may_drop: bool = False) -> None:
        self.frames.append(frame)

    def flush(self) -> None:
        pass


async def test_a_fault_in_one_agent_is_an_event_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Agent._live

    async def faulty(self: Agent) -> None:
        if self.name == "a1":
            raise RuntimeError("boom\x1b[2J")
        await live(self)

    monkeypatch.setattr(Agent, "_live", faulty)
    box = Frames()
    async with s.serve(counting()) as server:
        under_test = Driver(box)  # type: ignore[arg-type]
        running = asyncio.ensure_future(under_test.run())
        under_test.obey(
            Configure(
                origin=0.0,
                engine=server.url,
                model=None,
                api_key_env=None,
                profile="test",
                settings=profile().settings(),
                seed=0,
                slots_like="openai",
            )
        )
        for number in (1, 2):
            under_test.obey(LaunchAgent(agent=f"a{number}", number=number, at=0.0))
        await until_async(lambda: any(isinstance(frame, Turn) for frame in box.frames))
        under_test.stop()
        await running
    event = next(frame for frame in box.frames if isinstance(frame, Event) and frame.event == "driver.fault")
    assert event.text == "a1 ended by a fault in agenttop: RuntimeError: boom [2J"
    assert (event.subject, event.severity) == ("a1", "bad")
    samples = [frame for frame in box.frames if isinstance(frame, AgentSample)]
    assert {sample.agent for sample in samples if sample.state == "stopped"} == {"a1", "a2"}
