"""What a run remembers of its levels while it is under way: enough to judge them, and no more.

Frames are kept of the level in progress and of the one before: requests that were in flight when a level
ended are written in the next one, and belong to both. Of older levels only their figures stay.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import msgspec

from agenttop.analyse.compare import rows_of
from agenttop.analyse.levels import ENDINGS
from agenttop.analyse.material import Material
from agenttop.analyse.points import LevelPoint, points_of
from agenttop.analyse.row import LevelRow
from agenttop.model.frames import AgentSample, EngineSample, Event, Frame, Level, LoadSample, Session, Turn

MOST_TURNS = 20_000
MOST_ARRIVALS_BYTES = 64_000_000
"""Bounds on what is kept of two levels; beyond the second the oldest turns keep their counts and lose the
times of their single tokens, which are then taken as evenly spread."""


@dataclass(slots=True)
class Over:
    """A level that is over."""

    level: Level
    row: LevelRow | None
    point: LevelPoint | None


class LevelBook:
    """Takes every frame the hub publishes; `begin` and `end` are called at the bounds of a level."""

    def __init__(self, session: Session) -> None:
        self._material = Material(session)
        self._arrivals_bytes = 0
        self._stripped = 0
        """Turns at the beginning that have lost their arrivals."""
        self.over: list[Over] = []

    def take(self, frames: list[Frame]) -> None:
        """Keep what levels are judged by."""
        for frame in frames:
            if isinstance(frame, Turn):
                self._arrivals_bytes += len(frame.arrivals or b"")
                self._material.add(frame)
            elif isinstance(frame, Event):
                # Endings of a run bound its last level; a session has thousands of other events.
                if frame.event in ENDINGS:
                    self._material.add(frame)
            elif not isinstance(frame, AgentSample):
                self._material.add(frame)
        self._bound()

    def begin(self, level: Level) -> None:
        """A level has begun; its frame has been published, and so taken in."""
        earlier = self.over[-1].level.t if self.over else level.t
        kept = self._material
        self._material = Material(
            kept.session,
            levels=[old for old in kept.levels if old.t >= earlier],
            turns=_since(kept.turns, earlier),
            loads=_since(kept.loads, earlier),
            engines=_since(kept.engines, earlier),
            hosts=_since(kept.hosts, earlier),
            gpus=_since(kept.gpus, earlier),
            processes=_since(kept.processes, earlier),
            events=_since(kept.events, earlier),
            hardware=kept.hardware,
            duration=kept.duration,
        )
        self._arrivals_bytes = sum(len(turn.arrivals or b"") for turn in self._material.turns)
        self._stripped = 0

    def turns(self, start: float) -> list[Turn]:
        """Those that ended since `start`."""
        return _since(self._material.turns, start)

    def loads(self, start: float) -> list[LoadSample]:
        """Those since `start`."""
        return _since(self._material.loads, start)

    def engine(self, name: str | None = None) -> EngineSample | None:
        """The newest sample of the engine, or of any."""
        samples = reversed(self._material.engines)
        return next((sample for sample in samples if name in (None, sample.engine)), None)

    def row(self, now: float) -> LevelRow | None:
        """The figures of the level in progress, as if it ended now."""
        rows = self._rows(now)
        return rows[-1] if rows else None

    def end(self, level: Level, now: float) -> LevelRow | None:
        """A level is over. Figures of the one before are taken anew: its last requests are in by now."""
        rows = self._rows(now)
        points = points_of(self._material, rows)
        if self.over and len(rows) > 1:
            before = self.over[-1]
            before.row, before.point = rows[-2], points[-2]
        self.over.append(Over(level, rows[-1] if rows else None, points[-1] if points else None))
        return self.over[-1].row

    def points(self) -> list[LevelPoint]:
        """All levels that are over, in order."""
        return [level.point for level in self.over if level.point is not None]

    def _rows(self, now: float) -> list[LevelRow]:
        material = self._material
        material.duration = max(now, material.loads[-1].t if material.loads else now)
        return [self._counted_live(row) for row in rows_of(material)]

    def _counted_live(self, row: LevelRow) -> LevelRow:
        """Turns of requests in flight are not written yet: the driver's own count has their tokens."""
        ended = [over for over in self.over if over.level.t == row.t_start]
        inside = [load for load in self._material.loads if row.t_end - row.window_s <= load.t < row.t_end]
        rates = [load.decode_tok_s for load in inside if load.decode_tok_s is not None]
        if ended or row.decode_tok_s is None or len(rates) < 2:
            return row
        return msgspec.structs.replace(row, decode_tok_s=max(row.decode_tok_s, sum(rates) / len(rates)))

    def _bound(self) -> None:
        turns = self._material.turns
        if (surplus := len(turns) - MOST_TURNS) > 0:
            self._arrivals_bytes -= sum(len(turn.arrivals or b"") for turn in turns[:surplus])
            del turns[:surplus]
            self._stripped = max(0, self._stripped - surplus)
        while self._arrivals_bytes > MOST_ARRIVALS_BYTES and self._stripped < len(turns):
            turn = turns[self._stripped]
            self._arrivals_bytes -= len(turn.arrivals or b"")
            turns[self._stripped] = msgspec.structs.replace(turn, arrivals=None)
            self._stripped += 1


def _since(frames: list, start: float) -> list:  # type: ignore[type-arg]
    return frames[bisect_left(frames, start, key=lambda frame: frame.t) :]
