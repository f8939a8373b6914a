"""Moving in time: a live session that is rewound, and a real recording that is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agenttop.model.clock import ManualClock
from agenttop.model.frames import Session
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream.replay import ReplaySource
from agenttop.stream.rewind import Deck
from agenttop.tui.actions import footer
from tests.tui.sources import console_on
from tests.view import scenes
from tests.view.draw import drawn

RUNNING = scenes.running(120)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    session = RUNNING[0]
    assert isinstance(session, Session)
    path = tmp_path / "a.agenttop"
    recorder = Recorder(path, session)
    for frame in RUNNING:
        recorder.add(frame)
    recorder.commit()
    recorder.close()
    assert recorder.failure is None
    return path


OPENED: list[Recording] = []


@pytest.fixture(autouse=True)
def _close_recordings() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def replay(path: Path, at: float, playing: bool = False) -> tuple[Deck, ManualClock]:
    clock = ManualClock(100.0)
    OPENED.append(Recording(path))
    return Deck(ReplaySource(OPENED[-1], clock, at=at, playing=playing), clock), clock


async def test_a_live_session_can_be_held_and_gone_on_with() -> None:
    async with console_on(RUNNING, 120.2) as running:
        await running.press("space")
        assert "PAUSED" in running.screen
        held = running.screen.splitlines()[0]
        await running.arrive(scenes.host(121.0), scenes.engine(121.0), now=121.2)
        assert running.screen.splitlines()[0] == held
        await running.press("end")
        assert "PAUSED" not in running.screen
        assert "00:02:01" in running.screen.splitlines()[0]


async def test_going_back_shows_the_past_as_it_was() -> None:
    async with console_on(RUNNING, 120.2) as running:
        await running.press("space", "left")
        lines = running.screen.splitlines()
        assert "REWIND" in lines[1]
        assert "00:01:50" in lines[0]
        assert "End live" in running.screen


async def test_a_recording_shows_the_picture_of_its_session(recorded: Path) -> None:
    """One code path: apart from transport bar and state words the picture is the live one."""
    deck, clock = replay(recorded, 100.4)
    async with console_on([], 0.0, deck=deck, clock=clock) as running:
        live = drawn([frame for frame in RUNNING if frame.t <= 100.4], 100.4, 120, 38, footer=footer())
        shown = running.screen.splitlines()
        assert [shown[0], *shown[2:37]] == [live.splitlines()[0], *live.splitlines()[2:37]]
        assert "REPLAY" in shown[1]


async def test_keys_move_a_recording(recorded: Path) -> None:
    deck, clock = replay(recorded, 60.0)
    async with console_on([], 0.0, deck=deck, clock=clock) as running:
        for keys, expected in (
            (["right"], "00:01:10"),
            (["left", "left"], "00:00:50"),
            (["shift+right"], "00:01:50"),
            (["ctrl+left"], "00:00:50"),
            (["home"], "00:00:00"),
            (["end"], "00:02:00"),
        ):
            await running.press(*keys)
            assert expected in running.screen.splitlines()[0], keys
        await running.press("left_square_bracket")
        assert "00:01:48" in running.screen.splitlines()[0]


async def test_a_recording_plays_at_the_speed_asked_for(recorded: Path) -> None:
    deck, clock = replay(recorded, 20.0, playing=True)
    async with console_on([], 0.0, deck=deck, clock=clock) as running:
        await running.press("greater_than_sign", "greater_than_sign")
        assert "4×" in running.screen
        clock.advance(5.0)
        running.console.drain()
        await running.pilot.pause()
        assert "00:00:40" in running.screen.splitlines()[0]
        await running.press("space")
        assert "PAUSED" in running.screen
        await running.press("less_than_sign")
        assert "2×" in running.screen


async def test_one_can_go_to_a_time(recorded: Path) -> None:
    deck, clock = replay(recorded, 20.0)
    async with console_on([], 0.0, deck=deck, clock=clock) as running:
        await running.press("g", "1", "colon", "1", "5", "enter")
        assert "00:01:15" in running.screen.splitlines()[0]
        await running.press("g", "x", "enter")
        assert running.toasts == ["'x' is not a time (write 90s, 12:34 or 1:02:03)"]


async def test_nothing_can_be_started_in_a_recording(recorded: Path) -> None:
    deck, clock = replay(recorded, 20.0)
    async with console_on([], 0.0, deck=deck, clock=clock) as running:
        await running.press("plus")
        assert running.toasts == ["this is a recording: nothing can be started or stopped in it"]
        await running.press("q")
        assert running.console.return_value == "quit"


async def test_what_cannot_be_done_to_a_live_session_is_said() -> None:
    async with console_on(RUNNING, 120.2) as running:
        await running.press("greater_than_sign")
        assert running.toasts == ["a live session cannot be sped up: go back in it first"]
