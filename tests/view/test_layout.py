"""Whatever the frames hold and whatever the size: a whole picture, of exactly that size."""

from __future__ import annotations

import math
import typing
import unicodedata

import msgspec
import pytest

from agenttop.model.frames import (
    FRAME_TYPES,
    AgentSample,
    EngineSample,
    Frame,
    HostSample,
    Level,
    LoadSample,
    RecordingState,
)
from agenttop.view.gpu_lines import machine_lines
from agenttop.view.layout import compose
from agenttop.view.look import Look, Play
from agenttop.view.panels.details import details
from agenttop.view.panels.engines import engines
from agenttop.view.panels.machine import machine
from agenttop.view.panels.missing import missing
from agenttop.view.spans import ROLES, plain, width
from tests.view import scenes
from tests.view.draw import drawn, folded

SCENES: dict[str, list[Frame]] = {
    "nothing": [],
    "session only": [scenes.session()],
    "idle": scenes.idle(),
    "running": scenes.running(40),
    "two GPUs": scenes.running(40, gpus=2),
    "one GPU": scenes.running(40, gpus=1),
    "many slots": scenes.running(20, agents=40, slots=256, unified=True),
    "loading": scenes.loading(),
    "down": scenes.down(),
}
PLAY = Play(
    live=False, playing=False, speed=0.25, position=20.0, start=0.0, duration=40.0, words=("REPLAY", "PAUSED")
)


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_has_exactly_the_size_it_is_asked_for(name: str) -> None:
    store = folded(SCENES[name], 41.0)
    looks = (Look(), Look(play=PLAY, row="agent:a2", footer=(("a", "agents"),), hint="agents: 4"))
    for columns in (1, 17, 59, 60, 61, 73, 80, 99, 100, 117, 159, 160, 200):
        for rows in (1, 16, 24, 29, 30, 45, 60):
            for look in looks if rows in (16, 24, 45) else looks[:1]:
                picture = compose(store, columns, rows, look)
                assert len(picture.lines) == rows, (columns, rows)
                assert {width(line) for line in picture.lines} == {columns}, (columns, rows)
                assert all(role.removesuffix("@") in ROLES for line in picture.lines for _, role in line)


@pytest.mark.parametrize("name", SCENES)
def test_no_panel_fails(name: str) -> None:
    for size in ((60, 16), (80, 24), (120, 40), (200, 60)):
        assert "cannot be drawn" not in drawn(SCENES[name], 41.0, *size)


@pytest.mark.parametrize("name", SCENES)
def test_no_glyph_is_wider_than_a_cell(name: str) -> None:
    text = drawn(SCENES[name], 41.0, 200, 60)
    assert not [char for char in text if unicodedata.east_asian_width(char) in "WF"]
    assert "\x1b" not in text


def test_too_small_a_window_says_so() -> None:
    assert (
        drawn(scenes.idle(), width=40, height=10)
        == "agenttop needs 60 x 16 cells or more;\nhere are 40 x 10\n"
    )


def test_a_panel_that_fails_says_so_and_the_others_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[object]:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr("agenttop.view.layout.host", broken)
    text = drawn(scenes.running(20))
    assert "the host panel cannot be drawn: OverflowError" in text
    assert "decode" in text


UNSAFE = ("Cc", "Cf", "Cs", "Mn")

HOSTILE = "\x1b[31mred\x07 \u202egpj.exe 千问模型 \U0001f600 e\u0301\u0301\u0301 " + "x" * 4000


def hostile(frame_type: type[Frame], number: float) -> Frame:
    """Every text hostile, every number the given one."""
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(frame_type):
        kind = str(field.type)
        if field.name == "t":
            values["t"] = 1.0
        elif "dict[str, int]" in kind:
            values[field.name] = {HOSTILE: int(number) if math.isfinite(number) else 3}
        elif "dict[str, float]" in kind:
            values[field.name] = {HOSTILE: number}
        elif "dict" in kind:
            values[field.name] = {HOSTILE: HOSTILE}
        elif "list[str]" in kind:
            values[field.name] = [HOSTILE]
        elif "list[int]" in kind:
            values[field.name] = [int(number) if math.isfinite(number) else 3]
        elif "list[float]" in kind:
            values[field.name] = [number]
        elif "str" in kind:
            values[field.name] = HOSTILE
        elif "bytes" in kind:
            values[field.name] = b"\x00" * 7
        elif "bool" in kind:
            values[field.name] = True
        elif "int" in kind and math.isfinite(number):
            values[field.name] = int(number)
        else:
            values[field.name] = number
    return frame_type(**values)


@pytest.mark.parametrize("number", [-5.0, 0.0, 1e18, math.inf, math.nan])
def test_odd_frames_neither_crash_nor_reach_the_terminal_raw(number: float) -> None:
    store = folded([hostile(frame_type, number) for frame_type in FRAME_TYPES], 2.0)
    for size in ((80, 24), (120, 40), (200, 60)):
        picture = compose(store, *size, Look())
        assert {width(line) for line in picture.lines} == {size[0]}
        text = "\n".join(plain(line) for line in picture.lines)
        assert not [
            char for char in text if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Mn")
        ]


