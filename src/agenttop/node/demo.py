"""Which engine a demo runs: a real llama.cpp server on random weights, or a simulated one."""

from __future__ import annotations

from typing import Protocol

from agenttop.model import commands as c
from agenttop.node.settings import NodeSettings

PROFILE = "human"

PACE = 6.0
"""A demo is watched for minutes: people and tools of the profile answer faster in it."""

CONTEXT = 16384
"""Tokens of KV cache for the four slots of the real server."""


class Engine(Protocol):
    """An engine the node owns."""

    @property
    def url(self) -> str:
        """Where it answers."""
        ...

    def stop(self) -> None:
        """End it; blocks."""
        ...


def announcement(settings: NodeSettings) -> str:
    """What is being started."""
    if settings.sim_host is None:
        return "starting the demo engine: llama.cpp on a random-weight model"
    return f"starting a simulated engine: {settings.sim_model} on {settings.sim_host}"


def start(settings: NodeSettings) -> Engine:
    """Start it and wait for it; blocks. Raises AgenttopError."""
    if settings.sim_host is None:
        from agenttop.demo.engine import DemoEngine

        return DemoEngine.start(context=CONTEXT)
    from agenttop.sim.launch import SimProcess

    return SimProcess.start(settings.sim_host, settings.sim_model, speedup=settings.sim_speedup)


def load(url: str, settings: NodeSettings) -> c.StartAgents:
    """What a demo starts by itself."""
    pace = PACE if settings.sim_host is None else max(1.0, PACE / settings.sim_speedup)
    own_starts = any(key.startswith("start.") for key in settings.demo_overrides)
    return c.StartAgents(
        engine=url,
        profile=PROFILE,
        target=settings.demo_agents,
        stagger_s=None if own_starts else 4.0,
        pace=pace,
        overrides=settings.demo_overrides,
    )


def simulated(settings: NodeSettings) -> tuple[float, str | None]:
    """Speed and host of the engine it will run, known before it does: all times of the session follow from
    it. Raises UsageError for a preset that there is none of."""
    if settings.sim_host is None:
        return 1.0, None
    from agenttop.sim import presets

    return settings.sim_speedup, presets.host(settings.sim_host).name
