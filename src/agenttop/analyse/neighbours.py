"""Engines that worked beside the one a level was run on: they shared its machine, and so its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.model.url import is_local

BUSY_SHARE = 0.02
"""Of an engine's samples; a stray request moves no median."""

DEEPEST = 8
"""Fronts in front of fronts; more are no chain."""


def busy_beside(engine: str | None, samples: Sequence[EngineSample]) -> str | None:
    """In words which other engines of the host ran requests, and for how much of the time; None: none did.

    A front and the engines behind it are one: what runs in one of them runs in the other. Simulated engines
    work on no machine.

    Args:
        engine: the one the load went to.
        samples: of all engines, within the steady window, in order of t.
    """
    if engine is None:
        return None
    behind = {sample.engine: sample.behind for sample in samples if sample.behind is not None}
    by_engine: dict[str, list[EngineSample]] = defaultdict(list)
    for sample in samples:
        by_engine[sample.engine].append(sample)
    if any(sample.simulated for sample in by_engine.get(engine, ())):
        return None
    words = []
    for other, some in sorted(by_engine.items()):
        if other == engine or not _same_host(engine, other) or some[-1].simulated is not None:
            continue
        if engine in _fronts(other, behind) or other in _fronts(engine, behind):
            continue
        share = sum(map(_is_busy, some)) / len(some)
        if share >= BUSY_SHARE:
            words.append(f"{some[-1].name} at {other} in {units.percent(share)} of the time")
    return "; ".join(words) or None


def _is_busy(sample: EngineSample) -> bool:
    return bool(sample.running) or (sample.decode_tok_s or 0.0) > 0 or (sample.prefill_tok_s or 0.0) > 0


def _fronts(engine: str, behind: Mapping[str, str]) -> list[str]:
    """All fronts that lead to an engine."""
    fronts: list[str] = []
    while (front := behind.get(engine)) is not None and len(fronts) < DEEPEST:
        fronts.append(front)
        engine = front
    return fronts


def _same_host(one: str, other: str) -> bool:
    if is_local(one) or is_local(other):
        return is_local(one) and is_local(other)
    return urlsplit(one).hostname == urlsplit(other).hostname
