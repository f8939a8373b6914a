"""The engines of a session side by side: their order, their names in a few cells, what belongs to each."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from agenttop.model.frames import EngineSample, LatencySample, PartSample
from agenttop.model.url import is_local
from agenttop.view.look import Look
from agenttop.view.rows import SILENT_STATES, engine_in_focus
from agenttop.view.spans import foreign
from agenttop.view.store import Store

MEASURES = ("ttft", "itl", "e2e", "queue", "prefill", "decode")
"""Latencies in the order in which they are shown."""

ROLES = ("model", "deployment", "replica", "worker", "rank")

RESTING = frozenset({"unloaded", "not-loaded", "stopped", "sleeping", "cold"})
"""States of parts that hold nothing now: they stand below the others."""

LATENCY_S = 20.0
"""Latencies come about every 5 s; what is older than this is not of now."""

SLOWED = 1.5
"""An engine that is asked so many times less often than once a second is said to be."""

SETTLED_S = 15.0
"""By then the engines that run have been found."""

DEEPEST = 8
"""Fronts in front of fronts; more are no tree."""

LEAST_LATE_S = 5.0


def ordered(store: Store) -> list[tuple[EngineSample, int]]:
    """All engines by address with their depth: those behind a front stand right below it."""
    engines = store.engines
    by_address = sorted(engines.values(), key=lambda engine: _natural(engine.engine))
    below: dict[str, list[EngineSample]] = {}
    for engine in by_address:
        if engine.behind in engines and engine.behind != engine.engine:
            below.setdefault(str(engine.behind), []).append(engine)
    placed: dict[str, tuple[EngineSample, int]] = {}

    def place(engine: EngineSample, depth: int) -> None:
        if engine.engine in placed:
            return
        placed[engine.engine] = (engine, min(depth, DEEPEST))
        for each in below.get(engine.engine, ()):
            place(each, depth + 1)

    behind = {engine.engine for each in below.values() for engine in each}
    for engine in by_address:
        if engine.engine not in behind:
            place(engine, 0)
    for engine in by_address:  # two that claim to be behind each other
        place(engine, 0)
    return list(placed.values())


def neighbour(store: Store, look: Look, step: int) -> EngineSample | None:
    """The engine `step` places on from the one in focus, round and round; None where there is no other."""
    engines = [engine for engine, _ in ordered(store)]
    focus = engine_in_focus(store, look)
    if len(engines) < 2 or focus is None:
        return None
    at = next((index for index, engine in enumerate(engines) if engine.engine == focus.engine), 0)
    return engines[(at + step) % len(engines)]


def settled(store: Store, look: Look) -> str | None:
    """The engine that is to stay in focus while nothing says that another should be.

    None in the first seconds while the engines are being found, as long as the one in focus tells nothing.
    """
    focus = engine_in_focus(store, look)
    if focus is None:
        return look.shown
    telling = focus.state == "ok" and focus.running is not None and not focus.front
    return focus.engine if telling or store.now > SETTLED_S * store.pace else None


def place_words(store: Store, look: Look) -> str | None:
    """`engine 2 of 3`, and of which front; None where there is only one engine."""
    engines = [engine.engine for engine, _ in ordered(store)]
    focus = engine_in_focus(store, look)
    if len(engines) < 2 or focus is None:
        return None
    return f"engine {engines.index(focus.engine) + 1} of {len(engines)}"


def short(url: str) -> str:
    """`:8000` for an address of this host, `box2:8000` for another."""
    try:
        parts = urlsplit(url)
        local, port = is_local(url), parts.port
    except ValueError:
        return foreign(url, 40)
    host = "" if local else parts.hostname or ""
    return foreign(f"{host}:{port}{parts.path}" if port else f"{host}{parts.path}", 40)


def named(engine: EngineSample) -> str:
    """`vLLM :8000`."""
    return f"{foreign(engine.name, 20)} {short(engine.url)}"


def who(engine: EngineSample) -> str:
    """Its name at the beginning of a sentence."""
    return "This server" if engine.name in ANY else foreign(engine.name, 20)


ANY = ("openai", "unknown")
"""Names of those that are nothing in particular."""


def kinship(store: Store, engine: EngineSample) -> str | None:
    """What it passes on to, and what passes on to it; None for one that stands alone."""
    words = []
    parts = parts_of(store, engine)
    if engine.front:
        what = parts[0].role if parts else None
        words.append(f"front of {len(parts)} {what}{'s' if len(parts) != 1 else ''}" if what else "front")
    if engine.behind is not None:
        front = store.engines.get(engine.behind)
        words.append(f"behind {named(front) if front is not None else short(engine.behind)}")
    return ", ".join(words) or None


def latency(store: Store, engine: EngineSample, measure: str) -> LatencySample | None:
    """What the engine's own histogram says now; None where it says nothing, or nothing has been counted."""
    sample = store.latencies.get(engine.engine, {}).get(measure)
    if sample is None or sample.count <= 0 or engine.state in SILENT_STATES:
        return None
    patience = max(LATENCY_S * store.pace, 3 * (engine.poll_every_s or 0.0))
    return sample if store.age(sample) <= patience else None


