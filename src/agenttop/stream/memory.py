"""The recent past of a live session as a tape: what rewinding falls back on without a recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from agenttop.model.frames import Event, Frame, Session
from agenttop.stream.history import HISTORY_S, MAX_EVENTS, History


class Memory(History):
    """Keeps what `History` keeps, and plays any moment of its window."""

    def __init__(self, window_s: float = HISTORY_S) -> None:
        super().__init__(window_s)
        self.finished = False
        """Set when the session has ended."""
        self._added = 0
        self._first: float | None = None
        self._last = 0.0
        self._marks: deque[Event] = deque(maxlen=MAX_EVENTS)

    def add(self, frame: Frame) -> None:
        """Take in one frame, in the order of arrival."""
        super().add(frame)
        self._added += 1
        self._last = max(self._last, frame.t)
        if self._first is None or frame.t < self._first:
            self._first = frame.t
        if isinstance(frame, Event):
            self._marks.append(frame)

    @property
    def start(self) -> float:
        """The earliest moment that can be shown."""
        return max(self._first or 0.0, self._last - self._window_s)

    @property
    def duration(self) -> float:
        """Session time of the newest frame."""
        return self._last

    def state_at(self, t: float, window_s: float, most: int) -> tuple[list[Frame], int]:
        """See `Tape`. All that is in memory is given: it is no more than the window anyway."""
        older = [*self._newest.values(), *self._events]
        frames = [frame for frame in (*older, *self._recent) if frame.t <= t or _is_session(frame)]
        return sorted(frames, key=lambda frame: (not _is_session(frame), frame.t)), self._added

    def news(self, after: float, until: float, mark: int) -> tuple[list[Frame], int]:
        """See `Tape`."""
        late = [frame for frame in self._since(mark) if frame.t <= after]
        fresh = [frame for frame in self._recent if after < frame.t <= until]
        return sorted(late + fresh, key=lambda frame: frame.t), self._added

    def between(self, after: float, until: float) -> int:
        """See `Tape`."""
        return sum(1 for frame in self._recent if after < frame.t <= until)

    def frames(self, t0: float, t1: float, kinds: Collection[type[Frame]] | None = None) -> list[Frame]:
        """Frames of the window with `t0` <= t <= `t1`, in order."""
        wanted = [f for f in self._recent if t0 <= f.t <= t1 and (kinds is None or type(f) in kinds)]
        return sorted(wanted, key=lambda frame: frame.t)

    def events(self) -> list[Event]:
        """Every event still known, those before the window included."""
        return list(self._marks)

    def _since(self, mark: int) -> Iterator[Frame]:
        return islice(self._recent, max(0, len(self._recent) - (self._added - mark)), None)


def _is_session(frame: Frame) -> bool:
    return isinstance(frame, Session)
