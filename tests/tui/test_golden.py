"""Whole screens as text, at the three sizes they are designed for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from agenttop.model.frames import Event, Frame
from agenttop.tui.actions import footer
from agenttop.view.look import Play
from tests.tui.sources import console_on
from tests.view import engine_scenes, scenes, vllm_scenes
from tests.view.draw import drawn
from tests.view.machine_scenes import MACHINES

SIZES = [(80, 24), (120, 40), (200, 60)]

Golden = Callable[[str, str], None]


def replayed(frames: list[Frame]) -> Play:
    events = [frame for frame in frames if isinstance(frame, Event)]
    return Play(
        live=False,
        playing=True,
        speed=4.0,
        position=120.4,
        start=0.0,
        duration=200.0,
        words=("REPLAY", "4x"),
        events=events,
    )


RUNNING = scenes.running()
SCENES: dict[str, tuple[list[Frame], float, Play | None]] = {
    "idle-no-gpu": (scenes.idle(), 8.3, None),
    "four-agents": (RUNNING, 200.4, None),
    "four-agents-gpu": (scenes.running(gpus=1, demo=False), 200.4, None),
    "two-gpus": (scenes.running(60, gpus=2, demo=False), 60.4, None),
    "unified-256-slots": (scenes.running(60, agents=8, slots=256, unified=True), 60.4, None),
    "replay": ([frame for frame in RUNNING if frame.t <= 120.4], 120.4, replayed(RUNNING)),
    "stale": (scenes.running(60), 72.0, None),
    "down": (scenes.down(), 61.5, None),
    "loading": (scenes.loading(), 1.6, None),
    "simulated-search": (vllm_scenes.searching(), 401.0, None),
    "vllm": (vllm_scenes.searching(60, simulated=False, trouble=False, found=False), 60.4, None),
    "ranks": (engine_scenes.with_ranks(gpus=2), 60.4, None),
    "front-of-three": (engine_scenes.front(), 40.4, None),
    "tells-nothing": (engine_scenes.silent(), 20.4, None),
    "last-request": (engine_scenes.slow_front(), 40.4, None),
}


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", SCENES)
def test_live_screen(name: str, size: tuple[int, int], golden: Golden) -> None:
    frames, now, play = SCENES[name]
    keys = footer(obeyed=play is None)
    golden(f"{name}-{size[0]}x{size[1]}", drawn(frames, now, *size, play=play, footer=keys))


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", MACHINES)
def test_machines_on_the_live_screen(name: str, size: tuple[int, int], golden: Golden) -> None:
    scene, seconds = MACHINES[name]
    golden(f"{name}-{size[0]}x{size[1]}", drawn(scene(), seconds + 0.4, *size, footer=footer()))


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", ["thermal-episode", "container"])
async def test_machine_screen(name: str, size: tuple[int, int], golden: Golden) -> None:
    scene, seconds = MACHINES[name]
    async with console_on(scene(), seconds + 0.4, size) as running:
        await running.press("h")
        golden(f"machine-{name}-{size[0]}x{size[1]}", running.screen)
        if size[1] < 60:
            await running.press("pagedown", "pagedown")
            golden(f"machine-{name}-below-{size[0]}x{size[1]}", running.screen)
        await running.press("h")
        assert running.screen == drawn(scene(), seconds + 0.4, *size, footer=footer())


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
async def test_missing_by_gpu(size: tuple[int, int], golden: Golden) -> None:
    scene, seconds = MACHINES["two-3090-one-lost"]
    async with console_on(scene(), seconds + 0.4, size) as running:
        await running.press("w")
        golden(f"missing-of-gpus-{size[0]}x{size[1]}", running.screen)


DIALOGS = {"panel": "a", "quit": "q", "help": "question_mark", "missing": "w"}


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", DIALOGS)
async def test_dialog(name: str, size: tuple[int, int], golden: Golden) -> None:
    async with console_on(scenes.running(40), 40.4, size) as running:
        await running.press(DIALOGS[name])
        golden(f"{name}-{size[0]}x{size[1]}", running.screen)


ENGINE_DIALOGS = {"engines": "l", "details": "i", "missing-of-several": "w"}


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", ENGINE_DIALOGS)
async def test_dialog_about_engines(name: str, size: tuple[int, int], golden: Golden) -> None:
    async with console_on(engine_scenes.several(), 60.4, size) as running:
        await running.press(ENGINE_DIALOGS[name])
        golden(f"{name}-{size[0]}x{size[1]}", running.screen)


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
async def test_events_whole(size: tuple[int, int], golden: Golden) -> None:
    async with console_on(vllm_scenes.searching(), 401.0, size) as running:
        await running.press("v")
        golden(f"events-{size[0]}x{size[1]}", running.screen)


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
async def test_the_console_shows_what_the_view_draws(size: tuple[int, int]) -> None:
    async with console_on(RUNNING, 200.4, size) as running:
        assert running.screen == drawn(RUNNING, 200.4, *size, footer=footer())


async def test_the_footer_ends_with_help_and_quit_in_sight() -> None:
    text = drawn(scenes.idle(), 8.3, 80, 24, footer=footer())
    last = text.splitlines()[-1]
    assert "? help" in last
    assert "q quit" in last


def test_pictures_of_growing_width_lose_nothing_of_the_header() -> None:
    headers = [drawn(RUNNING, 200.4, width, 24, footer=footer()).splitlines()[0] for width in range(60, 99)]
    kept = [sum(word in header for word in ("box1", "llama.cpp", "00:03:20", "REC")) for header in headers]
    assert all(one <= other for one, other in pairwise(kept))
    assert kept[-1] == 4
