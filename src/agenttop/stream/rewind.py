"""The deck: what the console always plays from, be the session live, rewound or recorded.

Rules
- Live, batches pass through. Going back switches to a tape: the session's recording, or without one
  the last `HISTORY_S` in memory. Live frames go on arriving into that memory, so nothing is lost.
- `live` starts the reader anew from memory, at the present.
- Playing on until the tape catches up with the session returns to live by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agenttop.errors import AgenttopError
from agenttop.model import units
from agenttop.model.clock import Clock
from agenttop.model.commands import Command
from agenttop.model.frames import Event, RecordingState, Session
from agenttop.record.read import Recording
from agenttop.stream.base import Batch, FrameSource
from agenttop.stream.memory import Memory
from agenttop.stream.replay import FASTEST, MOST_FRAMES, SLOWEST, SPEEDS, ReplaySource, Tape

CAUGHT_UP_S = 3.0
"""A recording is at most about a second behind its session; this near, both are the same."""


@dataclass(frozen=True, slots=True)
class TransportState:
    """All a transport bar shows."""

    position: float
    start: float
    """The earliest moment that can be gone to."""
    duration: float
    playing: bool
    speed: float
    live: bool
    """What is shown is the present of a session."""
    events: list[Event]
    """For the marks on the bar."""
    note: str | None
    """One sentence on why the last wish could not be met."""


class Deck:
    """A `FrameSource` and a `Transport` over a live session, or over a `ReplaySource`.

    `local`: the session's node runs on this host, so its recording can be opened. `open_recording`
    replaces that; it raises AgenttopError when there is none.
    """

    def __init__(
        self,
        source: FrameSource,
        clock: Clock,
        *,
        local: bool = True,
        open_recording: Callable[[], Recording] | None = None,
    ) -> None:
        self._clock = clock
        self._live: FrameSource | None = None if isinstance(source, ReplaySource) else source
        self._played: ReplaySource | None = source if isinstance(source, ReplaySource) else None
        self._memory = Memory()
        self._local = local
        self._open = open_recording or self._open_announced
        self._recording: Recording | None = None
        self._now = 0.0
        self._ended: str | None = None
        self._returning = False
        self.session: Session | None = None
        """Of the session shown, once it is known."""
        self.announced: RecordingState | None = None
        """The newest word of the node on its recording."""
        self.note: str | None = None
        """One sentence on why the last wish could not be met; None when it was."""

    # As a source of frames

    def take(self) -> Batch:
        """What is to be shown next. Never waits for the session."""
        arrived = self._drain()
        if self._played is None:
            assert arrived is not None
            if not self._returning:
                return arrived
            self._returning = False
            frames, _ = self._memory.state_at(self._now, 0.0, MOST_FRAMES)
            return Batch(frames=frames, now=self._now, reset=True, ended=self._ended)
        shown = self._played.take()
        if arrived is None:
            self._note_session(shown)
        elif self._caught_up(self._played):
            self.live()
            return self.take()
        return shown

    def send(self, command: Command) -> None:
        """Pass a command on to the session, also while an earlier moment of it is shown."""
        (self._live or self._replay).send(command)

    @property
    def accepts(self) -> str | None:
        """None when commands are obeyed, else one sentence why not."""
        return (self._live or self._replay).accepts

    def close(self) -> None:
        """Let go of the session and its recording."""
        self._let_go()
        (self._live or self._replay).close()

    # As a transport

    @property
    def is_live(self) -> bool:
        """What is shown is the present of a session."""
        return self._played is None

    @property
    def start(self) -> float:
        """The earliest moment that can be gone to."""
        if self._live is None:
            return self._replay.start
        return 0.0 if self._recordable() else self._memory.start

    @property
    def duration(self) -> float:
        """Session time of the newest frame known."""
        return self._now if self._live is not None else self._replay.duration

    @property
    def position(self) -> float:
        """The moment shown."""
        return self._now if self._played is None else self._played.position

    @property
    def behind_s(self) -> float:
        """How far the moment shown lies behind the newest one."""
        return max(0.0, self.duration - self.position)

    @property
    def playing(self) -> bool:
        """Whether time moves on the screen."""
        return self._ended is None if self._played is None else self._played.playing

    @property
    def speed(self) -> float:
        """Seconds of the session per second."""
        return 1.0 if self._played is None else self._played.speed

    def play(self, on: bool) -> None:
        """Pause, or play on from the moment shown."""
        self.note = None
        if self._played is None:
            if not on:
                self._hold()
        elif on and self._live is not None:
            self._go(self.position, playing=True)
        else:
            self._played.play(on)

    def toggle(self) -> None:
        """Play when paused, pause when playing."""
        self.play(not self.playing)

    def set_speed(self, speed: float) -> None:
        """0.1 to 64. A live session has one speed only: the note says so."""
        self.note = None
        if self._played is None:
            self.note = "a live session cannot be sped up: go back in it first"
            return
        self._played.set_speed(min(max(speed, SLOWEST), FASTEST))

    def faster(self) -> None:
        """The next higher speed."""
        self.set_speed(next((speed for speed in SPEEDS if speed > self.speed), SPEEDS[-1]))

    def slower(self) -> None:
        """The next lower speed."""
        self.set_speed(next((speed for speed in reversed(SPEEDS) if speed < self.speed), SPEEDS[0]))

    def seek(self, t: float) -> None:
        """Go to a moment; at or beyond the newest one of a live session this is the same as `live`."""
        self.note = None
        if self._live is None:
            self._replay.seek(t)
        elif t >= self._now:
            self.live()
        else:
            self._go(t, playing=self.playing or self._played is None)

    def skip(self, seconds: float) -> None:
        """Go on or back by so much."""
        if self._played is not None or seconds < 0:
            self.seek(self.position + seconds)

    def step(self, seconds: float) -> None:
        """Pause and go a little on or back."""
        self._paused().step(seconds)

    def step_sample(self, direction: int) -> None:
        """Pause and go to the next (+1) or previous (-1) look at the host."""
        self._paused().step_sample(direction)

    def next_event(self, direction: int) -> None:
        """Go to the next (+1) or previous (-1) event."""
        self.note = None
        if self._played is not None:
            self._played.next_event(direction)
            return
        earlier = [event.t for event in self._memory.events() if event.t < self._now - 1.0]
        if direction < 0 and earlier:
            self.seek(earlier[-1])

    def live(self) -> None:
        """Return to the present; in a recording go to its end."""
        if self._live is None:
            self._replay.seek(self._replay.duration)
            return
        if self._played is not None:
            self._played = None
            self._returning = True
        self._let_go()

    # What the screen says

    @property
    def transport(self) -> TransportState:
        """All a transport bar shows."""
        events = self._memory.events() if self._played is None else self._played.events()
        return TransportState(
            position=self.position,
            start=self.start,
            duration=self.duration,
            playing=self.playing,
            speed=self.speed,
            live=self.is_live,
            events=events,
            note=self.note,
        )

    @property
    def state_words(self) -> list[str]:
        """E.g. [LIVE], [ENDED], [REPLAY, 4x], [REPLAY, PAUSED], [REWIND, −00:32, PAUSED]."""
        if self._played is None:
            return ["LIVE"] if self._ended is None else ["ENDED"]
        words = ["REPLAY"] if self._live is None else ["REWIND", f"−{_short_clock(self.behind_s)}"]
        if self._played.playing:
            speed = self._played.speed
            return [*words, f"{speed:g}x"] if speed != 1 or self._live is None else words
        return [*words, "END" if self._live is None and self._played.at_end else "PAUSED"]

    # How it switches

    @property
    def _replay(self) -> ReplaySource:
        assert self._played is not None
        return self._played

    def _drain(self) -> Batch | None:
        """Take what the session has sent, shown or not."""
        if self._live is None:
            return None
        batch = self._live.take()
        if batch.reset:
            self._memory = Memory()
        for frame in batch.frames:
            self._memory.add(frame)
        self._note_session(batch)
        self._now = max(batch.now, self._memory.duration)
        self._ended = batch.ended
        self._memory.finished = batch.ended is not None
        return batch

    def _note_session(self, batch: Batch) -> None:
        for frame in batch.frames:
            if isinstance(frame, Session):
                self.session = frame
            elif isinstance(frame, RecordingState):
                self.announced = frame

    def _go(self, t: float, *, playing: bool) -> None:
        tape = self._tape(t)
        if self._played is None or self._played.tape is not tape:
            self._played = ReplaySource(tape, self._clock, at=t, speed=self.speed, playing=playing)
        else:
            self._played.seek(t)
            self._played.play(playing)
        self._returning = False

    def _hold(self) -> None:
        """Freeze the present: it is on the screen already."""
        self._played = ReplaySource(self._memory, self._clock, at=self._now, playing=False, held=True)

    def _paused(self) -> ReplaySource:
        """A tape that holds the moment shown, for a step from there."""
        self.note = None
        if self._played is None:
            self._go(self._now, playing=False)
        elif self._live is not None and self._played.tape is not self._tape(self.position):
            self._go(self.position, playing=False)
        return self._replay

    def _tape(self, t: float) -> Tape:
        """The recording where it reaches, else memory."""
        try:
            recording = self._recording = self._recording or self._open()
            if t <= recording.duration or t < self._memory.start:
                return recording
        except AgenttopError as error:
            self._let_go()
            if t < self._memory.start:
                reach = units.seconds(self._now - self._memory.start)
                self.note = f"only the last {reach} can be shown again: {error.message}"
        return self._memory

    def _recordable(self) -> bool:
        state = self.announced
        return self._recording is not None or (
            self._local and state is not None and state.state != "off" and state.path is not None
        )

    def _open_announced(self) -> Recording:
        state = self.announced
        if state is None or state.path is None or state.state == "off":
            raise AgenttopError("this session is not recorded")
        if not self._local:
            raise AgenttopError("the recording is on another host")
        recording = Recording(Path(state.path))
        if self.session is not None and recording.session.session != self.session.session:
            recording.close()
            raise AgenttopError(f"{state.path} is the recording of another session")
        return recording

    def _let_go(self) -> None:
        """Close the recording, so that its writer can finish it as one file."""
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    def _caught_up(self, played: ReplaySource) -> bool:
        return played.playing and played.at_end and self._ended is None and self.behind_s < CAUGHT_UP_S


def _short_clock(seconds: float) -> str:
    """`00:32`, and with hours `1:02:03`."""
    text = units.clock(seconds)
    return text[3:] if text.startswith("00:") else text
