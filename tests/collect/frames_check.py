"""What must hold of every frame, whatever a server has sent."""

from __future__ import annotations

import math

import msgspec

from agenttop.collect.engine.base import EngineReading


def assert_sane(reading: EngineReading) -> None:
    """No NaN, no infinity, nothing negative, fractions within 0..1, texts that fit on a line."""
    frames = [reading.sample, *reading.slots, *reading.parts, *reading.latencies]
    for frame in frames:
        for name in frame.__struct_fields__:
            value = getattr(frame, name)
            if isinstance(value, float):
                assert math.isfinite(value), (name, value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert value >= 0, (name, value)
                assert not name.endswith("_fraction") or value <= 1, (name, value)
            if isinstance(value, str):
                assert value.isprintable(), (name, value)
                assert len(value) <= 300, (name, value)
        msgspec.json.encode(frame)
