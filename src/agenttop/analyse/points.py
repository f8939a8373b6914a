"""Levels as points of a curve over agents: the input of `analyse.knee`."""

from __future__ import annotations

from dataclasses import dataclass


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
    valid: bool = True
    why_invalid: str | None = None
    served: tuple[Served, ...] = ()
    """The requests of the window, where they are known."""
