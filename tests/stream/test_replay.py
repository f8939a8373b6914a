"""The fold law: however a moment is reached, by playing, seeking or stepping, the state is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.model.clock import ManualClock
from agenttop.model.commands import StopAll
from agenttop.model.frames import Event, Frame, HostSample, Session
from agenttop.model.identity import identity
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream import replay as replay_module
from agenttop.stream.base import Batch
from agenttop.stream.history import HISTORY_S
from agenttop.stream.memory import Memory
from agenttop.stream.replay import ReplaySource
from agenttop.view.store import Store
from tests.record.build import record, session, session_frames, tick


class Fold:
    """What a reader keeps of the frames: the newest of each identity, all events, a window of the rest."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.now = 0.0
        self.store = Store()

    def feed(self, batch: Batch) -> None:
        if batch.reset:
            self.frames.clear()
        self.frames += batch.frames
        self.now = batch.now
        self.store.feed(batch.frames, batch.now, reset=batch.reset, ended=batch.ended)

    def state(self) -> tuple[object, ...]:
        frames = sorted(self.frames, key=lambda frame: frame.t)
        newest = {identity(frame): frame for frame in frames if identity(frame) is not None}
        events = [frame for frame in frames if isinstance(frame, Event)]
        window = [frame for frame in frames if frame.t >= self.now - HISTORY_S]
        return (
            self.now,
            sorted(map(repr, newest.values())),
            list(map(repr, events)),
            sorted(map(repr, window)),
        )


def expected(frames: list[Frame], t: float) -> tuple[object, ...]:
    fold = Fold()
    fold.feed(Batch(frames=sorted((f for f in frames if f.t <= t), key=lambda f: f.t), now=t))
    return fold.state()


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    # Longer than the window, so that what lies before it has to be found too.
    return [session(), *session_frames([(2, 200), (3, 150), (1, 150)], slots=2, gpus=1)]


@pytest.fixture(scope="module")
def recording(frames: list[Frame], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with Recording(record(tmp_path_factory.mktemp("replay") / "a.agenttop", frames[1:])) as recording:
        yield recording


def test_playing_at_any_speed_brings_every_frame_once_and_in_order(
    recording: Recording, frames: list[Frame]
) -> None:
    for speed in (0.25, 1.0, 7.0, 64.0):
        clock = ManualClock()
        source = ReplaySource(recording, clock, speed=speed)
        seen: list[Frame] = []
        resets = 0
        while source.playing:
            batch = source.take()
            resets += batch.reset
            seen += batch.frames
            clock.advance(1.9 if speed < 1 else 0.25)
        assert seen == sorted(frames, key=lambda frame: frame.t)
        assert resets == 1
        assert source.position == recording.duration
        assert source.take().ended is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("seek"), st.floats(-10, 600)),
            st.tuples(st.just("play"), st.floats(0, 40)),
            st.tuples(st.just("speed"), st.sampled_from([0.25, 1.0, 16.0, 64.0])),
            st.tuples(st.just("step"), st.sampled_from([-30.0, -1.0, 1.0, 30.0])),
            st.tuples(st.just("sample"), st.sampled_from([-1, 1])),
            st.tuples(st.just("event"), st.sampled_from([-1, 1])),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=25, deadline=None)
def test_every_way_to_a_moment_gives_the_same_state(
    recording: Recording, frames: list[Frame], moves: list[tuple[str, float]]
) -> None:
    clock = ManualClock()
    source = ReplaySource(recording, clock)
    fold = Fold()
    for move, value in moves:
        match move:
            case "seek":
                source.seek(value)
            case "play":
                source.play(True)
                clock.advance(value)
            case "speed":
                source.set_speed(value)
            case "step":
                source.step(value)
            case "sample":
                source.step_sample(int(value))
            case "event":
                source.next_event(int(value))
        fold.feed(source.take())
        assert fold.now == source.position
    assert fold.state() == expected(frames, fold.now)


def test_the_screens_own_store_is_the_same_after_a_seek(recording: Recording) -> None:
    clock = ManualClock()
    played, sought = Fold(), Fold()
    source = ReplaySource(recording, clock, speed=8.0)
    while source.playing:
        played.feed(source.take())
        clock.advance(0.25)
        other = ReplaySource(recording, clock, at=played.now, playing=False)
        if int(played.now) % 50 == 0:
            sought.feed(other.take())
            for name in ("session", "host", "gpus", "engines", "slots", "agents", "load", "level", "missing"):
                assert getattr(sought.store, name) == getattr(played.store, name), name
            assert sought.store.events == played.store.events
            assert sought.store.turns == played.store.turns
            for subject, figure in (("host", "cpu_fraction"), ("load", "active"), ("a1", "decode_tok_s")):
                assert sought.store.last(subject, figure, 300) == played.store.last(subject, figure, 300)


def test_pausing_stops_time_and_stepping_moves_it(recording: Recording) -> None:
    clock = ManualClock()
    source = ReplaySource(recording, clock, at=100.0)
    source.take()
    clock.advance(1.0)
    source.play(False)
    clock.advance(50.0)
    assert source.take().now == 101.0
    source.step(1.0)
    batch = source.take()
    assert (batch.now, batch.reset) == (102.0, False)
    assert {frame.t for frame in batch.frames if isinstance(frame, HostSample)} == {101.25}
    source.step(-2.0)
    batch = source.take()
    assert (batch.now, batch.reset) == (100.0, True)
    source.step_sample(1)
    assert source.position == 100.25
    source.step_sample(1)
    assert source.position == 101.25
    source.step_sample(-1)
    assert source.position == 100.25


