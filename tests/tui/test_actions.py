"""Every action of the table, pressed; and what it asks of the session."""

from __future__ import annotations

import msgspec
import pytest

from agenttop.model import commands as c
from agenttop.model.frames import Event, Frame, LoadSample, Missing
from agenttop.tui.actions import ACTIONS, footer
from agenttop.tui.app import Console
from agenttop.tui.screens.agents_panel import AgentsPanel
from agenttop.tui.screens.help import HelpScreen
from agenttop.tui.screens.missing import MissingScreen
from agenttop.tui.screens.prompt import Prompt
from agenttop.tui.screens.quit import QuitScreen
from tests.tui.sources import console_on
from tests.view import scenes, vllm_scenes

RUNNING = scenes.running(60)
NOW = 60.4


@pytest.mark.parametrize(("frames", "now"), [(RUNNING, NOW), ([], 0.0)], ids=["running", "nothing yet"])
async def test_every_action_can_be_pressed(frames: list[Frame], now: float) -> None:
    async with console_on(frames, now) as running:
        for action in ACTIONS:
            for key in action.keys if action.id != "quit" else ():
                await running.press(key)
                assert running.console._exception is None, action.id
                if running.console.screen is not running.console._live:
                    await running.press("escape")
                assert running.console.screen is running.console._live, action.id


def test_every_action_has_its_method_and_its_help() -> None:
    for action in ACTIONS:
        assert hasattr(Console, f"action_{action.id.split('(')[0]}")
        assert action.help


def test_no_key_has_two_meanings() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))


def test_the_footer_is_in_order_of_importance() -> None:
    assert [key for key, _ in footer()][:3] == ["a", "+", "-"]


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        (["plus"], c.AddAgents(count=1)),
        (["equals_sign"], c.AddAgents(count=1)),
        (["minus"], c.AddAgents(count=-1)),
        (["x"], c.StopAll()),
        (["d"], c.Drain()),
        (["p"], c.Pause(on=True)),
        (["1", "2", "enter"], c.SetTarget(target=12)),
        (["7", "t"], c.SetTarget(target=7)),
        (["1", "2", "backspace", "enter"], c.SetTarget(target=1)),
        (["down", "down", "k"], c.StopAgent(agent="a2")),
        (["up", "k"], c.StopAgent(agent="a4")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else None,
)
async def test_a_key_becomes_a_command(keys: list[str], command: c.Command) -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press(*keys)
        assert running.session.sent == [command]


async def test_p_lets_paused_agents_go_on() -> None:
    load = next(frame for frame in reversed(RUNNING) if isinstance(frame, LoadSample))
    async with console_on([*RUNNING, msgspec.structs.replace(load, paused=True)], NOW) as running:
        assert "AGENTS PAUSED" in running.screen
        await running.press("p")
        assert running.session.sent == [c.Pause(on=False)]


async def test_a_number_is_seen_while_it_is_typed_and_can_be_forgotten() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("1", "6")
        assert "agents: 16▏ Enter sets the number" in running.screen
        await running.press("escape", "enter")
        assert "a agents" in running.screen
        assert running.session.sent == []


async def test_plus_before_anything_was_set_up_opens_the_panel() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("plus")
        assert isinstance(running.console.screen, AgentsPanel)
        assert running.session.sent == []


async def test_a_number_before_anything_was_set_up_opens_the_panel_with_it() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("9", "enter")
        assert isinstance(running.console.screen, AgentsPanel)
        assert "‹ 9 ›" in running.screen


@pytest.mark.parametrize("key", ["plus", "minus", "x", "d", "p", "a", "m"])
async def test_where_commands_are_not_obeyed_the_reason_is_said(key: str) -> None:
    async with console_on(RUNNING, NOW, refuses="this is a recording") as running:
        await running.press(key)
        assert running.session.sent == []
        assert running.toasts == ["this is a recording"]


async def test_a_refused_wish_is_said() -> None:
    async with console_on(RUNNING, NOW) as running:
        text = "http://127.0.0.1:1 is not an engine of this session\x1b[31m"
        await running.arrive(Event(t=60.5, event="command.refused", text=text, severity="bad"), now=60.6)
        assert running.toasts == ["http://127.0.0.1:1 is not an engine of this session [31m"]


async def test_stopping_needs_a_row_with_an_agent() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("k")
        await running.press("down", "k")
        assert running.toasts == ["select a row first: ↑ ↓", "no agent of this session is in that slot"]
        assert running.session.sent == []


async def test_a_mark_is_typed_and_sent() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("m")
        assert isinstance(running.console.screen, Prompt)
        await running.press("t", "e", "a", "space", "x", "enter")
        assert running.session.sent == [c.Mark(text="tea x")]


async def test_an_empty_mark_is_none() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("m", "enter", "m", "a", "escape")
        assert running.session.sent == []


async def test_rows_can_be_selected_and_sorted() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("down", "down")
        assert running.console.row == "agent:a2"
        await running.press("pagedown")
        assert running.console.row == "agent:a4"
        await running.press("pageup")
        assert running.console.row == "agent:a1"
        await running.press("s")
        assert "by slot" in running.screen
        await running.press("escape")
        assert running.console.row is None


