"""The ramp dialog: what it asks, what it foretells, and what it sends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agenttop.agents.profile import load
from agenttop.agents.starts import starts_s
from agenttop.model import commands as c
from agenttop.model import units
from agenttop.tui.screens.ramp import LEAST_STARTS_S, RampDialog
from tests.tui.sources import Running, console_on
from tests.tui.test_golden import SIZES
from tests.view import scenes

FOUND = [*scenes.idle()[:-3], scenes.engine(8.0, load_allowed=False)]


def is_open(running: Running) -> bool:
    return isinstance(running.console.screen, RampDialog)


async def test_enter_climbs_from_one_agent_with_the_first_profile() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("r", "enter")
        expected = c.Ramp(first=1, last=16, step=1, hold_s=120.0, engine=scenes.URL, profile="human")
        assert running.session.sent == [expected]
        assert not is_open(running)


async def test_with_a_load_in_force_it_goes_on_from_there() -> None:
    async with console_on(scenes.running(40), 40.4) as running:
        await running.press("r", "enter")
        # No engine and no profile: the agents that run stay, with their seed and pace.
        assert running.session.sent == [c.Ramp(first=4, last=16, step=4, hold_s=120.0)]


async def test_everything_can_be_typed_or_changed_with_the_arrows() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("r", "up", "2", "down", "1", "2", "down", "right", "right", "down", "9", "0", "s")
        assert "2 → 5 → 8 → 11 → 12 agents" in running.screen
        assert "5 levels of 90 s: 7.5 m" in running.screen
        await running.press("enter")
        (ramp,) = running.session.sent
        assert (ramp.first, ramp.last, ramp.step, ramp.hold_s) == (2, 12, 3, 90.0)
        assert ramp.levels() == [2, 5, 8, 11, 12]


async def test_it_can_step_down() -> None:
    async with console_on(scenes.running(40), 40.4) as running:
        await running.press("r", "1", "down", "2", "enter")
        (ramp,) = running.session.sent
        assert ramp.levels() == [4, 2, 1]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["down", "down", "0", "s"], "held for some time"),
        (["down", "down", "h"], "is not a duration"),
        (["9", "9", "9", "9"], "from, to and step are 1 to 1024"),
    ],
)
async def test_what_makes_no_sense_is_said_and_not_sent(keys: list[str], says: str) -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("r", *keys, "enter")
        assert says in running.screen
        assert running.session.sent == []


async def test_load_goes_to_an_engine_that_was_only_found_once_it_is_confirmed() -> None:
    async with console_on(FOUND, 8.3) as running:
        await running.press("r", "enter")
        assert f"Send load to {scenes.URL}?" in running.screen
        await running.press("enter")
        assert running.session.sent == []
        await running.press("y")
        (ramp,) = running.session.sent
        assert ramp.confirmed


async def test_without_an_engine_it_says_so() -> None:
    async with console_on([scenes.session()], 1.0) as running:
        await running.press("r", "enter")
        assert "there is no engine to send load to" in running.screen
        assert running.session.sent == []


async def test_x_stops_all_agents_while_some_run() -> None:
    async with console_on(scenes.running(40), 40.4) as running:
        await running.press("r", "x")
        assert running.session.sent == [c.StopAll()]


async def test_another_profile_says_what_becomes_of_the_agents_that_run() -> None:
    async with console_on(scenes.running(40), 40.4) as running:
        await running.press("r", "up", "up", "right")
        assert "the 3 agents of human are stopped first" in running.screen


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
async def test_golden(size: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    async with console_on(scenes.running(40), 40.4, size) as running:
        await running.press("r")
        golden(f"ramp-{size[0]}x{size[1]}", running.screen)


async def test_staggered_starts_are_foretold() -> None:
    async with console_on(scenes.idle(), 8.3, (120, 40)) as running:
        await running.press("r", "2")
        starts = starts_s(load("human"), [1, 2])
        assert starts > LEAST_STARTS_S
        assert f"staggered starts take about {units.seconds(starts)}" in running.screen


def test_starts_of_a_ramp_count_those_who_join_and_all_where_it_steps_down() -> None:
    profile = load("human", {"start.kind": "every", "start.stagger_s": "10"})
    assert starts_s(profile, [1, 2, 4]) == 30.0
    assert starts_s(profile, [4, 8], standing=4) == 40.0
    assert starts_s(profile, [4, 2], standing=4) == 10.0
