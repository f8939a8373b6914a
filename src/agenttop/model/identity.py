"""Which frames replace each other: the key under which the newest one is the state."""

from __future__ import annotations

from agenttop.model import frames as f

Identity = tuple[str | int, ...]


def identity(frame: f.Frame) -> Identity | None:
    """The key of the thing a frame describes; None for frames that are each a fact of their own
    (turns, events): those never replace one another."""
    match frame:
        case f.Session():
            return ("session",)
        case f.HostSample():
            return ("host",)
        case f.GpuSample():
            return ("gpu", frame.gpu)
        case f.EngineSample():
            return ("engine", frame.engine)
        case f.SlotSample():
            return ("slot", frame.engine, frame.slot)
        case f.AgentSample():
            return ("agent", frame.agent)
        case f.LoadSample():
            return ("load",)
        case f.Plan():
            return ("plan",)
        case f.Level():
            return ("level",)
        case f.Missing():
            return ("missing", frame.what)
        case f.OwnSample():
            return ("own", frame.role)
        case f.RecordingState():
            return ("recording",)
    return None
