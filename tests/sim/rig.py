"""A simulated engine and a loop that drives it to the end."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from agenttop.sim import presets
from agenttop.sim.engine import Emission, SimEngine, SimRequest
from agenttop.sim.options import EngineOptions


def engine(
    host: str = "rtx-5090", model: str = "qwen3.5-9b-4bit", seed: int = 0, **options: object
) -> SimEngine:
    chosen: dict[str, object] = {"noise_fraction": 0.0, **options}
    return SimEngine(presets.host(host), presets.model(model), EngineOptions(**chosen), seed)  # type: ignore[arg-type]


def request(
    name: str, prompt: int, output: int | None, base: int | None = None, **more: object
) -> SimRequest:
    """Blocks of 16 tokens that no other name shares, unless `base` says where they begin."""
    first = zlib.crc32(name.encode()) << 20 if base is None else base
    size = prompt + (output or 0)
    return SimRequest(
        id=name,
        blocks=range(first, first + size // 16),
        prompt_tokens=prompt,
        max_tokens=output,
        **more,  # type: ignore[arg-type]
    )


def drain(running: SimEngine, until: float = 1e9) -> list[Emission]:
    """Everything it says up to a time, or to its end."""
    said: list[Emission] = []
    while (t := running.next_time()) is not None and t <= until:
        said += running.advance(t)
    return said


def times(said: Iterable[Emission], name: str, *kinds: str) -> list[float]:
    return [one.t for one in said if one.request == name and one.kind in kinds]


def kinds(said: Iterable[Emission], name: str) -> list[str]:
    return [one.kind for one in said if one.request == name]
