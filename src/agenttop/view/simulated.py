"""What is real on the screen and what is not: said wherever figures of a simulated engine stand."""

from __future__ import annotations

from collections.abc import Iterable

from agenttop.model.frames import EngineSample, GpuSample
from agenttop.model.identity import SIMULATED, simulated_gpus
from agenttop.view.look import Look
from agenttop.view.rows import SILENT_STATES, engine_in_focus
from agenttop.view.spans import foreign
from agenttop.view.store import Store

UNTOLD = (*SILENT_STATES, "loading")
"""States in which an engine has not said what it is."""


def notice(store: Store, engine: EngineSample | None, *, short: bool = False) -> str | None:
    """`SIMULATED RTX 5090 · 20x`, or short `SIM 20x`; None for an engine that is none, or real.

    An engine that does not answer is what the session took it for when it began.
    """
    session = store.session
    host, pace = (engine.simulated, engine.speedup) if engine is not None else (None, None)
    if host is None and session is not None and (engine is None or engine.state in UNTOLD):
        named = engine is None or engine.engine in session.urls
        host, pace = (session.simulated, session.speedup) if named else (None, None)
    if host is None:
        return None
    speed = f"{pace:g}x" if pace is not None else "pace unknown"
    return f"SIM {speed}" if short else f"SIMULATED {foreign(host, 40)} · {speed}"


def gpus(store: Store, look: Look | None = None) -> list[GpuSample]:
    """The GPUs the picture is about, by index: those that the engine in focus invents, else the host's."""
    engine = engine_in_focus(store, look)
    invented: list[GpuSample] = []
    if engine is not None and engine.simulated is not None:
        prefix = simulated_gpus(engine.engine)
        invented = [gpu for gpu in store.gpus.values() if gpu.gpu.startswith(prefix)]
    real = [gpu for gpu in store.gpus.values() if not is_simulated(gpu)]
    return in_order(invented or real)


def in_order(samples: Iterable[GpuSample]) -> list[GpuSample]:
    """By index, MIG instances right below the card they are a part of."""
    some = list(samples)
    cards = {gpu.gpu: gpu.index for gpu in some if gpu.parent is None}

    def place(gpu: GpuSample) -> tuple[int, bool, int, int]:
        card = cards.get(gpu.parent or "", gpu.index)
        return (card, gpu.parent is not None, gpu.mig_instance or 0, gpu.index)

    return sorted(some, key=place)


def is_simulated(gpu: GpuSample) -> bool:
    """Whether an engine invented it."""
    return gpu.gpu.startswith(SIMULATED)
