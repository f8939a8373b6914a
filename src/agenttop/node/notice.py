"""Events that follow from samples: what a watcher would call out. Pure, with a memory of one sample."""

from __future__ import annotations

import math

from agenttop.model import units
from agenttop.model.counts import miscounted
from agenttop.model.frames import (
    EngineSample,
    Event,
    Frame,
    GpuSample,
    HostSample,
    LoadSample,
    Session,
    Turn,
)
from agenttop.model.text import clean
from agenttop.node.episode import AGAIN_S
from agenttop.node.notice_gpu import GpuNoticer
from agenttop.node.notice_host import HostNoticer

MAX_PACE = 1e6

POOL_ALMOST_FULL = 0.95
"""A unified llama.cpp pool that overflows ends every generation in it."""


class Noticer:
    """Feed it every frame; it returns the events that the frame gives rise to."""

    def __init__(self) -> None:
        self._pace = 1.0
        """Session seconds per second, as the session says."""
        self._gpus = GpuNoticer()
        self._host = HostNoticer()
        self._full: set[str] = set()
        self._failing: dict[str, str] = {}
        self._miscounting: set[str] = set()
        """Engines whose token counts were found wrong."""
        self._limited_at = -math.inf

    def notice(self, frame: Frame) -> list[Event]:
        """Events caused by this frame, usually none."""
        match frame:
            case Session():
                self._pace = frame.speedup if 1.0 <= frame.speedup <= MAX_PACE else 1.0
            case GpuSample():
                self._gpus.pace = self._pace
                return self._gpus.notice(frame)
            case HostSample():
                return self._host.notice(frame, self._pace)
            case EngineSample():
                return self._pool(frame)
            case Turn():
                return self._turn(frame)
            case LoadSample():
                return self._load(frame)
        return []

    def _pool(self, engine: EngineSample) -> list[Event]:
        fill = engine.kv_used_fraction
        if fill is None:
            return []
        active = engine.kv_active_tokens or 0
        almost_full = bool(engine.kv_pool_tokens) and active >= POOL_ALMOST_FULL * (
            engine.kv_pool_tokens or 0
        )
        was = engine.engine in self._full
        if almost_full == was:
            return []
        if not almost_full:
            self._full.discard(engine.engine)
            return []
        self._full.add(engine.engine)
        ends = "; an overflow ends every generation in it" if engine.kv_layout == "unified" else ""
        share = units.percent(active / (engine.kv_pool_tokens or 1))
        text = f"KV pool {share} held by requests in progress{ends}"
        return [
            Event(
                t=engine.t,
                event="engine.kv-full",
                text=text,
                source="engine",
                severity="warn",
                subject=engine.engine,
            )
        ]

    def _load(self, load: LoadSample) -> list[Event]:
        if load.client_limited is None or load.t - self._limited_at < AGAIN_S * self._pace:
            return []
        self._limited_at = load.t
        text = f"the client was the limit, not the engine: {load.client_limited}"
        return [Event(t=load.t, event="driver.limited", text=text, source="driver", severity="warn")]

    def _turn(self, turn: Turn) -> list[Event]:
        if turn.error_kind == "cancelled":
            return []
        if turn.error_kind is not None:
            # The first of a kind in a row: an engine that is down must not drown the events. All are counted.
            if self._failing.get(turn.agent) == turn.error_kind:
                return []
            self._failing[turn.agent] = turn.error_kind
            text = f"{turn.agent} turn {turn.turn} failed: {clean(turn.error or turn.error_kind)}"
            return [_driver_event(turn, "agent.failure", text, severity="bad")]
        self._failing.pop(turn.agent, None)
        wrong = miscounted(turn)
        if wrong is not None and turn.engine not in self._miscounting:
            self._miscounting.add(turn.engine)
            text = f"the engine's token counts cannot be right: {wrong}; every rate from them is as wrong"
            return [_driver_event(turn, "engine.counts", text, severity="bad")]
        if turn.turn_kind == "compact":
            before, after = units.count(turn.prompt_tokens), units.count(turn.context_tokens)
            took = units.seconds(turn.t - turn.t_sent) if turn.t_sent is not None else units.MISSING
            return [
                _driver_event(
                    turn, "agent.compact", f"{turn.agent} compacts {before} → {after} tokens ({took})"
                )
            ]
        return []


def _driver_event(turn: Turn, name: str, text: str, *, severity: str = "info") -> Event:
    return Event(t=turn.t, event=name, text=text, source="driver", severity=severity, subject=turn.agent)
