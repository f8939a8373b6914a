"""Several driver processes seen as one: who gets which agent, one account of all, and one that dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from agenttop.agents.profile import scale
from agenttop.model.commands import Configure, HaltAgent, HaltAll, LaunchAgent, PauseAll
from agenttop.model.frames import AgentSample, Event, Frame, LoadSample, OwnSample, Turn
from agenttop.node import drivers as module
from agenttop.node.drivers import Drivers
from agenttop.node.merge import Past, merge
from tests.agents.profiles import profile
from tests.waiting import until_async


class Session:
    """Drivers whose frames are kept."""

    def __init__(self, most: int = 4) -> None:
        self.frames: list[Frame] = []
        self.gone: list[int | None] = []
        self.drivers = Drivers(self.frames.extend, self.gone.append, most=most)

    async def start(self, url: str, **changes: Any) -> None:
        await self.drivers.start()
        fitted = scale(profile(**changes), 2048).profile
        order = Configure(
            origin=asyncio.get_running_loop().time(),
            engine=url,
            model=None,
            api_key_env=None,
            profile="test",
            settings=fitted.settings(),
            seed=7,
            slots_like="vLLM",
            salt="abcd",
        )
        self.drivers.send(order)

    def launch(self, *numbers: int) -> None:
        self.drivers.send(*(LaunchAgent(agent=f"a{n}", number=n, at=0.0) for n in numbers))

    def of(self, kind: type[Any]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def roles(self) -> dict[str, int]:
        return {frame.role: frame.pid for frame in self.of(OwnSample)}

    def states(self) -> dict[str, str]:
        return {frame.agent: frame.state for frame in self.of(AgentSample)}


@pytest.fixture
def few_each(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two agents fill a process."""
    monkeypatch.setattr(module, "AGENTS_EACH", 2)
    return


async def test_agents_are_spread_and_reported_as_one(start_sim_here, few_each) -> None:
    engine = start_sim_here(wire="vllm")
    session = Session()
    await session.start(engine.url, pause=0.05)
    session.launch(1, 2, 3, 4, 5)
    await until_async(lambda: len({turn.agent for turn in session.of(Turn)}) == 5, 40)
    await until_async(lambda: any(load.active == 5 for load in session.of(LoadSample)), 20)
    await until_async(lambda: len(session.roles()) == 3, 20)
    assert set(session.roles()) == {"driver", "driver 2", "driver 3"}
    assert len(set(session.roles().values())) == 3
    load = next(load for load in reversed(session.of(LoadSample)) if load.active == 5)
    assert load.drivers == 3
    added = [event.text for event in session.of(Event) if event.event == "driver.added"]
    assert [text.partition(":")[0] for text in added] == ["driver 2", "driver 3"]
    # one sample of all a second, not one of each
    times = [frame.t for frame in session.of(LoadSample)]
    assert len(times) <= (times[-1] - times[0]) * 1.5 + 3
    turns = [frame.turns_done for frame in session.of(LoadSample)]
    assert turns == sorted(turns)
    session.drivers.send(HaltAll(now=True))
    await until_async(lambda: set(session.states().values()) == {"stopped"}, 20)
    done = sum(turn.error_kind is None for turn in session.of(Turn))
    await until_async(lambda: session.of(LoadSample)[-1].turns_done == done, 20)
    await session.drivers.stop()
    assert not session.gone


async def test_the_same_seed_gives_the_same_plan_in_any_process(start_sim_here, monkeypatch) -> None:
    engine = start_sim_here(wire="vllm")
    sizes = []
    for each in (256, 1):
        monkeypatch.setattr(module, "AGENTS_EACH", each)
        session = Session()
        await session.start(
            engine.url,
            input='{ kind = "log-normal", mu = 3.5, sigma = 0.5 }',
            output='{ kind = "uniform", min = 5, max = 30 }',
        )
        session.launch(1, 2)

        def turns(agent: str, session: Session = session) -> list[Turn]:
            return [turn for turn in session.of(Turn) if turn.agent == agent and turn.turn_kind == "turn"]

        await until_async(lambda: len(turns("a1")) >= 3 and len(turns("a2")) >= 3, 40)
        await session.drivers.stop()
        sizes.append([[turn.output_limit_tokens for turn in turns(agent)[:3]] for agent in ("a1", "a2")])
    assert sizes[0] == sizes[1]
    assert sizes[0][0] != sizes[0][1]