@pytest.mark.parametrize("number", [-5.0, 0.0, 1e18, math.inf, math.nan])
@pytest.mark.parametrize("state", ["ok", HOSTILE], ids=["ok", "hostile"])
def test_odd_engines_can_be_listed_and_told_of(number: float, state: str) -> None:
    frames = [hostile(frame_type, number) for frame_type in FRAME_TYPES]
    odd = next(frame for frame in frames if isinstance(frame, EngineSample))
    store = folded([*frames, msgspec.structs.replace(odd, state=state)], 2.0)
    # A latency of nothing is not shown, and so is none of the past.
    for latency in store.latencies.values():
        latency.update({name: msgspec.structs.replace(one, count=3, t=2.0) for name, one in latency.items()})
    told = [*details(store, odd, 72), *engines(store, 72, 20, odd.engine)[0], *missing(store, 72)]
    told += machine(store, 72)
    text = "\n".join([*(plain(line) for line in told), *machine_lines(store)])
    assert not [char for char in text if char != "\n" and unicodedata.category(char) in UNSAFE]
    assert max(width(line) for line in told) <= 72


def optional(frame_type: type[Frame]) -> list[str]:
    kinds = typing.get_type_hints(frame_type)
    return [name for name, kind in kinds.items() if type(None) in typing.get_args(kind)]


OPTIONAL = {frame_type: optional(frame_type) for frame_type in FRAME_TYPES}


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("pattern", range(5))
def test_any_part_of_a_sample_may_be_missing(every: int, pattern: int) -> None:
    """None in any field that may be None, in any frame of a real session."""
    frames = []
    for number, frame in enumerate(scenes.running(3, gpus=1)):
        gone = [
            name for at, name in enumerate(OPTIONAL[type(frame)]) if (number + at * 7 + pattern) % every == 0
        ]
        frames.append(msgspec.structs.replace(frame, **dict.fromkeys(gone)))
    for size in ((80, 24), (120, 40)):
        assert "cannot be drawn" not in drawn(frames, 3.2, *size)


def test_what_is_missing_is_a_dash_and_not_a_zero() -> None:
    frames: list[Frame] = [scenes.session(demo=False), HostSample(t=1.0)]
    frames.append(EngineSample(t=1.0, engine=scenes.URL, url=scenes.URL, name="openai", state="ok"))
    frames.append(
        AgentSample(t=1.0, agent="a1", engine=scenes.URL, profile="human", state="queued", state_since=0.5)
    )
    text = drawn(frames, 1.2, 80, 24)
    figures = "\n".join(text.splitlines()[3:10])
    assert "0 %" not in figures
    assert "–" in figures


def test_the_selected_row_can_be_found_again_by_its_line() -> None:
    store = folded(scenes.running(40), 40.2)
    for size in ((80, 24), (120, 40), (200, 60)):
        picture = compose(store, *size, Look(row="agent:a3"))
        [line] = [number for number, key in picture.rows_at.items() if key == "agent:a3"]
        assert plain(picture.lines[line]).lstrip("│ ").startswith("›")
        assert " a3 " in plain(picture.lines[line])


def test_a_long_table_follows_the_selection_and_sums_up_the_rest() -> None:
    frames = scenes.running(20, agents=2, slots=256, unified=True)
    text = drawn(frames, 20.2, 80, 24)
    assert "more: 2" in text
    below = drawn(frames, 20.2, 80, 24, row="slot:200")
    assert "›200  –" in below
    assert "a1" not in below.split("─ Events")[0].split("Slots and agents")[1]


def test_two_pictures_of_one_second_are_the_same() -> None:
    store = folded(scenes.running(40), 40.2)
    assert compose(store, 120, 40, Look()) == compose(store, 120, 40, Look())


def test_a_client_that_is_the_limit_says_so_at_every_size() -> None:
    limited = LoadSample(t=20.1, engine=scenes.URL, target=4, active=4, client_limited="its loop was late")
    for size in ((60, 16), (80, 24), (120, 40), (200, 60)):
        assert "CLIENT-LIMITED" in drawn([*scenes.running(20), limited], 20.2, *size)


def test_a_recording_that_stopped_says_why() -> None:
    stopped = RecordingState(t=20.1, state="stopped", why="no space left on the device")
    for size in ((80, 24), (120, 40), (200, 60)):
        text = drawn([*scenes.running(20), stopped], 20.2, *size)
        assert "REC STOPPED" in text
        assert "recording stopped: no space left" in text


def test_a_level_of_a_run_counts_down() -> None:
    level = Level(t=10.0, level=1, agents=4, t_end=70.0)
    assert "level 2  50 s left" in drawn([*scenes.running(20), level], 20.2)


def test_a_demo_says_so_at_every_size() -> None:
    for size in ((60, 16), (80, 24), (120, 40), (200, 60)):
        assert "DEMO engine: random weights" in drawn(scenes.running(20), 20.2, *size)
