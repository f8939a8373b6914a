"""A session played from a tape: play, pause, speed, seek, step. The frames are those a live session sends.

Rules
- Seeking and playing lead to the same state: after a seek `take` gives a batch that starts from nothing
  (`reset`) and holds the newest frame of everything, all events so far, and all frames of `HISTORY_S`.
- One `take` never brings more than `MOST_FRAMES`: a stretch with more is crossed like a seek.
- At the end it pauses. A tape that still grows is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from agenttop.errors import AgenttopError
from agenttop.model.clock import Clock
from agenttop.model.commands import Command
from agenttop.model.frames import Event, Frame, HostSample
from agenttop.stream.base import Batch
from agenttop.stream.history import HISTORY_S

T = TypeVar("T")

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""What the keys for faster and slower go through."""

SLOWEST, FASTEST = 0.1, 64.0

MOST_FRAMES = 20_000
"""About a quarter of a second of work for the reader, and 300 s of a host with 16 slots and 16 agents."""

GROWTH_S = 5.0
"""A tape that has not grown for so long has ended, even if its writer never closed it."""

SAME_EVENT_S = 1.0
"""While playing, `previous event` skips an event that was passed less than this ago."""

SAMPLE_REACH_S = 60.0
"""How far a step looks for the next sample."""

NO_COMMANDS = "this is a recording: nothing can be started or stopped in it"


class Tape(Protocol):
    """Frames of one session that can be read at any moment: a recording, or the recent past in memory."""

    @property
    def start(self) -> float:
        """The earliest moment that can be shown."""
        ...

    @property
    def duration(self) -> float:
        """Session time of the newest frame."""
        ...

    @property
    def finished(self) -> bool:
        """Nothing more will be added."""
        ...

    def state_at(self, t: float, window_s: float, most: int) -> tuple[list[Frame], int]:
        """Frames that bring an empty store to the state at `t`, and a mark of what is known now."""
        ...

    def news(self, after: float, until: float, mark: int) -> tuple[list[Frame], int]:
        """Frames with `after` < t <= `until`, and older ones that came in since `mark`; the new mark."""
        ...

    def between(self, after: float, until: float) -> int:
        """About how many frames `news` would bring."""
        ...

    def frames(self, t0: float, t1: float, kinds: Collection[type[Frame]] | None) -> list[Frame]:
        """Frames with `t0` <= t <= `t1`, in order."""
        ...

    def events(self) -> list[Event]:
        """All events, in order."""
        ...


