"""Which frames tell a recording nothing new: what stands still need not be written every second.

Rules
- A part of an engine is written when something of it has changed; the time until it is unloaded runs by
  itself. A latency of which nothing is counted is written once.
- What is left out, a reader has: the newest frame of an identity holds until there is another. Where a reader
  forgets (the engine was restarted, became another, is gone), all is written anew.
"""

from __future__ import annotations

import msgspec

from agenttop.model.frames import EngineSample, Event, Frame, LatencySample, PartSample
from agenttop.wire.codec import Unknown

SLACK_S = 2.0
"""By so much a time that runs down may be off before it counts as another."""


class Repeats:
    """Remembers what the recording holds of each engine."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[tuple[str, str], PartSample]] = {}
        self._uncounted: dict[str, set[str]] = {}
        """Engines to the measures of which the last row said that nothing was counted."""
        self._processes: dict[str, tuple[str, int]] = {}

    def has(self, frame: Frame | Unknown) -> bool:
        """Whether the recording holds this already; what it does not, it is taken to hold from now on."""
        match frame:
            case PartSample():
                return self._has_part(frame)
            case LatencySample():
                return self._has_latency(frame)
            case EngineSample():
                process = (frame.name, frame.restarts)
                if self._processes.setdefault(frame.engine, process) != process:
                    self._forget(frame.engine)
                    self._processes[frame.engine] = process
            case Event(event="engine.gone", subject=str(engine)):
                self._forget(engine)
        return False

    def _has_part(self, frame: PartSample) -> bool:
        parts = self._parts.setdefault(frame.engine, {})
        key = (frame.role, frame.part)
        held = parts.get(key)
        if held is not None and _same(held, frame):
            return True
        if frame.state == "gone":
            parts.pop(key, None)
        else:
            parts[key] = frame
        return False

    def _has_latency(self, frame: LatencySample) -> bool:
        uncounted = self._uncounted.setdefault(frame.engine, set())
        if frame.count > 0:
            uncounted.discard(frame.measure)
            return False
        if frame.measure in uncounted:
            return True
        uncounted.add(frame.measure)
        return False

    def _forget(self, engine: str) -> None:
        self._parts.pop(engine, None)
        self._uncounted.pop(engine, None)


def _same(held: PartSample, frame: PartSample) -> bool:
    """Whether nothing but the time has gone on."""
    if msgspec.structs.replace(frame, t=held.t, expires_s=held.expires_s) != held:
        return False
    if held.expires_s is None or frame.expires_s is None:
        return held.expires_s is frame.expires_s
    return abs(held.t + held.expires_s - frame.t - frame.expires_s) <= SLACK_S