async def test_another_engine_can_be_looked_at() -> None:
    other = scenes.engine(60.0, engine="http://127.0.0.1:9", url="http://127.0.0.1:9", name="openai")
    async with console_on([*RUNNING, other], NOW) as running:
        assert "engine 2 of 2" in running.screen
        assert f"Engine {scenes.URL}" in running.screen
        await running.press("e")
        assert "Engine http://127.0.0.1:9" in running.screen
        assert "no slots and no agents to show" in running.screen
        await running.press("e")
        assert f"Engine {scenes.URL}" in running.screen


async def test_a_click_selects_the_row_under_it() -> None:
    async with console_on(RUNNING, NOW) as running:
        line = next(number for number, text in enumerate(running.screen.splitlines()) if "  a3  " in text)
        await running.pilot.click("#live", offset=(20, line))
        await running.pilot.pause()
        assert running.console.row == "agent:a3"
        await running.pilot.click("#live", offset=(20, 0))
        assert running.console.row is None


async def test_help_lists_every_key() -> None:
    async with console_on(RUNNING, NOW, (120, 60)) as running:
        await running.press("question_mark")
        assert isinstance(running.console.screen, HelpScreen)
        for action in ACTIONS:
            assert action.help[:30] in running.screen, action.id
        await running.press("question_mark")
        assert running.console.screen is running.console._live


@pytest.mark.parametrize("size", [(80, 60), (120, 60), (200, 60)], ids="{0[0]}x{0[1]}".format)
async def test_help_cuts_no_line(size: tuple[int, int]) -> None:
    async with console_on(scenes.idle(), 8.3, size) as running:
        await running.press("question_mark")
        shown = ""
        for _ in range(4):
            inside = [line[line.find("│") :] for line in running.screen.splitlines() if "│" in line]
            shown += "\n".join(inside)
            assert not [line for line in inside if "…│" in line or "…shift" in line]
            await running.press("pagedown")
        words = " ".join(shown.split())
        for action in ACTIONS:
            assert all(word in words for word in action.help.split()), action.help


async def test_missing_says_why_and_what_would_help() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("w")
        assert isinstance(running.console.screen, MissingScreen)
        assert "no NVIDIA driver, no AMD card" in running.screen
        assert "install the NVIDIA driver" in running.screen


async def test_missing_tells_field_and_engine_apart() -> None:
    version = Missing(t=40.0, what=f"{scenes.URL}:version", why="this build does not know its number")
    async with console_on([*RUNNING, version], NOW) as running:
        await running.press("w")
        assert f"llama.cpp at {scenes.URL}" in running.screen
        assert "version" in running.screen
        assert f"{scenes.URL}:version" not in running.screen
        assert "not of the simulated one" not in running.screen


async def test_missing_beside_a_simulated_engine_says_which_machine_it_is_about() -> None:
    async with console_on([*vllm_scenes.searching(), scenes.no_gpu()], 401.0) as running:
        await running.press("w")
        assert "gpu  of this machine, not of the simulated one" in running.screen


async def test_the_theme_changes_and_comes_back() -> None:
    async with console_on(RUNNING, NOW) as running:
        before = running.console.export_screenshot()
        await running.press("ctrl+t")
        assert running.console.theme == "agenttop-light"
        assert running.console.export_screenshot() != before
        await running.press("ctrl+t")
        assert running.console.theme == "agenttop-dark"


async def test_quit_asks_only_while_agents_run() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("q")
        assert running.console.return_value == "quit"


@pytest.mark.parametrize(("key", "answer"), [("s", "quit"), ("l", "leave")])
async def test_quit_with_agents_asks(key: str, answer: str) -> None:
    async with console_on(scenes.running(60, demo=False), NOW) as running:
        await running.press("q")
        assert isinstance(running.console.screen, QuitScreen)
        assert "4 agents run." in running.screen
        await running.press(key)
        assert running.console.return_value == answer


async def test_one_can_stay() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("q", "escape")
        assert running.console.screen is running.console._live
        assert running.console.is_running


async def test_a_demo_cannot_be_left_running() -> None:
    async with console_on(RUNNING, NOW) as running:
        await running.press("q")
        assert "leave" not in running.screen.split("Quit")[1].split("╯")[0]
        await running.press("l")
        assert isinstance(running.console.screen, QuitScreen)
        await running.press("s")
        assert running.console.return_value == "quit"


async def test_an_attached_console_always_asks() -> None:
    async with console_on(scenes.idle(), 8.3, attached=True) as running:
        await running.press("ctrl+c")
        assert "end the session and quit" in running.screen
        await running.press("l")
        assert running.console.return_value == "leave"


async def test_a_session_that_is_over_is_quit_without_asking() -> None:
    async with console_on(RUNNING, NOW, refuses="the node has gone") as running:
        await running.press("q")
        assert running.console.return_value == "quit"


async def test_ctrl_c_works_over_a_dialog() -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        await running.press("question_mark", "ctrl+c")
        assert running.console.return_value == "quit"
