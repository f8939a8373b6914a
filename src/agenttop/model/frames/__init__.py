"""The frame types, one module a subject; everything is imported from here."""

from __future__ import annotations

from agenttop.model.frames.base import SCHEMA, Frame
from agenttop.model.frames.engine import (
    EngineSample,
    LatencySample,
    PartSample,
    SlotSample,
)
from agenttop.model.frames.load import (
    AgentSample,
    Finding,
    Level,
    LoadSample,
    Plan,
    Turn,
)
from agenttop.model.frames.machine import (
    HARMLESS_THROTTLE,
    GpuSample,
    Hardware,
    HostSample,
    ProcessSample,
)
from agenttop.model.frames.session import (
    GPU_SUBJECT,
    Bye,
    Event,
    Missing,
    OwnSample,
    RecordingState,
    Session,
)

__all__ = [
    "FRAME_TYPES",
    "GPU_SUBJECT",
    "HARMLESS_THROTTLE",
    "SCHEMA",
    "AgentSample",
    "Bye",
    "EngineSample",
    "Event",
    "Finding",
    "Frame",
    "GpuSample",
    "Hardware",
    "HostSample",
    "LatencySample",
    "Level",
    "LoadSample",
    "Missing",
    "OwnSample",
    "PartSample",
    "Plan",
    "ProcessSample",
    "RecordingState",
    "Session",
    "SlotSample",
    "Turn",
    "kind_of",
]

FRAME_TYPES: tuple[type[Frame], ...] = (
    Session,
    HostSample,
    GpuSample,
    EngineSample,
    LatencySample,
    PartSample,
    SlotSample,
    AgentSample,
    Turn,
    LoadSample,
    Plan,
    Level,
    Finding,
    Event,
    Missing,
    OwnSample,
    RecordingState,
    Bye,
    ProcessSample,
    Hardware,
)
"""Every kind this version knows, in the order of their tables."""


def kind_of(frame_type: type[Frame]) -> str:
    """The `kind` a type carries on the wire; also the name of its table."""
    tag = frame_type.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
