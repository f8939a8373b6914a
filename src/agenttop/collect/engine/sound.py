"""What an adapter of another package gives is looked through before anything believes it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from agenttop.collect.engine.base import EngineReading
from agenttop.model import frames as f

_STATES = ("ok", "busy", "loading", "asleep", "down", "unauthorised", "unsupported")
_KINDS: dict[str, type[f.Frame]] = {
    "slots": f.SlotSample,
    "gpus": f.GpuSample,
    "latencies": f.LatencySample,
    "parts": f.PartSample,
    "missing": f.Missing,
    "events": f.Event,
}


class UnsoundError(Exception):
    """A reading that cannot be shown."""


def check(url: str, reading: object) -> EngineReading:
    """The reading, where all its frames are what they should be. Raises UnsoundError."""
    if not isinstance(reading, EngineReading):
        raise UnsoundError("poll gives no EngineReading")
    _check_frame(url, reading.sample, f.EngineSample)
    if reading.sample.state not in _STATES:
        raise UnsoundError("the sample has a state that there is not")
    for name, kind in _KINDS.items():
        frames = getattr(reading, name)
        if not isinstance(frames, list):
            raise UnsoundError(f"{name} is no list")
        for frame in frames:
            _check_frame(url, frame, kind)
    return reading


def _check_frame(url: str, frame: object, kind: type[f.Frame]) -> None:
    if type(frame) is not kind:
        raise UnsoundError(f"something in its reading is no {kind.__name__}")
    if getattr(frame, "engine", url) != url:
        raise UnsoundError(f"a {kind.__name__} is of another engine")
    try:
        values = msgspec.to_builtins(frame)
        msgspec.convert(values, kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise UnsoundError(f"{kind.__name__}: {error}") from error
    for name, value in _leaves("", values):
        if isinstance(value, str) and not value.isprintable():
            raise UnsoundError(f"{name} of a {kind.__name__} has characters that act on a terminal")
        if isinstance(value, int | float) and (not math.isfinite(value) or (value < 0 and name != "t")):
            raise UnsoundError(f"{name} of a {kind.__name__} is {value}")
        if name.endswith("_fraction") and isinstance(value, float) and value > 1:
            raise UnsoundError(f"{name} of a {kind.__name__} is {value}, more than 1")


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield name or "a name", key
            yield from _leaves(name or str(key), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(name, each)
    else:
        yield name, value
