"""The agents panel, with the profiles that are shipped."""

from __future__ import annotations

import msgspec

from agenttop.model import commands as c
from agenttop.model.frames import Plan
from agenttop.tui.screens.agents_panel import AgentsPanel
from tests.tui.sources import Running, console_on
from tests.view import scenes

FOUND = [*scenes.idle()[:-3], scenes.engine(8.0, load_allowed=False)]


def open_panel(running: Running) -> bool:
    return isinstance(running.console.screen, AgentsPanel)


async def test_enter_starts_as_the_profile_says() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "enter")
        assert running.session.sent == [c.StartAgents(engine=scenes.URL, profile="human", target=4)]
        assert not open_panel(running)


async def test_everything_can_be_chosen() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "up", "down", "right")
        assert "‹ human ›" not in running.screen
        await running.press("left", "down", "1", "2", "right", "down", "2", "full_stop", "5", "enter")
        expected = c.StartAgents(engine=scenes.URL, profile="human", target=13, stagger_s=2.5)
        assert running.session.sent == [expected]


async def test_the_profile_is_explained_and_its_scaling_said() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a")
        assert "People with coding agents" in running.screen
        assert "context limit 100000 →" in running.screen


async def test_an_engine_that_was_only_found_is_asked_about() -> None:
    async with console_on(FOUND, 8.3) as running:
        await running.press("a")
        assert "asks before load" in running.screen
        await running.press("enter")
        assert f"Send load to {scenes.URL}?" in running.screen
        await running.press("enter", "enter")
        assert running.session.sent == []
        await running.press("y")
        expected = c.StartAgents(engine=scenes.URL, profile="human", target=4, confirmed=True)
        assert running.session.sent == [expected]


async def test_no_is_no() -> None:
    async with console_on(FOUND, 8.3) as running:
        await running.press("a", "enter", "n")
        assert open_panel(running)
        await running.press("escape")
        assert not open_panel(running)
        assert running.session.sent == []


async def test_without_an_engine_it_says_so() -> None:
    async with console_on([scenes.session()], 1.0) as running:
        await running.press("a", "enter")
        assert "there is no engine to send load to" in running.screen
        assert running.session.sent == []


async def test_a_running_load_is_shown_and_can_be_stopped() -> None:
    async with console_on(scenes.running(60), 60.4) as running:
        await running.press("a")
        assert "now 4 of 4 agents of human" in running.screen
        await running.press("x")
        assert running.session.sent == [c.StopAll()]
    async with console_on(scenes.running(60), 60.4) as running:
        await running.press("a", "d", "a", "p")
        assert running.session.sent == [c.Drain(), c.Pause(on=True)]


async def test_another_profile_says_that_it_replaces_the_load() -> None:
    async with console_on(scenes.running(60), 60.4) as running:
        await running.press("a", "left")
        assert "stops them first" in running.screen


async def test_absurd_numbers_are_refused_here() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "9", "9", "9", "9", "enter")
        assert "0 to 1024 agents" in running.screen
        assert running.session.sent == []


async def test_another_engine_can_be_chosen() -> None:
    other = scenes.engine(8.0, engine="http://127.0.0.1:9", url="http://127.0.0.1:9", load_allowed=True)
    async with console_on([*scenes.idle(), other], 8.3) as running:
        await running.press("a", "up", "right", "enter")
        assert running.session.sent == [c.StartAgents(engine="http://127.0.0.1:9", profile="human", target=4)]


async def test_a_broken_profile_of_the_user_is_one_sentence(private_places: None) -> None:
    from agenttop import paths

    folder = paths.user_profiles()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "aaa.toml").write_text("agents = 'many'\n")
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", *["left"] * 4)
        assert "aaa.toml" in running.screen
        await running.press("enter")
        assert "this profile cannot be used" in running.screen
        assert running.session.sent == []


# Changing the profile


async def test_keys_of_the_profile_are_changed_in_place_and_sent() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "e")
        assert "the context grows to it" in running.screen
        await running.press("3", "2", "k", "down", "9", "0", "0", "down", "down", "down", "down", "right")
        assert "‹ 32k ›" in running.screen
        assert "‹ steady ›" in running.screen
        await running.press("enter")
        overrides = {"context.limit": "32k", "turn.input.median": "900", "start.kind": "steady"}
        assert running.session.sent == [
            c.StartAgents(engine=scenes.URL, profile="human", target=4, overrides=overrides)
        ]


async def test_a_value_that_cannot_be_is_said_at_once_and_not_started() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "e", "3")
        assert "context.limit: expected a whole number from 256" in running.screen
        await running.press("enter")
        assert "this profile cannot be used" in running.screen
        assert running.session.sent == []
        await running.press("2", "k", "backspace", "backspace", "backspace")
        assert "‹ 100k ›" in running.screen


def keys(text: str) -> list[str]:
    """The keys that type a text."""
    names = {".": "full_stop", "=": "equals_sign", "-": "minus", " ": "space"}
    return [names.get(character, character) for character in text]


async def test_any_key_can_be_set_by_a_line_and_mistakes_stay_to_be_mended() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "e", *["down"] * 6, *keys("context.sistem=3k"), "enter")
        assert "not a key of a profile; nearest: context.system" in running.screen
        await running.press(*["backspace"] * 17, *keys("context.system=3k"), "enter")
        assert "set context.system=3k" in running.screen
        await running.press("up", "enter")
        assert running.session.sent[0].overrides == {"context.system": "3k"}


async def test_a_changed_profile_is_saved_under_a_new_name(private_places: None) -> None:
    from agenttop import paths
    from agenttop.agents.profile import load

    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("a", "e", "5", "0", "k", *["up"] * 5, *keys("busy"), "enter")
        assert "'busy' comes with agenttop" in running.screen
        await running.press(*["backspace"] * 4, *keys("bus-bee"), "enter")
        assert "saved as " in running.screen
        assert "‹ bus-bee ›" in running.screen
        await running.press("up", "up", "enter")
        assert running.session.sent == [c.StartAgents(engine=scenes.URL, profile="bus-bee", target=4)]
    assert load("bus-bee").context.limit == 50_000
    assert (paths.user_profiles() / "bus-bee.toml").is_file()


async def test_the_panel_keeps_what_was_set_in_the_load_that_runs() -> None:
    overrides = {"turn.output.median": "90"}
    frames = [
        msgspec.structs.replace(frame, overrides=overrides) if isinstance(frame, Plan) else frame
        for frame in scenes.running(60)
    ]
    async with console_on(frames, 60.4) as running:
        await running.press("a", "e")
        assert "‹ 90 ›" in running.screen
        await running.press("enter")
        assert running.session.sent[0].overrides == overrides
