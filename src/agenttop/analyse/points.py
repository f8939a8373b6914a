"""Levels as points of a curve over agents: the input of `analyse.knee`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.compare import rows_of
from agenttop.analyse.material import Material
from agenttop.analyse.measures import waited
from agenttop.analyse.row import LevelRow
from agenttop.analyse.tokens import decode_rate
from agenttop.analyse.verdict import failed
from agenttop.model.frames import Turn

REFUSALS = frozenset({"refused", "http-5xx", "engine-limit", "queue-timeout"})
"""Ways to fail in which the engine had no room, or no time."""


@dataclass(frozen=True, slots=True)
class Served:
    """One request of a level, as raw material for intervals and for an SLO."""

    tokens: float
    """Output tokens."""
    cycle_s: float
    """From the end of the agent's previous turn to the end of this one: pause, wait and decoding."""
    decode_tok_s: float | None = None
    ttft_s: float | None = None
    wait_s: float | None = None
    failed: bool = False
    asked: bool = True
    """An SLO is asked of it: a turn of an agent itself, not one that compacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPoint:
    """One level. What is not known is None. Figures are those of `LevelRow`, over the steady window."""

    agents: int
    decode_tok_s: float | None = None
    decode_tok_s_per_agent: float | None = None
    prefill_tok_s: float | None = None
    completions_per_min: float | None = None
    wait_s: float | None = None
    ttft_s: float | None = None
    preemptions: float | None = None
    kv_max_fraction: float | None = None
    """Of the pool, held by requests in progress where that is known apart."""
    prefix_hit_fraction: float | None = None
    failures: int | None = None
    requests: int | None = None
    """Requests that ended in the window, failed or not."""
    refused: int | None = None
    """Those of `failures` in which the engine had no room or time: refused, http-5xx, engine-limit,
    queue-timeout."""
    kv_pool_tokens: int | None = None
    context_mean_tokens: float | None = None
    slots_total: int | None = None
    engine_away: str | None = None
    """As `LevelRow` has it."""
    throttled_fraction: float | None = None
    """Of the GPU that was held down most, by the reason that did it most."""
    throttled_why: str | None = None
    """As `LevelRow` has it."""
    valid: bool = True
    why_invalid: str | None = None
    served: tuple[Served, ...] = ()
    """The requests of the window, where they are known."""


def points_of(material: Material, rows: Sequence[LevelRow] | None = None) -> list[LevelPoint]:
    """The levels of a session with their requests. `rows`: those of `rows_of(material)`, where at hand."""
    rows = rows_of(material) if rows is None else rows
    cycles = _cycles(material.turns)
    points = []
    for row in rows:
        start = row.t_start + row.warm_up_s
        first = bisect_left(material.turns, start, key=lambda turn: turn.t)
        last = bisect_left(material.turns, row.t_end, key=lambda turn: turn.t)
        here = [row.engine is None or turn.engine == row.engine for turn in material.turns[first:last]]
        ended = list(zip(material.turns[first:last], cycles[first:last], here, strict=True))
        served = tuple(_served(turn, cycle) for turn, cycle, own in ended if own and _counts(turn))
        points.append(point_of(row, served))
    return points


def requests_of(turns: Sequence[Turn]) -> tuple[Served, ...]:
    """Requests in order of t as raw material."""
    cycles = _cycles(turns)
    return tuple(_served(turn, cycle) for turn, cycle in zip(turns, cycles, strict=True) if _counts(turn))


def _counts(turn: Turn) -> bool:
    return turn.turn_kind != "prime" and turn.error_kind != "cancelled"


def point_of(row: LevelRow, served: tuple[Served, ...] = ()) -> LevelPoint:
    """A level's row as a point."""
    active = row.kv_active_max_fraction
    return LevelPoint(
        agents=row.agents,
        decode_tok_s=row.decode_tok_s,
        decode_tok_s_per_agent=row.decode_tok_s_per_agent_p50,
        prefill_tok_s=row.prefill_tok_s,
        completions_per_min=row.completions_per_min,
        wait_s=row.wait_s_p50,
        ttft_s=row.ttft_s_p50,
        preemptions=row.preemptions,
        kv_max_fraction=active if active is not None else row.kv_max_fraction,
        prefix_hit_fraction=row.prefix_hit_fraction,
        failures=row.failures,
        requests=len(served) if served else None,
        refused=sum(count for kind, count in row.failure_kinds.items() if kind in REFUSALS),
        kv_pool_tokens=row.kv_pool_tokens,
        context_mean_tokens=row.context_mean_tokens,
        slots_total=row.slots_total,
        engine_away=row.engine_away,
        throttled_fraction=max(row.throttle_worst_shares.values(), default=None),
        throttled_why=row.throttled_why,
        valid=row.valid,
        why_invalid=row.why_invalid,
        served=served,
    )


def _cycles(turns: Sequence[Turn]) -> list[float]:
    """For each request the time since its agent's one before it ended; of the first: since it was wanted."""
    ended: dict[str, float] = {}
    cycles = []
    for turn in turns:
        if turn.parent is not None:
            # A sub-agent works within a turn of its parent, whose cycle that time is part of.
            cycles.append(0.0)
            continue
        cycles.append(max(0.0, turn.t - ended.get(turn.agent, turn.t_queued)))
        ended[turn.agent] = turn.t
    return cycles


def _served(turn: Turn, cycle: float) -> Served:
    answered = turn.t_first_token is not None and turn.t_sent is not None
    own = turn.turn_kind == "turn" and turn.parent is None
    return Served(
        tokens=float(turn.output_tokens or turn.events or 0),
        cycle_s=cycle,
        decode_tok_s=decode_rate(turn),
        ttft_s=(turn.t_first_token or 0.0) - (turn.t_sent or 0.0) if answered else None,
        wait_s=waited(turn),
        failed=failed(turn),
        asked=own,
    )
