"""The frames of a session that levels are judged by: from a recording, or as the node gathers them live."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from agenttop.model.frames import (
    EngineSample,
    Event,
    Frame,
    GpuSample,
    Hardware,
    HostSample,
    Level,
    LoadSample,
    ProcessSample,
    Session,
    Turn,
)
from agenttop.record.read import Recording

F = TypeVar("F", bound=Frame)


@dataclass(slots=True)
class Material:
    """What levels are judged by, each list in order of t. `duration` is the session time reached."""

    session: Session
    levels: list[Level] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    loads: list[LoadSample] = field(default_factory=list)
    engines: list[EngineSample] = field(default_factory=list)
    hosts: list[HostSample] = field(default_factory=list)
    gpus: list[GpuSample] = field(default_factory=list)
    processes: list[ProcessSample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    hardware: Hardware | None = None
    """As last told."""
    duration: float = 0.0

    def add(self, frame: Frame) -> None:
        """Take in a frame of the running session; kinds that do not matter here are left."""
        kept: list[Frame] | None = {
            Level: self.levels,
            Turn: self.turns,
            LoadSample: self.loads,
            EngineSample: self.engines,
            HostSample: self.hosts,
            GpuSample: self.gpus,
            ProcessSample: self.processes,
            Event: self.events,
        }.get(type(frame))  # type: ignore[assignment]
        if isinstance(frame, Hardware):
            self.hardware = frame
        if kept is not None:
            # Frames of one kind come in order but for a rare straggler.
            if kept and kept[-1].t > frame.t:
                kept.insert(bisect_left(kept, frame.t, key=lambda other: other.t), frame)
            else:
                kept.append(frame)
        self.duration = max(self.duration, frame.t)


def of_frames(session: Session, frames: Iterable[Frame]) -> Material:
    """Material of frames in memory."""
    material = Material(session)
    for frame in frames:
        material.add(frame)
    return material


def of_recording(recording: Recording) -> Material:
    """Material of a finished or growing recording."""
    return Material(
        session=recording.session,
        levels=list(recording.of(Level)),
        turns=list(recording.turns()),
        loads=list(recording.of(LoadSample)),
        engines=list(recording.of(EngineSample)),
        hosts=list(recording.of(HostSample)),
        gpus=list(recording.of(GpuSample)),
        processes=list(recording.of(ProcessSample)),
        hardware=next(reversed(recording.of(Hardware)), None),
        events=list(recording.events()),
        duration=recording.duration,
    )


def within(samples: Sequence[F], start: float, end: float) -> Sequence[F]:
    """Those with `start` <= t < `end`."""
    first = bisect_left(samples, start, key=lambda sample: sample.t)
    return samples[first : bisect_left(samples, end, key=lambda sample: sample.t)]
