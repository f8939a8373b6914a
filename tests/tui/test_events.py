"""The list of what happened: whole texts, scrolled, and still while one reads."""

from __future__ import annotations

import pytest

from agenttop.model.frames import Event, Frame
from agenttop.tui.screens.events import EventsScreen
from agenttop.view.rows import engine_in_focus
from tests.tui.sources import console_on
from tests.view import scenes, vllm_scenes

LONG = " ".join(f"word{number}" for number in range(60))


def happened(count: int) -> list[Frame]:
    return [
        scenes.session(),
        *(Event(t=float(number), event="note", text=f"thing {number} {LONG}") for number in range(count)),
    ]


def inside(screen: str) -> list[str]:
    """The lines of the dialog, without what is seen beside it."""
    return [line.split("│")[1] for line in screen.splitlines() if line.count("│") >= 2]


@pytest.mark.parametrize("key", ["v", "enter"])
async def test_v_and_enter_show_every_text_whole(key: str) -> None:
    async with console_on(happened(3), 3.0, (80, 24)) as running:
        assert "word59" not in running.screen
        await running.press(key)
        assert isinstance(running.console.screen, EventsScreen)
        assert "word59" in running.screen
        assert "thing 2" in running.screen
        await running.press(key)
        assert not isinstance(running.console.screen, EventsScreen)


async def test_enter_still_sets_a_number_that_was_typed() -> None:
    async with console_on(scenes.running(40), 40.4) as running:
        await running.press("7", "enter")
        assert running.session.sent
        assert not isinstance(running.console.screen, EventsScreen)


async def test_it_scrolls_to_the_first_event_and_back() -> None:
    async with console_on(happened(40), 40.0, (80, 24)) as running:
        await running.press("v")
        assert "thing 39" in running.screen
        await running.press("end")
        assert "thing 0 " in running.screen
        assert "thing 39" not in running.screen
        await running.press("down")
        assert "thing 0 " in running.screen
        await running.press("home")
        assert "thing 39" in running.screen


async def test_what_is_being_read_stays_where_it_is_when_more_happens() -> None:
    async with console_on(happened(40), 40.0, (80, 24)) as running:
        await running.press("v", *["pagedown"] * 4)
        before = inside(running.screen)
        assert len(before) > 15
        await running.arrive(Event(t=41.0, event="note", text=f"news {LONG}"), now=41.0)
        assert inside(running.screen) == before
        await running.press("home")
        assert "news" in running.screen
        await running.arrive(Event(t=42.0, event="note", text="more news"), now=42.0)
        assert "more news" in running.screen


async def test_nothing_has_happened_yet() -> None:
    async with console_on([scenes.session()], 1.0) as running:
        await running.press("v")
        assert "nothing has happened yet" in running.screen


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
@pytest.mark.parametrize("key", ["v", "w", "question_mark", "q", "a"])
async def test_every_dialog_over_a_simulated_engine_says_so(key: str, size: tuple[int, int]) -> None:
    async with console_on(vllm_scenes.searching(), 401.0, size) as running:
        assert engine_in_focus(running.console.store) is not None
        await running.press(key)
        assert "SIMULATED RTX 5090 · 20x" in running.screen
