"""Events that follow from samples: what a watcher would call out. Pure, with a memory of one sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.counts import miscounted
from agenttop.model.frames import (
    HARMLESS_THROTTLE,
    EngineSample,
    Event,
    Frame,
    GpuSample,
    LoadSample,
    Session,
    Turn,
)
from agenttop.model.identity import SIMULATED
from agenttop.model.text import clean

AGAIN_S = 60.0
"""What comes and goes is told this often at most: seconds of the person who reads it, not of a session
that runs faster than life."""

CALM_S = 10.0
"""What has not been seen for so long, in the same seconds, has ended."""

MAX_PACE = 1e6

POOL_ALMOST_FULL = 0.95
"""A unified llama.cpp pool that overflows ends every generation in it."""


@dataclass(slots=True)
class _Held:
    """One reason for which one card is held down."""

    on: bool = False
    """In the newest sample."""
    seen_at: float = -math.inf
    told: bool = False
    """A begin was told, and no end since."""
    told_at: float = -math.inf
    times: int = 0
    """How often it began since something was told."""

    def repeats(self, t: float) -> str:
        """`, 12 times in 4.0 m`: nothing for the first time, and where it did not come again."""
        if self.times < 2 or not math.isfinite(self.told_at):
            return ""
        return f", {self.times} times in {units.seconds(t - self.told_at)}"


class Noticer:
    """Feed it every frame; it returns the events that the frame gives rise to."""

    def __init__(self) -> None:
        self._pace = 1.0
        """Session seconds per second, as the session says."""
        self._throttle: dict[str, dict[str, _Held]] = {}
        """Of each GPU: what holds it down, by reason; kept for a while after it has ended."""
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
                return self._gpu(frame)
            case EngineSample():
                return self._pool(frame)
            case Turn():
                return self._turn(frame)
            case LoadSample():
                return self._load(frame)
        return []

    def _gpu(self, gpu: GpuSample) -> list[Event]:
        """A card at its limit is held down and let go several times a minute: one begin, and an end once it
        has been left alone for a while; how often it was held down in between is said by the next begin."""
        if gpu.throttle is None:
            return []
        now = frozenset(gpu.throttle) - HARMLESS_THROTTLE
        known = self._throttle.setdefault(gpu.gpu, {})
        events = []
        for reason in sorted(now):
            held = known.setdefault(reason, _Held())
            if not held.on:
                held.on, held.times = True, held.times + 1
            held.seen_at = gpu.t
            if not held.told and gpu.t - held.told_at >= AGAIN_S * self._pace:
                severity = "warn" if reason == "power cap" else "bad"
                text = f"{_gpu_name(gpu)} held down by {reason}{held.repeats(gpu.t)}"
                events.append(_gpu_event(gpu, "gpu.throttle", text, severity))
                held.told, held.told_at, held.times = True, gpu.t, 0
        for reason, held in sorted(known.items()):
            held.on = reason in now
            if held.told and gpu.t - held.seen_at >= CALM_S * self._pace:
                held.told = False
                text = f"{_gpu_name(gpu)} no longer held down by {reason}{held.repeats(gpu.t)}"
                events.append(_gpu_event(gpu, "gpu.throttle-end", text))
                held.told_at, held.times = gpu.t, 0
        return events

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


def _gpu_event(gpu: GpuSample, name: str, text: str, severity: str = "info") -> Event:
    return Event(t=gpu.t, event=name, text=text, source="gpu", severity=severity, subject=gpu.gpu)


def _gpu_name(gpu: GpuSample) -> str:
    return f"{'simulated ' if gpu.gpu.startswith(SIMULATED) else ''}GPU{gpu.index}"


def _driver_event(turn: Turn, name: str, text: str, *, severity: str = "info") -> Event:
    return Event(t=turn.t, event=name, text=text, source="driver", severity=severity, subject=turn.agent)
