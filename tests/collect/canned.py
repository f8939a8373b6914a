"""An engine whose replies change between looks, on a clock that the test moves, read by its own adapter."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineReading
from agenttop.collect.engine.http import (
    BODY_LIMIT,
    EngineClient,
    EngineError,
    NotAllowedError,
    Reply,
    TooBigError,
    UnauthorisedError,
)
from agenttop.collect.engine.kind import Circumstances, EngineKind


class CannedClient(EngineClient):
    """Answers from a table instead of from a socket; what is not in it is a 404."""

    def __init__(self, routes: dict[str, Any], allowed: Iterable[str], clock: Scripted) -> None:
        super().__init__("http://127.0.0.1:1", allowed)
        self.routes = routes
        self.asked: list[str] = []
        self._clock = clock
        self.now = lambda: clock.now

    async def get(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        limit: int = BODY_LIMIT,
        answer_s: float | None = None,
    ) -> Reply:
        if path not in self.allowed or query:
            raise NotAllowedError(path)
        self.asked.append(path)
        found = self.routes.get(path, (404, {"detail": "Not Found"}))
        status, body = found if isinstance(found, tuple) else (200, found)
        if isinstance(body, str):
            body = body.encode()
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        if status in (401, 403):
            raise UnauthorisedError(f"answers GET {path} with {status}", "")
        if len(body) > limit:
            raise TooBigError("too big")
        return Reply(status, {}, body, self._clock.now, 0.001)


class Scripted:
    """An adapter, and what it is told."""

    def __init__(self, kind: EngineKind, routes: Mapping[str, Any]) -> None:
        self.kind = kind
        self.routes = dict(routes)
        self.now = 0.0
        self._client = CannedClient(self.routes, kind.allowed_paths, self)
        self.adapter = kind.adapter(self._client, Circumstances())

    @property
    def asked(self) -> list[str]:
        return self._client.asked

    async def look(self, at: float | None = None, **routes: Any) -> EngineReading:
        """At this time (else a second later); `metrics="..."` and the like replace what was served."""
        self.routes |= {f"/{name.replace('__', '/')}": body for name, body in routes.items()}
        self.now = self.now + 1.0 if at is None else at
        reading = await self.adapter.poll()
        assert_sound(reading)
        return reading

    async def survives(self, **routes: Any) -> EngineReading | None:
        """A look at whatever these replies are: a sound reading, or an error that an adapter may raise."""
        try:
            return await self.look(**routes)
        except (EngineError, ChangedError):
            return None


def why(reading: EngineReading) -> dict[str, str]:
    """Field to the reason why it is not shown."""
    return {frame.what.rpartition(":")[2]: frame.why or "" for frame in reading.missing}


def fixes(reading: EngineReading) -> set[str]:
    return {frame.fix for frame in reading.missing if frame.fix}


def assert_sound(reading: EngineReading) -> None:
    """No NaN, infinity, negative or control character in any frame, fractions within 0..1, and a reason for
    what is not shown."""
    frames = [reading.sample, *reading.latencies, *reading.parts, *reading.slots, *reading.missing]
    for frame in [*frames, *reading.events]:
        for name, value in msgspec.structs.asdict(frame).items():
            _assert_sound(f"{type(frame).__name__}.{name}", name, value)
    shown = msgspec.structs.asdict(reading.sample)
    for field in why(reading):
        assert shown.get(field) is None, f"{field} is shown, and has a reason why it is not"
    for field in (
        "running",
        "waiting",
        "kv_used_fraction",
        "decode_tok_s",
        "prefill_tok_s",
        "kv_pool_tokens",
    ):
        assert shown[field] is not None or field in why(reading), f"{field} is missing without a reason"


def _assert_sound(where: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        assert math.isfinite(value), where
        assert value >= 0, where
        assert value < 1e16, where
        if name.endswith("_fraction") or name == "draft_acceptance":
            assert value <= 1, where
    elif isinstance(value, str):
        assert value.isprintable(), where
        assert len(value) < 500, where
    elif isinstance(value, dict):
        for key, each in value.items():
            _assert_sound(where, "", key)
            _assert_sound(where, "", each)
