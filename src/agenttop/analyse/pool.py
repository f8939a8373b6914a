"""Points put in order: checked, repetitions of a level put together, those that cannot be used left out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agenttop.analyse.points import LevelPoint, Served
from agenttop.errors import AgenttopError
from agenttop.model import units

MEASURES = ("decode_tok_s", "completions_per_min")

MOST_AGENTS = 1_000_000
LEAST_FIGURE = 1e-9
MOST_FIGURE = 1e12
"""Beyond these a number is a slip of the pen."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """One level, all its repetitions together."""

    agents: int
    value: float
    """Its throughput: the mean of the repetitions."""
    values: tuple[float, ...]
    served: tuple[Served, ...]


def chosen_measure(points: Sequence[LevelPoint], measure: str | None) -> str:
    """The throughput to judge: as asked for; else completions where a table gives them for all levels.

    Of sessions the decode rate is taken, since it counts the part done of turns that do not end in the
    window, too. Raises AgenttopError for another name.
    """
    if measure is not None:
        if measure not in MEASURES:
            raise AgenttopError(f"'{measure}' is no throughput", f"choose {' or '.join(MEASURES)}")
        return measure
    table = not any(point.served for point in points)
    if table and points and all(point.completions_per_min is not None for point in points):
        return "completions_per_min"
    some_rate = any(point.decode_tok_s is not None for point in points)
    return "decode_tok_s" if some_rate else "completions_per_min"


def pooled(points: Iterable[LevelPoint], measure: str) -> tuple[list[Pooled], list[str]]:
    """The levels in order of agents, and in words those that were left out.

    Raises AgenttopError for numbers that cannot be: not finite, negative, no whole number of agents.
    """
    groups: dict[int, list[LevelPoint]] = defaultdict(list)
    left_out: list[str] = []
    for point in points:
        check(point)
        name = units.plural(point.agents, "agent")
        value = getattr(point, measure)
        if not point.valid:
            left_out.append(f"{name}: {point.why_invalid or 'not valid'}")
        elif value is None:
            left_out.append(f"{name}: its {measure} is not known")
        elif value < LEAST_FIGURE:
            left_out.append(f"{name}: nothing was produced")
        else:
            groups[point.agents].append(point)
    levels = []
    for agents in sorted(groups):
        values = tuple(float(getattr(point, measure)) for point in groups[agents])
        served = tuple(one for point in groups[agents] for one in point.served)
        levels.append(Pooled(agents, sum(values) / len(values), values, served))
    return levels, left_out


def merged(points: Iterable[LevelPoint]) -> list[LevelPoint]:
    """One point per number of agents, of valid ones where there are any: means of rates, sums of counts."""
    groups: dict[int, list[LevelPoint]] = defaultdict(list)
    for point in points:
        groups[point.agents].append(point)
    together = []
    for agents in sorted(groups):
        there = [point for point in groups[agents] if point.engine_away is None]
        same = [point for point in there if point.valid] or there or groups[agents]
        figures: dict[str, Any] = {name: _mean(same, name) for name in _MEANS} | _sums(same)
        # Nothing hides in a mean: it was held down as much as in the worst repetition.
        worst = max(same, key=lambda point: point.throttled_fraction or 0.0)
        figures |= {"throttled_fraction": worst.throttled_fraction, "throttled_why": worst.throttled_why}
        together.append(replace(same[0], **figures))
    return together


_MEANS = (
    "decode_tok_s", "decode_tok_s_per_agent", "prefill_tok_s", "completions_per_min", "wait_s", "ttft_s",
    "prefix_hit_fraction", "context_mean_tokens",
)  # fmt: skip
_COUNTS = ("preemptions", "failures", "requests", "refused")


def _mean(points: Sequence[LevelPoint], name: str) -> float | None:
    known = [value for point in points if (value := getattr(point, name)) is not None]
    return sum(known) / len(known) if known else None


def _sums(points: Sequence[LevelPoint]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for name in _COUNTS:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        sums[name] = sum(known) if known else None
    fills = [point.kv_max_fraction for point in points if point.kv_max_fraction is not None]
    sums["kv_max_fraction"] = max(fills, default=None)
    sums["served"] = tuple(one for point in points for one in point.served)
    return sums


def check(point: LevelPoint) -> None:
    """Raises AgenttopError, one sentence, for a number that cannot be."""
    agents = point.agents
    if isinstance(agents, bool) or not isinstance(agents, int) or not 1 <= agents <= MOST_AGENTS:
        raise AgenttopError(
            f"a level of {str(agents)[:40]} agents cannot be", "agents is a whole number from 1 on"
        )
    for name in (*_MEANS, "preemptions", "kv_max_fraction", "failures", "requests", "refused"):
        value = getattr(point, name)
        if value is None:
            continue
        if not math.isfinite(value) or not 0 <= value <= MOST_FIGURE:
            raise AgenttopError(f"{name} {str(value)[:40]} of the level of {agents} agents cannot be")
        if name == "prefix_hit_fraction" and value > 1:
            raise AgenttopError(f"{name} {value:g} of the level of {agents} agents is above 1")