def test_speed_changes_keep_the_playhead(recording: Recording) -> None:
    clock = ManualClock()
    source = ReplaySource(recording, clock)
    clock.advance(10.0)
    source.set_speed(4.0)
    assert source.position == 10.0
    clock.advance(10.0)
    assert source.position == 50.0
    source.set_speed(1000.0)
    assert source.speed == 64.0
    source.set_speed(0.0)
    assert source.speed == 0.1


def test_events_are_jumped_to_in_both_directions(recording: Recording) -> None:
    clock = ManualClock()
    source = ReplaySource(recording, clock, playing=False)
    times = [event.t for event in source.events()]
    assert times == [2.0, 202.0, 352.0, 502.0]
    visited = []
    for _ in range(5):
        source.next_event(1)
        visited.append(source.position)
    assert visited == [*times, 502.0]
    source.next_event(-1)
    assert source.position == 352.0
    source.play(True)
    clock.advance(0.5)
    source.next_event(-1)  # just passed while playing: the one before it is meant
    assert source.position == 202.0
    source.seek(1.0)
    source.next_event(-1)
    assert source.position == 0.0


def test_a_long_gap_between_two_looks_is_crossed_like_a_seek(
    recording: Recording, frames: list[Frame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "MOST_FRAMES", 200)
    clock = ManualClock()
    source = ReplaySource(recording, clock, speed=64.0)
    source.take()
    clock.advance(1.0)
    batch = source.take()
    assert batch.reset
    assert len(batch.frames) < 250
    newest = {identity(f): f for f in sorted(frames, key=lambda f: f.t) if f.t <= batch.now and identity(f)}
    assert {repr(frame) for frame in newest.values()} <= {repr(frame) for frame in batch.frames}


def test_it_pauses_at_the_end_and_plays_again_from_the_start(recording: Recording) -> None:
    clock = ManualClock()
    source = ReplaySource(recording, clock, at=1e9)
    assert source.take().now == recording.duration
    clock.advance(1.0)
    batch = source.take()
    assert (batch.frames, batch.ended, source.playing) == ([], None, False)
    source.play(True)
    assert source.position == 0.0
    assert isinstance(source.take().frames[0], Session)


def test_a_recording_obeys_nothing_and_says_so(recording: Recording) -> None:
    source = ReplaySource(recording, ManualClock())
    source.send(StopAll())
    assert source.accepts == "this is a recording: nothing can be started or stopped in it"
    source.close()
    assert recording.duration > 0


def test_a_recording_that_grows_is_followed_and_its_end_is_noticed(tmp_path: Path) -> None:
    clock = ManualClock()
    recorder = Recorder(tmp_path / "a.agenttop", session())
    frames: list[Frame] = [session()]
    fold = Fold()

    def write(t: float) -> None:
        for frame in [*tick(t), Event(t=t - 1.5, event="mark", text=f"late {t}")]:
            frames.append(frame)
            recorder.add(frame)
        recorder.commit()

    write(1.0)
    with Recording(recorder.path) as recording:
        source = ReplaySource(recording, clock)
        for second in range(2, 10):
            fold.feed(source.take())
            clock.advance(1.0)
            write(float(second))
        clock.advance(1.0)
        fold.feed(source.take())
        assert source.playing
        assert fold.state() == expected(frames, 9.0)
        clock.advance(3.0)
        assert source.take().frames == []
        assert source.playing  # its writer may only be slow
        clock.advance(3.0)
        source.take()
        assert not source.playing
    recorder.close()


def test_a_place_that_is_damaged_ends_the_replay_with_a_sentence(tmp_path: Path) -> None:
    path = record(tmp_path / "a.agenttop", session_frames([(2, 120)]))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 :: 4096] = bytes([255]) * len(damaged[len(damaged) // 2 :: 4096])
    middle = len(damaged) // 8192 * 4096
    damaged[middle : middle + 4096 * 8] = bytes(4096 * 8)
    path.write_bytes(damaged)
    clock = ManualClock()
    with Recording(path) as recording:
        source = ReplaySource(recording, clock, speed=8.0)
        ended = None
        while ended is None and source.playing:
            ended = source.take().ended
            clock.advance(0.5)
        assert ended is not None
        assert ended.startswith(f"{path} is damaged")
        assert not source.playing
        assert source.take().ended == ended


def test_memory_is_a_tape_like_a_recording(frames: list[Frame]) -> None:
    memory = Memory()
    for frame in frames:
        memory.add(frame)
    assert memory.start == memory.duration - HISTORY_S
    for t in (memory.start, 300.0, 400.5, 505.0):
        fold, wanted = Fold(), Fold()
        fold.feed(ReplaySource(memory, ManualClock(), at=t, playing=False).take())
        wanted.feed(Batch(frames=sorted((f for f in frames if f.t <= t), key=lambda f: f.t), now=t))
        # The window reaches back only as far as memory does.
        assert fold.state()[:3] == wanted.state()[:3]
    clock = ManualClock()
    source = ReplaySource(memory, clock, at=memory.start)
    fold = Fold()
    memory.finished = True
    while source.playing:
        fold.feed(source.take())
        clock.advance(5.0)
    assert fold.state() == expected(frames, memory.duration)
