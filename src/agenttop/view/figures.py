"""Figures that are computed from what the store holds, each over a window that is named."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from agenttop.model import units
from agenttop.model.frames import EngineSample, Turn
from agenttop.view.glyphs import TREND_S
from agenttop.view.series import WINDOW_S, quantile
from agenttop.view.store import Store


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Of the turns of one engine that ended within the window."""

    turns: int
    """Turns with a first token."""
    ttft_p50: float | None
    ttft_p95: float | None
    tpot_p50: float | None
    """Median over turns of decode time per output token after the first."""
    cached_fraction: float | None
    """Prompt tokens that came from the cache, of all prompt tokens."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the engine panel shows beyond the engine's own sample."""

    decode_tok_s: float | None
    """The engine's own rate; where it has none, what arrived at the agents."""
    rated: str
    """Under which subject the history of that rate is kept."""
    decode_is_floor: bool
    """That rate is at least this: requests ended unseen."""
    per_agent_p50: float | None
    """Median rate of those that decode at this moment."""
    per: str
    """agent, or slot where no agents run."""
    decoding: int
    ended: TurnFigures
    window: str
    """Over which the turns were taken, in words."""


def figures(store: Store, engine: EngineSample) -> Figures:
    """All of them for one engine."""
    agent_rates = sorted(
        agent.decode_tok_s
        for agent in store.agents.values()
        if agent.engine == engine.engine
        and agent.decode_tok_s is not None
        and agent.state in ("decode", "compact")
    )
    slot_rates = sorted(
        slot.decode_tok_s
        for (owner, _), slot in store.slots.items()
        if owner == engine.engine and slot.phase == "decode" and slot.decode_tok_s is not None
    )
    rates = agent_rates or slot_rates
    decode, rated, floor = engine.decode_tok_s, engine.engine, engine.decode_is_floor
    if decode is None and store.load is not None and store.load.engine == engine.engine:
        decode, rated, floor = store.load.decode_tok_s, "load", False
    return Figures(
        decode_tok_s=decode,
        rated=rated,
        decode_is_floor=floor,
        per_agent_p50=quantile(rates, 0.5),
        per="agent" if agent_rates or not slot_rates else "slot",
        decoding=len(rates),
        ended=turn_figures(store, engine.engine),
        window=units.seconds(_window(store)),
    )


def prefix_hit_fraction(store: Store, engine: EngineSample) -> float | None:
    """Prompt tokens found in the engine's prefix cache, of those looked up there over the last `TREND_S`.

    An engine that tells this share alone is taken at its word. None where it does not count them, has looked
    up nothing, or began to count anew within that time.
    """
    if engine.prefix_hits_tokens_total is None and engine.prefix_hit_fraction is not None:
        return min(1.0, max(0.0, engine.prefix_hit_fraction))
    hits = _growth(store, engine.engine, "prefix_hits_tokens_total")
    queries = _growth(store, engine.engine, "prefix_queries_tokens_total")
    return min(1.0, hits / queries) if hits is not None and queries else None


def _growth(store: Store, subject: str, figure: str) -> float | None:
    """By how much a counter has grown over the last `TREND_S`; None where it is not known or went back."""
    known = [value for value in store.last(subject, figure, TREND_S) if value is not None]
    if len(known) < 2 or any(later < earlier for earlier, later in pairwise(known)):
        return None
    return known[-1] - known[0]


def turn_figures(store: Store, engine: str) -> TurnFigures:
    """Computed anew only when a turn has ended or has left the window."""
    basis = (store.turns_folded, len(store.turns))
    kept = store.derived.get(("turns", engine))
    if kept is not None and kept[0] == basis and isinstance(kept[1], TurnFigures):
        return kept[1]
    turns = [turn for turn in store.turns if turn.engine == engine]
    first = sorted(seconds for turn in turns if (seconds := ttft(turn)) is not None)
    found = TurnFigures(
        turns=len(first),
        ttft_p50=quantile(first, 0.5),
        ttft_p95=quantile(first, 0.95),
        tpot_p50=quantile(sorted(seconds for turn in turns if (seconds := tpot(turn)) is not None), 0.5),
        cached_fraction=_cached(turns),
    )
    store.derived["turns", engine] = (basis, found)
    return found


def _window(store: Store) -> float:
    """Seconds that the turns in the store reach back."""
    if len(store.turns) == store.turns.maxlen:
        return store.now - store.turns[0].t
    return min(store.now, WINDOW_S)


def ttft(turn: Turn) -> float | None:
    """Seconds from sending to the first token of a turn; compactions are left out, since nobody waits
    for their first token."""
    if turn.turn_kind != "turn" or turn.t_first_token is None or turn.t_sent is None:
        return None
    return max(0.0, turn.t_first_token - turn.t_sent)


def tpot(turn: Turn) -> float | None:
    """Seconds per output token after the first."""
    if (
        turn.t_first_token is None
        or turn.t_last_token is None
        or not turn.output_tokens
        or turn.output_tokens < 2
    ):
        return None
    return max(0.0, turn.t_last_token - turn.t_first_token) / (turn.output_tokens - 1)


def _cached(turns: list[Turn]) -> float | None:
    counted = [
        (turn.cached_tokens, turn.prompt_tokens)
        for turn in turns
        if turn.cached_tokens is not None and turn.prompt_tokens is not None
    ]
    prompts = sum(prompt for _, prompt in counted)
    return sum(cached for cached, _ in counted) / prompts if prompts else None