async def test_one_that_dies_takes_only_its_own_agents(start_sim_here, few_each) -> None:
    engine = start_sim_here(wire="vllm")
    session = Session()
    await session.start(engine.url, pause=0.05)
    session.launch(1, 2, 3, 4)
    await until_async(lambda: len({turn.agent for turn in session.of(Turn)}) == 4, 40)
    await until_async(lambda: any(load.active == 4 for load in session.of(LoadSample)), 20)
    await until_async(lambda: "driver 2" in session.roles(), 20)
    before = max(load.turns_done for load in session.of(LoadSample))
    os.kill(session.roles()["driver 2"], signal.SIGKILL)
    lost = (await until_async(lambda: [e for e in session.of(Event) if e.event == "driver.lost"], 20))[0]
    assert lost.text == "driver 2 ended unexpectedly (exit -9); its 2 agents are gone, the others run on"
    assert session.states()["a3"] == session.states()["a4"] == "stopped"
    count = len(session.of(Turn))
    await until_async(lambda: {turn.agent for turn in session.of(Turn)[count:]} == {"a1", "a2"}, 20)
    await until_async(lambda: session.of(LoadSample)[-1].active == 2, 20)
    assert session.of(LoadSample)[-1].turns_done >= before  # what they had done stays done
    assert session.of(LoadSample)[-1].drivers == 1
    assert not session.gone
    os.kill(session.drivers.pid or 0, signal.SIGKILL)
    await until_async(lambda: session.gone, 20)
    await session.drivers.stop()


async def test_orders_reach_the_process_of_their_agent(start_sim_here, few_each) -> None:
    engine = start_sim_here(wire="vllm")
    session = Session()
    await session.start(engine.url, pause=0.05)
    session.drivers.send(PauseAll(on=True))
    session.launch(1, 2, 3)  # the second process is started after the pause, and keeps it
    await until_async(lambda: set(session.states().values()) == {"paused"} and len(session.states()) == 3, 40)
    session.drivers.send(PauseAll(on=False))
    await until_async(lambda: len({turn.agent for turn in session.of(Turn)}) == 3, 40)
    session.drivers.send(HaltAgent(agent="a3", now=True))
    await until_async(lambda: session.states()["a3"] == "stopped", 20)
    assert session.states()["a1"] != "stopped"
    session.launch(4)  # in its place, not in a third process
    await until_async(lambda: "a4" in {turn.agent for turn in session.of(Turn)}, 40)
    assert len(session.roles()) <= 2
    await session.drivers.stop()


def sample(**fields: Any) -> LoadSample:
    return LoadSample(**({"t": 1.0, "window_s": 1.0} | fields))


def test_a_process_that_is_dear_takes_fewer_agents() -> None:
    seat = module.Seat(1, None)  # type: ignore[arg-type]
    assert seat.room == module.AGENTS_EACH
    seat.measured(sample(active=4, cpu_fraction=0.4))  # of few agents nothing is concluded
    assert seat.room == module.AGENTS_EACH
    seat.measured(sample(active=40, cpu_fraction=0.4))
    assert seat.room == 50
    seat.measured(sample(active=40, cpu_fraction=0.1))  # the dearest moment counts
    assert seat.room == 50
    seat.agents = dict.fromkeys(f"a{n}" for n in range(48))
    assert seat.room == 2


def test_sums_and_the_worst() -> None:
    one = sample(
        t=5.0, active=3, in_flight=2, decode_tok_s=10.0, turns_done=4, failures=1, failure_kinds={"cut": 1},
        cpu_fraction=0.2, loop_lag_p99_s=0.001, stamps="kernel", stalled=1, output_tokens_total=100,
    )  # fmt: skip
    two = sample(
        t=6.0, active=5, in_flight=5, decode_tok_s=20.0, turns_done=6, failures=3,
        failure_kinds={"cut": 1, "stall": 2}, cpu_fraction=0.8, loop_lag_p99_s=0.02, stamps="application",
        client_limited="busy", output_tokens_total=50,
    )  # fmt: skip
    both = merge([one, two], Past(), 2)
    assert (both.t, both.active, both.in_flight, both.decode_tok_s) == (6.0, 8, 7, 30.0)
    assert (both.turns_done, both.failures, both.output_tokens_total, both.stalled) == (10, 4, 150, 1)
    assert both.failure_kinds == {"cut": 2, "stall": 2}
    assert (both.cpu_fraction, both.loop_lag_p99_s, both.stamps) == (0.8, 0.02, "mixed")
    assert (both.client_limited, both.drivers) == ("busy", 2)


def test_a_rate_that_one_cannot_count_is_no_rate() -> None:
    assert merge([sample(decode_tok_s=5.0, in_flight=1), sample(in_flight=1)], Past(), 2).decode_tok_s is None
    assert merge([sample(decode_tok_s=5.0, in_flight=1), sample()], Past(), 2).decode_tok_s == 5.0


def test_totals_outlive_their_process() -> None:
    past = Past()
    past.add(sample(turns_done=7, failures=2, failure_kinds={"cut": 2}, output_tokens_total=10))
    both = merge([sample(turns_done=1, failure_kinds={"cut": 1})], past, 1)
    assert (both.turns_done, both.failure_kinds, both.output_tokens_total) == (8, {"cut": 3}, 10)
