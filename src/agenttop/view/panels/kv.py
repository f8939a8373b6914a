"""Where the engine keeps contexts and weights: the KV pool, its layout, what the models take."""

from __future__ import annotations

from collections import Counter

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.engines import RESTING, parts_of
from agenttop.view.figures import prefix_hit_fraction
from agenttop.view.glyphs import FREE, TREND_S, bar, heat, pool
from agenttop.view.simulated import notice
from agenttop.view.spans import Line, foreign, spread
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

LAYOUTS = {
    "unified": "one pool for all slots",
    "split": "an equal share for each slot",
    "paged": "blocks of one pool, no slots",
}

LONG = 60
"""From so many cells on the figures beside the bar are spelt out."""


def kv(store: Store, sample: EngineSample, width: int, *, brief: bool = False) -> Line:
    """Bar and figures of the KV pool; of the memory that models take where that is all that is told.

    `brief`: what has no line of its own on a small screen goes into this one.
    """
    also = _also(store, sample) if brief else []
    if sample.memory_bytes and sample.kv_used_fraction is None and sample.kv_pool_tokens is None:
        return _memory(sample, width, also)
    total, active, idle = sample.kv_pool_tokens, sample.kv_active_tokens, sample.kv_idle_tokens
    fraction = sample.kv_used_fraction
    numbers: Line = [(f" {units.percent(fraction):>5}  ", "strong")]
    if idle is not None:
        long = width >= LONG
        numbers += [
            (units.count(active), "text"),
            (" active " if long else "+", "label"),
            (units.count(idle), "text"),
            (" idle" if long else "", "label"),
        ]
    elif sample.kv_used_tokens is not None:
        numbers += [(units.count(sample.kv_used_tokens), "text"), (" used", "label")]
    if total is not None:
        numbers.append((f" / {units.count(total)}", "label"))
    numbers += also
    gauge = max(6, min(48, width - 8 - width_of(numbers)))
    if total and active is not None:
        drawn = pool(active, idle or 0, total, gauge)
    elif fraction is not None:
        drawn = bar(fraction, gauge, heat(fraction, calm="decode"))
    else:
        drawn = [(FREE * gauge, "dim")]
    return [("KV      ", "label"), *drawn, *numbers]


def _memory(sample: EngineSample, width: int, also: Line) -> Line:
    share = gpu_share(sample)
    numbers: Line = [(f"  {units.size(sample.memory_bytes)}", "strong"), (" for its models", "label")]
    if share is not None:
        numbers += [("  ", "text"), (f"{units.percent(share)} on GPU", "text" if share > 0.99 else "warn")]
    numbers += also
    gauge = max(6, min(48, width - 8 - width_of(numbers)))
    return [("memory  ", "label"), *bar(share, gauge, "decode"), *numbers]


def gpu_share(sample: EngineSample) -> float | None:
    """Share of what the models take that is on GPUs."""
    total, on_gpu = sample.memory_bytes, sample.gpu_memory_bytes
    return min(1.0, max(0.0, on_gpu / total)) if total and on_gpu is not None else None


def _also(store: Store, sample: EngineSample) -> Line:
    """How the pool is divided, prefix hits, drafts, that nothing is live any more, simulated."""
    simulated = notice(store, sample, short=True)
    line: Line = [(" ", "text"), ("as of the end", "warn")] if store.over else []
    if simulated is not None:
        line += [(" ", "text"), (f" {simulated} ", "badge")]
    if sample.kv_layout:
        line.append((f" {foreign(sample.kv_layout, 12)}", "label"))
    hits = prefix_hit_fraction(store, sample)
    if hits is not None:
        line += [("  hits ", "label"), (units.percent(hits), "text")]
    if sample.draft_acceptance is not None:
        line += [("  accept ", "label"), (units.percent(sample.draft_acceptance), "text")]
    return line


def make(store: Store, sample: EngineSample, width: int) -> Line:
    """How it is made, and how well its caches and drafts work: as much as there is room for."""
    parts: list[Line] = [*_models(store, sample)]
    hits = _hits(store, sample)
    if hits:
        parts.append(hits)
    parts += [speculation(sample)]
    if sample.data_parallel is not None:
        parts.append(
            [
                (units.count(sample.data_parallel), "text"),
                (" engines, fullest ", "label"),
                (units.percent(sample.kv_fullest_fraction), "text"),
            ]
        )
    if sample.kv_pool_tokens is not None and (share := gpu_share(sample)) is not None and share < 0.995:
        parts.append([(units.percent(share), "warn"), (" on GPU", "label")])
    parts.append(weights(sample))
    if sample.kv_layout in LAYOUTS:
        parts.append([(LAYOUTS[sample.kv_layout], "label")])
    if sample.slots_total is not None:
        parts.append([(f"{sample.slots_total}", "text"), (" slots", "label")])
    if sample.context_limit_tokens is not None:
        parts.append(
            [("up to ", "label"), (units.count(sample.context_limit_tokens), "text"), (" a request", "label")]
        )
    parts = _fitting([part for part in parts if part], width - 8)
    return [("        ", "text"), *spread(parts, max(0, width - 8))] if parts else []


def _fitting(parts: list[Line], room: int) -> list[Line]:
    """Those that fit one after another; one that is too long makes room for those after it."""
    chosen: list[Line] = []
    for part in parts:
        taken = width_of(part) + 2
        if taken <= room + 2:
            chosen.append(part)
            room -= taken
    return chosen


def _models(store: Store, sample: EngineSample) -> list[Line]:
    """Of a front: how many of its models are loaded."""
    if not sample.front:
        return []
    parts = parts_of(store, sample)
    counts = Counter(part.role for part in parts)
    if not counts:
        return []
    role, count = counts.most_common(1)[0]
    awake = sum(part.role == role and part.state not in RESTING for part in parts)
    resting = f" of {count}" if awake != count else ""
    return [[(f"{awake}{resting}", "text"), (f" {role}{'s' if count != 1 else ''} up", "label")]]


def _hits(store: Store, sample: EngineSample) -> Line:
    hits = prefix_hit_fraction(store, sample)
    if hits is None:
        return []
    window = f" in {TREND_S} s" if sample.prefix_hits_tokens_total is not None else ""
    return [("prefix hits ", "label"), (units.percent(hits), "strong"), (window, "dim")]


def speculation(sample: EngineSample) -> Line:
    """`accept 62 %, 2.9 tok/step`."""
    line: Line = []
    if sample.draft_acceptance is not None:
        line += [("accept ", "label"), (units.percent(sample.draft_acceptance), "strong")]
    if sample.tokens_per_step is not None:
        line += [
            (", " if line else "", "label"),
            (f"{sample.tokens_per_step:.1f}", "text"),
            (" tok/step", "label"),
        ]
    return line


def weights(sample: EngineSample) -> Line:
    """`Q4_K_M, KV q8_0`, in the engine's own words."""
    line: Line = []
    if sample.quantisation:
        line.append((foreign(sample.quantisation, 16), "text"))
    if sample.kv_dtype:
        line += [(", KV " if line else "KV ", "label"), (foreign(sample.kv_dtype, 12), "text")]
    return line
