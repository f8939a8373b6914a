"""How many agents fit, by arithmetic, and whether the levels bear it out."""

from __future__ import annotations

from collections.abc import Sequence

from agenttop.analyse.points import LevelPoint
from agenttop.analyse.report import Prediction
from agenttop.model import units

NEAR = 0.25
"""A cliff this close to the predicted number, as a share of it, bears it out."""


def predict_cliff(points: Sequence[LevelPoint], cliff_at: tuple[int, int] | None = None) -> Prediction:
    """How many agents the KV pool holds, or the slots serve.

    Every agent counts with its mean context, idle ones too: what is dropped must be computed again.
    `cliff_at`: the last level before the cliff and the first past it, where one was found.
    """
    known = [point for point in points if point.valid]
    latest = max(known, key=lambda point: point.agents, default=None)
    if latest is None:
        return Prediction(why="no valid level to take contexts from")
    slots = next((point.slots_total for point in reversed(known) if point.slots_total), None)
    sized = [point for point in known if point.kv_pool_tokens and point.context_mean_tokens]
    fits = None
    why = "the size of the KV pool or of the contexts is not known"
    if sized:
        last = max(sized, key=lambda point: point.agents)
        assert last.kv_pool_tokens is not None
        assert last.context_mean_tokens is not None
        fits = max(1, int(last.kv_pool_tokens / last.context_mean_tokens))
        pool, each = units.count(last.kv_pool_tokens), units.count(last.context_mean_tokens)
        why = f"a KV pool of {pool} tokens holds {fits} contexts of {each} on average"
    rests_on = "KV pool"
    if slots is not None and (fits is None or slots < fits):
        fits, rests_on = slots, "slots"
        why = f"the engine serves {slots} requests at a time, one per slot"
    if fits is None:
        return Prediction(why=why)
    verified, checked = _verified(fits, known, cliff_at)
    return Prediction(agents=fits, rests_on=rests_on, verified=verified, why=f"{why}; {checked}")


def _verified(
    fits: int, points: Sequence[LevelPoint], cliff_at: tuple[int, int] | None
) -> tuple[bool | None, str]:
    most = max(point.agents for point in points)
    if cliff_at is not None:
        low, high = cliff_at
        if low <= fits * (1 + NEAR) and high >= fits * (1 - NEAR):
            return True, f"the cliff was found between {low} and {high}, which bears it out"
        return False, f"but the cliff was found between {low} and {high}"
    if most <= fits:
        return None, f"no level beyond it was tested ({most} at most)"
    if most < fits * (1 + NEAR):
        return None, f"{most} were tested without a cliff, too close to tell"
    return False, f"but {most} were tested without a cliff"
