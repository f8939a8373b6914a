"""Events that follow from samples: what a watcher would call out. Pure, with a memory of one sample."""

from __future__ import annotations

import math

from agenttop.model import units
from agenttop.model.frames import HARMLESS_THROTTLE, EngineSample, Event, Frame, GpuSample, LoadSample, Turn
from agenttop.model.identity import SIMULATED
from agenttop.model.text import clean

AGAIN_S = 60.0
"""What comes and goes is told this often at most."""

CALM_S = 10.0
"""What has not been seen for so long has ended."""

POOL_ALMOST_FULL = 0.95
"""A unified llama.cpp pool that overflows ends every generation in it."""


class Noticer:
    """Feed it every frame; it returns the events that the frame gives rise to."""

    def __init__(self) -> None:
        self._throttle: dict[str, dict[str, float]] = {}
        """Of each GPU: reason to the time at which it was last seen."""
        self._full: set[str] = set()
        self._failing: dict[str, str] = {}
        self._limited_at = -math.inf

    def notice(self, frame: Frame) -> list[Event]:
        """Events caused by this frame, usually none."""
        match frame:
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
        has been left alone for a while."""
        if gpu.throttle is None:
            return []
        now = frozenset(gpu.throttle) - HARMLESS_THROTTLE
        held = self._throttle.setdefault(gpu.gpu, {})
        events = []
        for reason in sorted(now - held.keys()):
            severity = "warn" if reason == "power cap" else "bad"
            text = f"{_gpu_name(gpu)} held down by {reason}"
            events.append(_gpu_event(gpu, "gpu.throttle", text, severity))
        held |= dict.fromkeys(now, gpu.t)
        for reason in sorted(reason for reason, seen in held.items() if gpu.t - seen >= CALM_S):
            del held[reason]
            events.append(
                _gpu_event(gpu, "gpu.throttle-end", f"{_gpu_name(gpu)} no longer held down by {reason}")
            )
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
        if load.client_limited is None or load.t - self._limited_at < AGAIN_S:
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
