"""The process of a simulated engine: from start to signal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from agenttop.oslayer import run_loop, stop_signals
from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.server import ServerOptions, SimServer

_LASTING = ("simulated", "model", "wire", "speedup", "host", "seed", "kv_pool_tokens", "context_limit_tokens")


def serve(
    host: HostPreset,
    model: ModelPreset,
    engine: EngineOptions,
    options: ServerOptions,
    announce: Callable[[dict[str, Any]], None],
) -> None:
    """Serve until a signal asks to end. `announce` is called once, when the port is known and the server
    listens, or loads its model.

    Raises UsageError when the model does not fit the host, AgenttopError when the port cannot be had, or is
    lost to another program while it is closed.
    """
    run_loop(_serve(host, model, engine, options, announce))


async def _serve(
    host: HostPreset,
    model: ModelPreset,
    engine: EngineOptions,
    options: ServerOptions,
    announce: Callable[[dict[str, Any]], None],
) -> None:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(asked.set))
    server = SimServer(host, model, engine, options)
    await server.start()
    try:
        announce(announcement(server))
        ends = [asyncio.ensure_future(asked.wait()), asyncio.ensure_future(server.serve())]
        done, left = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        for task in done:
            task.result()
    finally:
        await server.stop()


def announcement(server: SimServer) -> dict[str, Any]:
    """What a server says of itself once: the address, and of `GET /sim` what does not change."""
    account = server.account()
    return {
        **{name: account[name] for name in _LASTING},
        "served_model": server.facts.model,
        "url": server.door.url,
        "port": server.door.port,
        "pid": os.getpid(),
    }
