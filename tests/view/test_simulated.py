"""A screen of simulated figures says so, at every size and in every state; one of real figures does not."""

from __future__ import annotations

import msgspec
import pytest

from agenttop.model.frames import Event, Frame, GpuSample
from agenttop.view import simulated
from agenttop.view.layout import compose
from agenttop.view.look import Look
from agenttop.view.spans import plain
from tests.view import scenes, vllm_scenes
from tests.view.draw import drawn, folded

SIZES = [(60, 16), (80, 24), (100, 30), (120, 40), (160, 45), (200, 60)]
NOTICE = "SIMULATED RTX 5090 · 20x"


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_every_size_says_so_in_header_and_engine_panel(size: tuple[int, int]) -> None:
    text = drawn(vllm_scenes.searching(), 401.0, *size)
    assert NOTICE in "\n".join(text.splitlines()[:2])
    assert text.count(NOTICE) + text.count("SIM 20x") >= 2


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_real_engines_are_not_called_simulated(size: tuple[int, int]) -> None:
    for frames, now in (
        (vllm_scenes.searching(60, simulated=False), 60.4),
        (scenes.running(40, gpus=1), 40.4),
        (scenes.idle(), 8.3),
    ):
        assert "SIM" not in drawn(frames, now, *size)


@pytest.mark.parametrize("state", ["down", "loading", "starting", "busy", "unsupported"])
def test_it_says_so_while_the_engine_does_not_answer(state: str) -> None:
    last = vllm_scenes.vllm(420.0, state=state, note="wait", simulated=None, speedup=None)
    if state == "busy":
        last = msgspec.structs.replace(last, simulated="RTX 5090", speedup=20.0)
    text = drawn([*vllm_scenes.searching(), last], 421.0, 80, 24)
    assert NOTICE in text


def test_an_engine_named_beside_a_simulated_one_and_running_is_what_it_says() -> None:
    other = vllm_scenes.vllm(400.0, engine="http://127.0.0.1:9000", url="http://127.0.0.1:9000")
    frames = vllm_scenes.searching()
    store = folded([*frames, other], 401.0)
    assert simulated.notice(store, store.engines["http://127.0.0.1:9000"]) is None


def test_the_demo_notice_gives_way() -> None:
    frames = [
        msgspec.structs.replace(frame, demo=True) if frame.t == 0.0 and hasattr(frame, "demo") else frame
        for frame in vllm_scenes.searching()
    ]
    text = drawn(frames, 401.0, 80, 24)
    assert "random weights" not in text
    assert NOTICE in text


def gpus(engine_url: str | None) -> tuple[list[str], list[str]]:
    """Names of the GPUs in the picture, and its GPU lines, on a host with a GPU of its own."""
    real = msgspec.structs.replace(scenes.gpu(400.0), gpu="GPU-1234", name="NVIDIA RTX A2000")
    local = scenes.engine(400.0)
    store = folded([*vllm_scenes.searching(), real, local], 401.0)
    look = Look(engine=engine_url)
    lines = [plain(line) for line in compose(store, 80, 24, look).lines]
    return [gpu.name for gpu in simulated.gpus(store, look)], [line for line in lines if "VRAM" in line]


def test_gpus_of_the_engine_in_focus_and_of_nobody_else() -> None:
    names, lines = gpus(vllm_scenes.URL)
    assert names == ["NVIDIA GeForce RTX 5090"]
    assert lines[0].startswith("SIM0")
    names, lines = gpus(scenes.URL)
    assert names == ["NVIDIA RTX A2000"]
    assert lines[0].startswith("GPU0")


def test_the_host_beside_them_is_told_apart() -> None:
    assert "Host the real one, which simulates" in drawn(vllm_scenes.searching(), 401.0, 120, 40)
    assert "the real one" not in drawn(scenes.running(20), 20.2, 120, 40)


@pytest.mark.parametrize("pace", [1.0, 20.0, 100.0])
def test_frames_that_come_further_apart_in_a_fast_session_are_not_stale(pace: float) -> None:
    """Once a second of the wall clock, whatever that is in session time."""
    session = msgspec.structs.replace(scenes.session(demo=False), speedup=pace)
    frames: list[Frame] = [session]
    for second in range(1, 30):
        frames += [scenes.host(second * pace), vllm_scenes.vllm(second * pace, decode_tok_s=100.0)]
    store = folded(frames, 29.9 * pace)
    assert store.stale_s is None
    assert None not in store.last(vllm_scenes.URL, "decode_tok_s", int(20 * min(pace, 10)))
    store.feed([], 34 * pace)
    assert store.stale_s is not None


@pytest.mark.parametrize("pace", [0.0, -3.0, float("nan"), float("inf"), 1e300])
def test_a_pace_that_cannot_be_changes_nothing(pace: float) -> None:
    store = folded([msgspec.structs.replace(scenes.session(), speedup=pace), scenes.host(1.0)], 10.0)
    assert store.pace == 1.0
    assert store.stale_s == 9.0


def test_an_engine_that_is_gone_leaves_nothing_behind() -> None:
    frames = vllm_scenes.searching()
    gone = Event(t=402.0, event="engine.gone", text="vLLM is gone", subject=vllm_scenes.URL)
    store = folded([*frames, gone], 402.0)
    assert vllm_scenes.URL not in store.engines
    assert not any(isinstance(gpu, GpuSample) for gpu in store.gpus.values())
    assert drawn([*frames, gone], 402.0, 80, 24)
    other = Event(t=402.0, event="engine.gone", text="another is gone", subject="http://127.0.0.1:1")
    assert vllm_scenes.URL in folded([*frames, other], 402.0).engines