class ReplaySource:
    """Plays a tape; is both a `FrameSource` and a `Transport`.

    `held`: the reader already shows the moment `at`, so nothing is sent until the playhead moves.
    """

    def __init__(
        self,
        tape: Tape,
        clock: Clock,
        *,
        at: float = 0.0,
        speed: float = 1.0,
        playing: bool = True,
        held: bool = False,
    ) -> None:
        self.tape = tape
        self._clock = clock
        self._speed = _allowed(speed)
        self._playing = playing
        self._duration = tape.duration
        self._grown_at = clock.monotonic()
        self._anchor = (min(max(at, tape.start), self._duration), clock.monotonic())
        self._shown = self._anchor[0]
        self._mark = 0
        self._jumped = not held
        self._held = held
        self._broken: str | None = None
        self._events: tuple[float, list[Event]] | None = None

    # As a source of frames

    def take(self) -> Batch:
        """Frames up to the playhead. A tape that turns out damaged ends the source with one sentence."""
        batch = self._read(self._play_on, None)
        return batch or Batch(frames=[], now=self._shown, ended=self._broken)

    def send(self, command: Command) -> None:
        """Does nothing: see `accepts`."""

    @property
    def accepts(self) -> str | None:
        """Why no command is obeyed."""
        return NO_COMMANDS

    def close(self) -> None:
        """The tape belongs to whoever opened it."""

    # As a transport

    @property
    def start(self) -> float:
        """The earliest moment that can be shown."""
        return self.tape.start

    @property
    def duration(self) -> float:
        """Session time of the newest frame."""
        duration = self._read(lambda: self.tape.duration, self._duration)
        if duration > self._duration:
            self._duration = duration
            self._grown_at = self._clock.monotonic()
        return self._duration

    @property
    def position(self) -> float:
        """The playhead. A paused one stays, even when memory has moved on beyond it."""
        t, since = self._anchor
        if not self._playing:
            return t
        t += (self._clock.monotonic() - since) * self._speed
        return max(self.tape.start, min(t, self._duration))

    @property
    def playing(self) -> bool:
        """Whether the playhead moves by itself."""
        return self._playing

    @property
    def speed(self) -> float:
        """Seconds of the session per second."""
        return self._speed

    @property
    def at_end(self) -> bool:
        """Whether the playhead stands on the newest frame."""
        return self.position >= self._duration

    def play(self, on: bool) -> None:
        """Play or pause. Playing on from the end begins again at the start."""
        if on and not self._playing and self.at_end and self._has_ended():
            self.seek(self.tape.start)
        self._anchor = (self.position, self._clock.monotonic())
        self._grown_at = self._clock.monotonic()
        self._playing = on

    def set_speed(self, speed: float) -> None:
        """0.1 to 64; the playhead stays where it is."""
        self._anchor = (self.position, self._clock.monotonic())
        self._speed = _allowed(speed)

    def seek(self, t: float) -> None:
        """Go to a moment; keeps playing or pausing."""
        self._anchor = (max(self.tape.start, min(t, self.duration)), self._clock.monotonic())
        self._jumped = True

    def step(self, seconds: float) -> None:
        """Pause and go a little on (or back). Forward steps only bring what is new."""
        target = max(self.tape.start, min(self.position + seconds, self.duration))
        self._playing = False
        self._anchor = (target, self._clock.monotonic())

    def step_sample(self, direction: int) -> None:
        """Pause and go to the next (+1) or previous (-1) look at the host."""
        here = self.position
        reach = (here, here + SAMPLE_REACH_S) if direction > 0 else (here - SAMPLE_REACH_S, here)
        nothing: list[Frame] = []
        looks = self._read(lambda: self.tape.frames(*reach, (HostSample,)), nothing)
        times = [frame.t for frame in looks if frame.t != here]
        if times:
            self.step((times[0] if direction > 0 else times[-1]) - here)
        else:
            self.step(float(direction))

    def next_event(self, direction: int) -> None:
        """Seek to the next (+1) or previous (-1) event; stays where it is when there is none."""
        here = self.position
        times = [event.t for event in self.events()]
        if direction > 0:
            later = [t for t in times if t > here]
            if later:
                self.seek(later[0])
            return
        margin = SAME_EVENT_S * max(1.0, self._speed) if self._playing else 0.0
        earlier = [t for t in times if t < here - margin]
        self.seek(earlier[-1] if earlier else self.tape.start)

    def events(self) -> list[Event]:
        """All events of the tape, for the marks of a transport bar."""
        duration = self.duration
        if self._events is None or self._events[0] != duration:
            self._events = (duration, self._read(self.tape.events, []))
        return self._events[1]

    # How it plays

    def _read(self, read: Callable[[], T], otherwise: T) -> T:
        """Everything asked of the tape goes through here: a damaged place in it ends the replay, no more."""
        if self._broken is not None:
            return otherwise
        try:
            return read()
        except AgenttopError as error:
            self._broken = str(error)
            self._playing = False
            return otherwise

    def _play_on(self) -> Batch:
        self._watch_the_end()
        target = self.position
        if self._held:
            if target == self._shown and not self._jumped:
                return Batch(frames=[], now=target)
            self._held, self._jumped = False, True
        if self._jumped or target < self._shown or self._too_far(target):
            frames, self._mark = self.tape.state_at(target, HISTORY_S, MOST_FRAMES)
            self._jumped = False
            self._shown = target
            return Batch(frames=frames, now=target, reset=True)
        frames = []
        if target > self._shown:
            frames, self._mark = self.tape.news(self._shown, target, self._mark)
        self._shown = target
        return Batch(frames=frames, now=target)

    def _too_far(self, target: float) -> bool:
        if target <= self._shown:
            return False
        return target - self._shown > HISTORY_S or self.tape.between(self._shown, target) > MOST_FRAMES

    def _watch_the_end(self) -> None:
        duration = self.duration
        if not self._playing or self.position < duration:
            return
        self._anchor = (duration, self._clock.monotonic())
        if self._has_ended():
            self._playing = False

    def _has_ended(self) -> bool:
        return self.tape.finished or self._clock.monotonic() - self._grown_at > GROWTH_S


def _allowed(speed: float) -> float:
    return min(max(speed, SLOWEST), FASTEST)
