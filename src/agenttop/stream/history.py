"""The recent past of a live session, kept so that a newcomer (or a screen coming back from a
rewind) can be brought to the present: the newest frame of everything, and all frames of a window."""

from __future__ import annotations

from collections import deque

from agenttop.model.frames import Event, Frame
from agenttop.model.identity import Identity, identity

HISTORY_S = 300.0
"""How far back screens draw their trends, and so how much of the past a state is rebuilt from."""

MAX_FRAMES = 120_000
"""Bound on the window: 300 s of a 256-slot engine fit, a flood does not."""

MAX_EVENTS = 2_000


class History:
    """What `rebuild` returns brings an empty store to the state at the newest frame."""

    def __init__(self, window_s: float = HISTORY_S) -> None:
        self._window_s = window_s
        self._recent: deque[Frame] = deque(maxlen=MAX_FRAMES)
        self._newest: dict[Identity, Frame] = {}
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def add(self, frame: Frame) -> None:
        """Take in one frame, in the order of arrival."""
        self._recent.append(frame)
        while self._recent and self._recent[0].t < frame.t - self._window_s:
            self._retire(self._recent.popleft())

    def _retire(self, frame: Frame) -> None:
        """Older than the window: only what still counts is kept."""
        key = identity(frame)
        if key is not None:
            self._newest[key] = frame
        elif isinstance(frame, Event):
            self._events.append(frame)

    def rebuild(self) -> list[Frame]:
        """Frames that rebuild the present, oldest first; the session comes before all others."""
        older = sorted([*self._newest.values(), *self._events], key=lambda frame: frame.t)
        frames = [*older, *self._recent]
        frames.sort(key=lambda frame: identity(frame) != ("session",))
        return frames