def latencies(store: Store, engine: EngineSample) -> list[LatencySample]:
    """All of now, in the order of `MEASURES`."""
    found = [latency(store, engine, measure) for measure in store.latencies.get(engine.engine, {})]
    known = [sample for sample in found if sample is not None]
    return sorted(
        known, key=lambda s: (MEASURES.index(s.measure) if s.measure in MEASURES else 99, s.measure)
    )


def parts_of(store: Store, engine: EngineSample) -> list[PartSample]:
    """Its ranks, replicas, models or deployments: those at work first, then by name."""
    if engine.state in SILENT_STATES:
        return []
    return sorted(
        store.parts.get(engine.engine, {}).values(),
        key=lambda part: (
            ROLES.index(part.role) if part.role in ROLES else len(ROLES),
            part.state in RESTING,
            _natural(part.part),
        ),
    )


def has_slots(store: Store, engine: EngineSample) -> bool:
    """Whether its requests can be told apart by slot; also of an engine that is away and shows none now."""
    if engine.slots_total is not None or engine.name in SLOTTED:
        return True
    return any(owner == engine.engine for owner, _ in store.slots)


SLOTTED = ("llama.cpp", "unknown")


def tells_nothing(store: Store, engine: EngineSample) -> bool:
    """It serves, and says of what it does not one figure."""
    told = (
        engine.running,
        engine.waiting,
        engine.decode_tok_s,
        engine.prefill_tok_s,
        engine.kv_used_fraction,
        engine.kv_used_tokens,
        engine.last_decode_tok_s,
        engine.memory_bytes,
        engine.slots_total,
    )
    return all(figure is None for figure in told) and not latencies(store, engine)


def is_slowed(store: Store, engine: EngineSample) -> bool:
    """It is asked less often than others, because its replies take long."""
    every = engine.poll_every_s
    return every is not None and every > SLOWED * store.pace


def is_late(store: Store, engine: EngineSample) -> bool:
    """Its figures are older than those of an engine that is asked as often as it is."""
    age = age_s(store, engine)
    usual = max(LEAST_LATE_S * store.pace, 1.5 * (engine.poll_every_s or 0.0))
    return engine.state == "busy" or age > usual


def age_s(store: Store, engine: EngineSample) -> float:
    """How old its figures are."""
    return (engine.age_s or 0.0) + store.age(engine)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Rank 2 before rank 10, port 8000 before port 11434."""
    return [
        (piece.isdecimal(), int(piece) if piece.isdecimal() and len(piece) < 18 else 0, piece)
        for piece in re.split(r"(\d+)", name)
    ]
