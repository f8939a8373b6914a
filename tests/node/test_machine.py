"""Host, GPUs and processes side by side: what hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agenttop.collect.gpu.base import GpuOpening, GpuReading, Reasons
from agenttop.collect.gpu.detect import Detected
from agenttop.collect.host import HostSampler
from agenttop.model.clock import ManualClock
from agenttop.model.frames import Event, Frame, GpuSample, Hardware, HostSample, Missing, OwnSample
from agenttop.node import machine
from agenttop.node.machine import Changes, MachineWatch, Numbers, Worker


def sample(t: float, gpu: str = "GPU-1", index: int = 0) -> GpuSample:
    return GpuSample(t=t, gpu=gpu, index=index, vendor="nvidia", name="X", util_fraction=0.5)


class Card:
    """An adapter with one GPU that can be made to hang or to fail."""

    def __init__(self, gpu: str = "GPU-1", vendor: str = "nvidia") -> None:
        self.vendor = vendor
        self.gpu = gpu
        self.free = threading.Event()
        self.free.set()
        self.looks = 0
        self.fails = False
        self.closed = False
        self.why: str | None = None
        self.threads: set[str] = set()

    def open(self, t: float) -> GpuOpening:
        return GpuOpening(found=True)

    def sample(self, t: float) -> GpuReading:
        self.looks += 1
        self.threads.add(threading.current_thread().name)
        self.free.wait(20)
        if self.fails:
            raise RuntimeError("a defect")
        reasons = Reasons(self.gpu, t)
        if self.why is not None:
            reasons.add("fan_fraction", self.why)
        return GpuReading(samples=[sample(t, self.gpu)], missing=reasons.frames)

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def watching(
    monkeypatch: pytest.MonkeyPatch, *cards: Card, detect: Callable[..., Detected] | None = None
) -> AsyncIterator[tuple[MachineWatch, ManualClock, list[Frame]]]:
    clock = ManualClock(100.0)
    found = Detected(adapters=list(cards), missing=[])
    monkeypatch.setattr(machine, "detect", detect or (lambda *_, **__: found))
    watch = MachineWatch(clock, lambda: clock.now - 100.0, dict)
    try:
        yield watch, clock, await watch.open()
    finally:
        for card in cards:
            card.free.set()
        await watch.close()


def of(frames: list[Frame], kind: type[Any]) -> list[Any]:
    return [frame for frame in frames if isinstance(frame, kind)]


async def test_one_look_gives_host_gpus_and_own_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    async with watching(monkeypatch, card) as (watch, clock, opened):
        assert len(of(opened, Hardware)) == 1
        clock.advance(1.0)
        frames = await watch.sample()
        assert [frame.t for frame in of(frames, GpuSample)] == [1.0]
        assert len(of(frames, HostSample)) == len(of(frames, OwnSample)) == 1
    assert card.closed
    assert card.threads == {"gpu nvidia"}, "the library of a vendor is called from one thread"


async def test_a_driver_that_hangs_holds_up_nobody_and_its_gpu_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, well = Card("GPU-1"), Card("GPU-2", "amd")
    async with watching(monkeypatch, stuck, well) as (watch, clock, _):
        clock.advance(1.0)
        assert [gpu.gpu for gpu in of(await watch.sample(), GpuSample)] == ["GPU-1", "GPU-2"]
        stuck.free.clear()
        seen: list[Frame] = []
        for _ in range(6):
            clock.advance(1.0)
            frames = await watch.sample()
            assert of(frames, HostSample), "the host is sampled all the same"
            assert "GPU-2" in [gpu.gpu for gpu in of(frames, GpuSample)]
            seen += frames
        assert stuck.looks == 2, "nothing new is asked while a call has not come back"
        late = [gpu for gpu in of(seen, GpuSample) if gpu.gpu == "GPU-1"]
        assert {gpu.state for gpu in late} == {"late"}
        assert late[-1].age_s == pytest.approx(5.0)
        assert (late[-1].t, late[-1].util_fraction) == (7.0, 0.5)
        stuck.free.set()
        clock.advance(1.0)
        await asyncio.sleep(0.1)
        back = [gpu for gpu in of(await watch.sample(), GpuSample) if gpu.gpu == "GPU-1"]
        assert [gpu.state for gpu in back] == ["ok"]


async def test_the_node_ends_though_a_driver_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Card()
    async with watching(monkeypatch, stuck) as (watch, clock, _):
        stuck.free.clear()
        clock.advance(1.0)
        await watch.sample()
        await asyncio.wait_for(watch.close(), 5.0)
        assert not stuck.closed
        stuck.free.set()


async def test_a_defect_in_one_adapter_costs_its_sample_only(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Card()
    async with watching(monkeypatch, broken) as (watch, clock, _):
        broken.fails = True
        clock.advance(1.0)
        frames = await watch.sample()
        assert of(frames, HostSample)
        assert not of(frames, GpuSample)
        broken.fails = False
        clock.advance(1.0)
        assert of(await watch.sample(), GpuSample)


async def test_a_search_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "OPEN_S", 0.05)
    found, free = Card(), threading.Event()

    def detect(*_: object, **__: object) -> Detected:
        free.wait(20)
        return Detected(adapters=[found], missing=[])

    async with watching(monkeypatch, detect=detect) as (watch, clock, opened):
        assert [frame.why for frame in of(opened, Missing)] == ["the GPU driver has not answered yet"]
        clock.advance(1.0)
        assert not of(await watch.sample(), GpuSample)
        free.set()
        frames: list[Frame] = []
        for _ in range(50):
            await asyncio.sleep(0.02)
            frames += await watch.sample()
            if of(frames, GpuSample):
                break
        assert of(frames, GpuSample)
        assert [frame.why for frame in of(frames, Missing)] == [None], "the reason is taken back"


async def test_plug_ins_that_are_not_used_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect(*_: object, **__: object) -> Detected:
        return Detected(adapters=[], missing=[Missing(t=0.0, what="gpu", why="no GPU")], refused=["why"])

    async with watching(monkeypatch, detect=detect) as (_, _clock, opened):
        assert [event.text for event in of(opened, Event)] == ["why"]
        assert [frame.why for frame in of(opened, Missing)] == ["no GPU"]


async def test_why_something_is_missing_is_told_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    async with watching(monkeypatch, card) as (watch, clock, _):
        told: list[tuple[str, str | None]] = []
        for why in (None, "no fan", "no fan", "not allowed", None, None):
            card.why = why
            clock.advance(1.0)
            told += [
                (frame.what, frame.why) for frame in of(await watch.sample(), Missing) if "gpu/" in frame.what
            ]
    what = "gpu/GPU-1:fan_fraction"
    assert told == [(what, "no fan"), (what, "not allowed"), (what, None)]


async def test_why_figures_of_the_host_are_missing_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostSampler, "missing", [Missing(t=1.0, what="host:cpu_mhz", why="no clock")])
    async with watching(monkeypatch, Card()) as (watch, clock, _):
        told: list[str] = []
        for _ in range(3):
            clock.advance(1.0)
            told += [frame.what for frame in of(await watch.sample(), Missing)]
    assert told.count("host:cpu_mhz") == 1


def test_gpus_of_two_vendors_have_different_numbers() -> None:
    numbers = Numbers()
    first = numbers.given(0, [sample(1.0, "a", 0), sample(1.0, "b", 1)])
    second = numbers.given(1, [sample(1.0, "c", 0)])
    assert [gpu.index for gpu in (*first, *second)] == [0, 1, 2]
    assert [gpu.index for gpu in numbers.given(0, [sample(2.0, "a", 0)])] == [0]


def test_numbers_stay_when_a_vendor_answers_late() -> None:
    numbers = Numbers()
    assert [gpu.index for gpu in numbers.given(1, [sample(1.0, "c", 0)])] == [0]
    assert [gpu.index for gpu in numbers.given(0, [sample(1.0, "a", 0)])] == [1]
    assert [gpu.index for gpu in numbers.given(1, [sample(2.0, "c", 0)])] == [0]


def test_changes_of_what_is_missing() -> None:
    changes = Changes()
    one = Missing(t=1.0, what="a", why="x")
    assert changes.of(1.0, [one]) == [one]
    assert changes.of(2.0, [one]) == []
    other = Missing(t=3.0, what="a", why="x", fix="do this")
    assert changes.of(3.0, [other]) == [other]
    assert changes.of(4.0, []) == [Missing(t=4.0, what="a")]
    assert changes.of(5.0, []) == []


async def test_a_worker_does_one_thing_at_a_time() -> None:
    worker, free = Worker("one"), threading.Event()
    slow = worker.start(lambda: free.wait(20))
    assert worker.busy
    free.set()
    assert await slow is True
    assert not worker.busy
    with pytest.raises(ValueError, match="invalid literal"):
        await worker.start(lambda: int("x"))
    worker.end()


async def test_a_defect_in_a_sampler_is_told_once_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(monkeypatch, Card()) as (watch, clock, _):

        def broken(t: float) -> HostSample:
            raise OSError("the disk is gone")

        monkeypatch.setattr(watch._host, "sample", broken)
        told: list[Event] = []
        for _ in range(3):
            clock.advance(1.0)
            frames = await watch.sample()
            told += of(frames, Event)
            assert of(frames, GpuSample)
        assert [event.text for event in told] == ["the host cannot be sampled: OSError: the disk is gone"]


async def test_why_processes_are_not_told_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    why = Missing(t=1.0, what="gpu/GPU-1:processes", why="2 processes cannot be told apart")
    async with watching(monkeypatch, Card()) as (watch, clock, _):
        monkeypatch.setattr(watch._processes, "sample", lambda *_: [])
        watch._processes.missing = [why]
        told: list[Missing] = []
        for _ in range(8):
            clock.advance(1.0)
            told += [frame for frame in of(await watch.sample(), Missing) if "processes" in frame.what]
            await asyncio.sleep(0.02)
        assert told == [why]
