"""Several engines in the console: keys, mouse, the list, the details; live and in a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenttop.model.clock import ManualClock
from agenttop.model.frames import EngineSample, Event
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream.replay import ReplaySource
from agenttop.stream.rewind import Deck
from agenttop.tui.screens.details import DetailsScreen
from agenttop.tui.screens.engines import EnginesScreen
from tests.tui.sources import Running, console_on
from tests.view import engine_scenes as kinds
from tests.view import scenes

SEVERAL = kinds.several(20)
NOW = 20.4
SGLANG = "http://127.0.0.1:30000"


def shown(running: Running) -> str:
    """The address in the title of the engine's panel."""
    line = next(line for line in running.screen.splitlines() if "Engine http" in line)
    return line.split("Engine ")[1].split()[0]


async def test_e_goes_on_and_shift_e_goes_back() -> None:
    async with console_on(SEVERAL, NOW) as running:
        assert shown(running) == kinds.VLLM
        assert "engine 2 of 5  behind LiteLLM :4000" in running.screen
        await running.press("e")
        assert shown(running) == kinds.ROUTER
        await running.press("E", "E")
        assert shown(running) == kinds.PROXY
        assert "engine 1 of 5  front of 2 deployments" in running.screen
        await running.press("E")
        assert shown(running) == SGLANG


async def test_the_list_chooses_by_key() -> None:
    async with console_on(SEVERAL, NOW, (80, 24)) as running:
        await running.press("l")
        assert isinstance(running.console.screen, EnginesScreen)
        assert "└ vLLM :8000" in running.screen
        await running.press("down", "down", "enter")
        assert "Ollama" in running.screen.splitlines()[0]
        assert "engine 4 of 5" in running.screen


async def test_the_list_closes_and_changes_nothing() -> None:
    async with console_on(SEVERAL, NOW) as running:
        await running.press("l", "down", "escape")
        assert shown(running) == kinds.VLLM


async def test_the_mouse_opens_the_list_and_chooses() -> None:
    async with console_on(SEVERAL, NOW) as running:
        await running.pilot.click(offset=(5, 1))
        await running.pilot.pause()
        assert isinstance(running.console.screen, EnginesScreen)
        lines = running.screen.splitlines()
        row = next(at for at, line in enumerate(lines) if "Ollama :11434" in line)
        await running.pilot.click(offset=(lines[row].index("Ollama"), row))
        await running.pilot.pause()
        assert shown(running) == kinds.OLLAMA


async def test_the_list_follows_what_happens() -> None:
    async with console_on(SEVERAL, NOW) as running:
        await running.press("l")
        await running.arrive(
            Event(t=21.0, event="engine.gone", text="gone", subject=kinds.VLLM),
            kinds.router(21.0, decode_tok_s=777.0),
            now=21.4,
        )
        assert "vLLM :8000" not in running.screen
        assert "777" in running.screen
        await running.press("enter")
        assert "engine 1 of 4" in running.screen


async def test_focus_survives_a_restart_and_falls_back_when_the_engine_is_gone() -> None:
    async with console_on(SEVERAL, NOW) as running:
        await running.press("e")
        down = EngineSample(
            t=21.0, engine=kinds.ROUTER, url=kinds.ROUTER, name="llama.cpp", state="down", note="away"
        )
        await running.arrive(down, now=21.4)
        assert shown(running) == kinds.ROUTER
        assert "DOWN" in running.screen
        await running.arrive(kinds.router(30.0, restarts=1), now=30.4)
        assert shown(running) == kinds.ROUTER
        await running.arrive(Event(t=40.0, event="engine.gone", text="gone", subject=kinds.ROUTER), now=40.4)
        assert shown(running) == kinds.VLLM


async def test_what_is_looked_at_stays_when_another_engine_appears() -> None:
    frames = [*kinds.around(20), *(scenes.engine(float(second)) for second in range(1, 21))]
    async with console_on(frames, NOW) as running:
        assert shown(running) == scenes.URL
        await running.arrive(
            kinds.vllm(21.0, engine="http://127.0.0.1:1", url="http://127.0.0.1:1"), now=21.4
        )
        assert shown(running) == scenes.URL
        assert "engine 2 of 2" in running.screen


async def test_details_scroll_and_go_on_to_the_next_engine() -> None:
    async with console_on(SEVERAL, NOW, (80, 24)) as running:
        await running.press("i")
        assert isinstance(running.console.screen, DetailsScreen)
        assert "vLLM: all that is known of it" in running.screen
        assert "requests ended" not in running.screen
        await running.press("end")
        assert "requests ended" in running.screen
        await running.press("e")
        assert "llama.cpp: all that is known of it" in running.screen
        assert "front of 3 models" in running.screen
        await running.press("i")
        assert "Slots and agents" in running.screen
        assert running.console.screen is running.console._live


async def test_details_from_the_list_are_of_the_chosen_engine() -> None:
    async with console_on(SEVERAL, NOW) as running:
        await running.press("l", "down", "down", "i")
        assert "Ollama: all that is known of it" in running.screen


async def test_without_an_engine_both_say_so() -> None:
    async with console_on([scenes.session()], 1.0) as running:
        for key in ("l", "i"):
            await running.press(key)
            assert "no engine found yet" in running.screen
            await running.press("escape")


@pytest.mark.parametrize("at", [6.0, 14.5])
async def test_in_a_recording_all_is_as_it_was(tmp_path: Path, at: float) -> None:
    session, *frames = SEVERAL
    recorder = Recorder(tmp_path / "a.agenttop", session)  # type: ignore[arg-type]
    for frame in frames:
        recorder.add(frame)
    recorder.close()
    assert recorder.failure is None
    with Recording(tmp_path / "a.agenttop") as recording:
        clock = ManualClock()
        deck = Deck(ReplaySource(recording, clock, at=at, playing=False), clock)
        async with console_on([], 0.0, deck=deck, clock=clock) as replayed:
            live = [frame for frame in SEVERAL if frame.t <= at]
            async with console_on(live, at) as running:
                for keys in (["i"], ["escape", "l"], ["escape", "e"], ["e"], ["i"]):
                    await replayed.press(*keys)
                    await running.press(*keys)
                    here, there = (body(each.screen) for each in (replayed, running))
                    assert here == there


def body(screen: str) -> list[str]:
    """Without the header, the transport bar and the footer, which differ in a replay."""
    return [line for line in screen.splitlines() if line.startswith("│")][:12]
