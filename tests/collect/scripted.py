"""An engine whose replies change between looks, read by one adapter on a clock that the test moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, UnrecognisedError
from agenttop.collect.engine.http import EngineClient, EngineError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.registry import registry
from tests.collect import imitations as imitate

FRACTIONS = ("kv_used_fraction", "kv_fullest_fraction", "prefix_hit_fraction", "draft_acceptance")


class Played:
    """Plays one kind of engine: `async with` it, then `look` again and again."""

    def __init__(
        self, kind: str, routes: Mapping[str, Any], seen: Circumstances | None = None, headers: str = ""
    ) -> None:
        named = registry().named(kind)
        assert named is not None, kind
        self.kind = named
        self.routes = dict(routes)
        self.now = 0.0
        self._seen = seen or Circumstances()
        self._server = imitate.serves(self.routes, kind=kind, headers=headers)

    async def __aenter__(self) -> Played:
        self._server.__enter__()
        self.url = self._server.url
        self.client = EngineClient(self.url, self.kind.allowed_paths, now=lambda: self.now)
        self.adapter: EngineAdapter = self.kind.adapter(self.client, self._seen)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()
        self._server.__exit__(*error)

    @property
    def asked(self) -> list[str]:
        return [line.split(" ")[1] for line in self._server.asked]

    async def look(self, at: float | None = None, **routes: Any) -> EngineReading:
        """One look, later by a second or at a time; `metrics=body` changes that route."""
        self.routes |= {f"/{name}": body for name, body in routes.items()}
        self.now = self.now + 1.0 if at is None else at
        reading = await self.adapter.poll()
        sound(reading)
        return reading

    async def looks(self, bodies: Iterable[tuple[float, bytes]]) -> list[EngineReading]:
        """Looks at `/metrics` as it was at these times."""
        return [await self.look(at, metrics=body.decode("utf-8", "replace")) for at, body in bodies]

    async def survives(self, at: float | None = None, **routes: Any) -> EngineReading | None:
        """A look that may fail, but only in one of the ways adapters may fail."""
        try:
            return await self.look(at, **routes)
        except (EngineError, ChangedError, UnrecognisedError):
            return None

    def why(self, reading: EngineReading) -> dict[str, str | None]:
        """Reasons by field."""
        return {frame.what.removeprefix(f"{self.url}:"): frame.why for frame in reading.missing}


def sound(reading: EngineReading) -> None:
    """No NaN, no infinity, nothing below zero, no share above one, no text for a terminal to act on."""
    frames = [reading.sample, *reading.slots, *reading.latencies, *reading.parts]
    for frame in frames:
        _sound(msgspec.to_builtins(frame))
    for frame in (reading.sample, *reading.parts):
        for field in FRACTIONS:
            value = getattr(frame, field, None)
            assert value is None or 0 <= value <= 1, (field, value)
    for told in (*reading.missing, *reading.events):
        _sound(msgspec.to_builtins(told))
    told_once = [frame.what for frame in reading.missing]
    assert len(told_once) == len(set(told_once)), "two reasons for one field"
    for what in told_once:
        field = what.rpartition(":")[2]
        value = getattr(reading.sample, field, None)
        assert value in (None, {}) or field in ("prefix_hits_tokens_total", "decode_tok_s"), (
            f"{field} is shown ({value!r}), and said to be missing"
        )


def _sound(value: object) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, float | int):
        assert math.isfinite(value)
        assert 0 <= value < 1e16
    elif isinstance(value, str):
        assert value.isprintable()
        assert len(value) < 600
    elif isinstance(value, dict):
        for key, each in value.items():
            _sound(key)
            _sound(each)
    elif isinstance(value, list):
        for each in value:
            _sound(each)
