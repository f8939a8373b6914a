"""A GPU that gets too hot in the middle of a level: live, recorded, replayed, and in the level's figures.

A real node, a real driver, a real llama.cpp server; the unmodified nvidia-ml-py on a stand-in library.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from agenttop.analyse.compare import levels_of
from agenttop.model import commands as c
from agenttop.model.frames import Event, Frame, GpuSample
from agenttop.record.read import Recording
from agenttop.stream.history import HISTORY_S
from agenttop.stream.replay import MOST_FRAMES
from tests.collect import nvml
from tests.collect.nvml.rig import H100
from tests.node.live import live
from tests.view.draw import drawn

pytestmark = pytest.mark.skipif(nvml.why_not() is not None, reason=str(nvml.why_not()))

QUICK = str(Path(__file__).with_name("quick.toml"))
SHARE = 0.6
"""Of the time, while the GPU is too hot."""
HOT_S = 5.0


class Gpu:
    """A GPU by the script of the stand-in library."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._values: dict[str, object] = {"count": 1, "SystemGetDriverVersion": "580.95.05"}
        self._values |= {f"0.{name}": value for name, value in H100.items()}
        self.set(field__270="0 3", field__74="0 3")

    def set(self, **values: object) -> None:
        self._values |= {f"0.{name.replace('__', '.')}": value for name, value in values.items()}
        nvml.write(self._script, self._values)

    def overheat(self) -> None:
        """For a while: the clocks are held down for a share of the time."""
        rate = int(SHARE * 1e9)
        self.set(DeviceGetCurrentClocksEventReasons="0x40", field__270=f"0 3 +{rate}")
        time.sleep(HOT_S)
        self.set(DeviceGetCurrentClocksEventReasons=0, field__270=f"{int(HOT_S * rate)} 3")


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    script = tmp_path / "gpu"
    made = Gpu(script)
    for name, value in nvml.environment(script).items():
        monkeypatch.setenv(name, value)
    return made


def strip_of(screen: str) -> list[str]:
    """The line of the GPU's panel that tells what held it down over the last minutes."""
    return re.findall(r"│ (held .*?) *│", screen)


def told(frames: list[Frame]) -> list[tuple[str, str]]:
    return [
        (frame.event, frame.text)
        for frame in frames
        if isinstance(frame, Event) and frame.event.startswith("gpu.")
    ]


@pytest.mark.slow
@pytest.mark.engine
def test_a_hot_gpu_is_in_the_strip_the_recording_the_replay_and_the_level(
    llama_server: Any, tmp_path: Path, gpu: Gpu
) -> None:
    out = tmp_path / "hot.agenttop"
    with live(urls=[llama_server.url], out=out) as session:
        session.until(lambda: session.newest(GpuSample))
        session.source.send(c.RunPlan(engine=llama_server.url, profile=QUICK, levels=[1], seconds=19.0))
        session.until(lambda: session.turns)
        gpu.overheat()
        session.until_ended(60)
        story: list[Frame] = session.frames

    samples = [frame for frame in story if isinstance(frame, GpuSample)]
    assert {sample.name for sample in samples} == {"NVIDIA H100 80GB HBM3"}
    hot = [sample.throttle_shares.get("thermal (hw)", 0.0) for sample in samples]
    lost = sum(share * (sample.window_s or 0.0) for share, sample in zip(hot, samples, strict=True))
    assert lost == pytest.approx(HOT_S * SHARE, rel=0.05), "no second of it is missed between two looks"
    (begin, end_of_it) = told(story)
    assert begin == ("gpu.throttle", "GPU0 held down by thermal (hw)")
    assert end_of_it == ("gpu.throttle-end", "GPU0 no longer held down by thermal (hw) (3.0 s in all)")

    end = samples[-1].t
    screen = drawn([frame for frame in story if frame.t <= end], end, 200, 60)
    assert "thermal" in "".join(strip_of(screen))
    with Recording(out) as recording:
        again = [frame for frame in recording.frames() if isinstance(frame, GpuSample)]
        assert again == samples
        state = recording.state_at(end, HISTORY_S, MOST_FRAMES)[0]
        assert strip_of(drawn(state, end, 200, 60)) == strip_of(screen)
        (row,) = levels_of(recording)

    within = [sample for sample in samples if row.t_start + row.warm_up_s <= sample.t < row.t_end]
    share = sum(sample.throttle_shares["thermal (hw)"] for sample in within) / len(within)
    assert 0.1 < share < SHARE
    assert row.throttle_shares["thermal (hw)"] == pytest.approx(share, rel=0.1)
    assert row.throttled_why is not None
    assert row.throttled_why.startswith("throttled ")
    assert "thermal (hw) (GPU0)" in row.throttled_why
