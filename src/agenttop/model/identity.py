"""Which frames replace each other: the key under which the newest one is the state."""

from __future__ import annotations

from urllib.parse import urlsplit

from agenttop.model import frames as f

Identity = tuple[str | int, ...]

IDENTITY: dict[type[f.Frame], tuple[str, ...]] = {
    f.Session: (),
    f.HostSample: (),
    f.GpuSample: ("gpu",),
    f.ProcessSample: ("pid",),
    f.Hardware: (),
    f.EngineSample: ("engine",),
    f.LatencySample: ("engine", "measure"),
    f.PartSample: ("engine", "role", "part"),
    f.SlotSample: ("engine", "slot"),
    f.AgentSample: ("agent",),
    f.LoadSample: (),
    f.Plan: (),
    f.Level: (),
    f.Finding: ("what",),
    f.Missing: ("what",),
    f.OwnSample: ("role",),
    f.RecordingState: (),
}
"""The fields that, with the kind, tell what a frame describes. Kinds that are not here (turns, events) are
each a fact of their own and never replace one another."""


def simulated_gpus(url: str) -> str:
    """How the identities of the GPUs begin that the simulated engine at `url` (normalised) invents.

    They must never stand in for GPUs of the host, whose identities are UUIDs or bus addresses.
    """
    return f"{SIMULATED}{urlsplit(url).netloc}/"


SIMULATED = "sim:"
"""How the identity of every simulated GPU begins."""


def identity(frame: f.Frame) -> Identity | None:
    """The key of the thing a frame describes; None for facts of their own."""
    fields = IDENTITY.get(type(frame))
    if fields is None:
        return None
    return (f.kind_of(type(frame)), *(getattr(frame, field) for field in fields))
