"""Going back in a session that goes on, and returning to its present."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from agenttop.model.clock import ManualClock
from agenttop.model.commands import Command, StopAll
from agenttop.model.frames import Event, Frame, HostSample, RecordingState
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream.base import Batch
from agenttop.stream.replay import ReplaySource
from agenttop.stream.rewind import Deck
from tests.record.build import record, session, session_frames
from tests.stream.test_replay import Fold, expected


class Live:
    """A session whose node sends its frames when their time has come, and records them once a second."""

    def __init__(
        self, frames: list[Frame], clock: ManualClock, path: Path | None, *, said: bool = True
    ) -> None:
        first = session(recording=str(path) if path else None)
        self._waiting = [first, *sorted(frames, key=lambda frame: frame.t)]
        self._clock = clock
        self._state = RecordingState(t=0.0, state="on" if said else "off", path=str(path) if said else None)
        self._recorder = Recorder(path, first) if path else None
        self._committed = 0.0
        self.sent: list[Frame] = []
        self.obeyed: list[Command] = []
        self.ended: str | None = None

    def take(self) -> Batch:
        now = self._clock.monotonic()
        frames: list[Frame] = [] if self.sent else [self._state]
        while self._waiting and self._waiting[0].t <= now:
            frames.append(self._waiting.pop(0))
        self.sent += frames
        for frame in frames:
            if self._recorder:
                self._recorder.add(frame)
        if self._recorder and now - self._committed >= 1.0:
            self._committed = now
            self._recorder.commit()
        return Batch(frames=frames, now=now, ended=self.ended)

    def end(self) -> None:
        if self._recorder:
            self._recorder.close()
        self.ended = "the run has ended"

    def send(self, command: Command) -> None:
        self.obeyed.append(command)

    @property
    def accepts(self) -> str | None:
        return self.ended

    def close(self) -> None:
        if self._recorder:
            self._recorder.close()


class Desk:
    """A console of sorts: takes from a deck four times a second."""

    made: ClassVar[list[Desk]] = []

    def __init__(
        self, tmp_path: Path, *, recorded: bool = True, said: bool | None = None, seconds: float = 900
    ) -> None:
        self.clock = ManualClock()
        frames = [f for f in session_frames([(2, seconds)], slots=2) if not isinstance(f, RecordingState)]
        path = tmp_path / "a.agenttop" if recorded else None
        self.live = Live(frames, self.clock, path, said=recorded if said is None else said)
        self.deck = Deck(self.live, self.clock)
        self.fold = Fold()
        self.made.append(self)
        self.look()

    def look(self) -> Batch:
        batch = self.deck.take()
        self.fold.feed(batch)
        return batch

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            self.clock.advance(0.25)
            self.look()


@pytest.fixture(autouse=True)
def _close_desks() -> Iterator[None]:
    yield
    while Desk.made:
        Desk.made.pop().deck.close()


def test_live_passes_through(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(20)
    assert desk.fold.frames == desk.live.sent
    assert desk.deck.state_words == ["LIVE"]
    assert (desk.deck.position, desk.deck.behind_s, desk.deck.playing) == (20.0, 0.0, True)
    assert desk.deck.session is not None
    desk.deck.send(StopAll())
    assert desk.live.obeyed == [StopAll()]


def test_going_back_shows_the_past_and_end_returns_to_the_present(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(400)
    desk.deck.seek(30.0)
    batch = desk.look()
    assert (batch.reset, batch.now) == (True, 30.0)
    assert desk.fold.state() == expected(desk.live.sent, 30.0)
    assert desk.deck.state_words == ["REWIND", "−06:10"]
    desk.pass_time(10)
    assert desk.fold.state() == expected(desk.live.sent, 40.0)
    desk.deck.send(StopAll())  # the session still hears
    assert desk.live.obeyed == [StopAll()]
    desk.deck.live()
    batch = desk.look()
    assert (batch.reset, batch.now, desk.deck.state_words) == (True, 410.0, ["LIVE"])
    assert desk.fold.state() == expected(desk.live.sent, 410.0)
    desk.pass_time(5)
    assert desk.fold.state() == expected(desk.live.sent, 415.0)


def test_the_recording_is_let_go_at_the_present_so_that_it_ends_as_one_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(400)
    desk.deck.seek(10.0)
    desk.look()
    desk.deck.live()
    desk.live.end()
    assert [path.name for path in tmp_path.iterdir()] == ["a.agenttop"]


def test_pausing_freezes_the_picture_however_long(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(20)
    before = list(desk.fold.frames)
    desk.deck.toggle()
    desk.pass_time(500)  # longer than memory reaches
    assert desk.fold.frames == before
    assert desk.deck.state_words == ["REWIND", "−08:20", "PAUSED"]
    assert desk.deck.position == pytest.approx(20.0, abs=1.0)
    desk.deck.toggle()
    desk.pass_time(30)
    assert desk.fold.now == pytest.approx(50.0, abs=1.0)
    assert desk.fold.state() == expected(desk.live.sent, desk.fold.now)


def test_steps_from_live_pause_and_go_back_second_by_second(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(20)
    for _ in range(3):
        desk.deck.step(-1.0)
        desk.look()
    assert desk.deck.position == pytest.approx(17.0, abs=1.0)
    assert desk.deck.state_words[0::2] == ["REWIND", "PAUSED"]
    assert desk.fold.state() == expected(desk.live.sent, desk.fold.now)
    desk.deck.step_sample(-1)
    desk.look()
    assert desk.deck.position % 1 == 0.25
    desk.deck.step(1.0)
    assert not desk.look().reset
    assert desk.fold.state() == expected(desk.live.sent, desk.fold.now)


def test_playing_faster_catches_up_and_becomes_live(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(100)
    desk.deck.skip(-60.0)
    desk.deck.set_speed(8.0)
    desk.look()
    assert desk.deck.state_words == ["REWIND", "−01:00", "8x"]
    desk.pass_time(15)
    assert desk.deck.state_words == ["LIVE"]
    assert desk.fold.state() == expected(desk.live.sent, 115.0)


def test_without_a_recording_memory_is_gone_back_in(tmp_path: Path) -> None:
    desk = Desk(tmp_path, recorded=False)
    desk.pass_time(400)
    desk.deck.seek(380.0)
    desk.look()
    assert desk.fold.state()[:3] == expected(desk.live.sent, 380.0)[:3]
    assert desk.deck.note is None
    desk.deck.seek(10.0)
    desk.look()
    assert desk.deck.note == "only the last 5.0 m can be shown again: this session is not recorded"
    assert desk.deck.position == pytest.approx(100.0, abs=1.0)
    assert desk.deck.transport.start == pytest.approx(100.0, abs=1.0)
    desk.deck.live()
    desk.look()
    assert desk.fold.state() == expected(desk.live.sent, 400.0)


def test_a_recording_of_another_session_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    record(tmp_path / "other.agenttop", session_frames([(1, 5)]), first=session(session="another"))
    desk = Desk(tmp_path, recorded=False)
    desk.deck.announced = RecordingState(t=0.0, state="on", path=str(tmp_path / "other.agenttop"))
    desk.pass_time(400)
    desk.deck.seek(10.0)
    assert desk.deck.note is not None
    assert desk.deck.note.endswith("other.agenttop is the recording of another session")


def test_remote_sessions_are_gone_back_in_as_far_as_memory_reaches(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.deck = Deck(desk.live, desk.clock, local=False)
    desk.deck.announced = RecordingState(t=0.0, state="on", path=str(tmp_path / "a.agenttop"))
    desk.pass_time(400)
    desk.deck.seek(10.0)
    assert desk.deck.note == "only the last 5.0 m can be shown again: the recording is on another host"


def test_a_session_that_has_ended_can_still_be_gone_back_in(tmp_path: Path) -> None:
    desk = Desk(tmp_path, seconds=60)
    desk.pass_time(80)
    desk.live.end()
    assert desk.look().ended == "the run has ended"
    assert desk.deck.state_words == ["ENDED"]
    desk.deck.seek(20.0)
    assert desk.look().ended is None
    assert desk.fold.state() == expected(desk.live.sent, 20.0)
    desk.deck.set_speed(64.0)
    desk.pass_time(3)
    assert desk.deck.state_words[-1] == "PAUSED"
    desk.deck.live()
    assert desk.look().ended == "the run has ended"


def test_events_are_marks_on_the_bar_and_can_be_jumped_to(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.pass_time(50)
    assert [event.t for event in desk.deck.transport.events] == [2.0]
    desk.deck.next_event(-1)
    desk.look()
    assert desk.deck.position == 2.0
    assert any(isinstance(frame, Event) for frame in desk.fold.frames)
    bar = desk.deck.transport
    assert (bar.live, bar.start, bar.duration, [event.t for event in bar.events]) == (False, 0.0, 50.0, [2.0])


def test_a_recording_is_played_through_the_same_deck(tmp_path: Path) -> None:
    frames = session_frames([(2, 60)])
    clock = ManualClock()
    with Recording(record(tmp_path / "a.agenttop", frames)) as recording:
        deck = Deck(ReplaySource(recording, clock, at=10.0, speed=4.0), clock)
        fold = Fold()
        fold.feed(deck.take())
        assert deck.state_words == ["REPLAY", "4x"]
        assert deck.session == session()
        assert deck.accepts is not None
        clock.advance(5.0)
        fold.feed(deck.take())
        assert fold.state() == expected([session(), *frames], 30.0)
        deck.slower()
        assert deck.speed == 2.0
        deck.toggle()
        assert deck.state_words == ["REPLAY", "PAUSED"]
        deck.skip(-20.0)
        fold.feed(deck.take())
        assert fold.state() == expected([session(), *frames], 10.0)
        deck.live()
        fold.feed(deck.take())
        assert deck.state_words == ["REPLAY", "END"]
        assert fold.now == recording.duration
        assert len([frame for frame in fold.frames if isinstance(frame, HostSample)]) > 60
        deck.close()


def test_a_live_session_has_one_speed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.deck.faster()
    assert desk.deck.speed == 1.0
    assert desk.deck.note == "a live session cannot be sped up: go back in it first"
    desk.deck.skip(10.0)
    assert desk.deck.state_words == ["LIVE"]
