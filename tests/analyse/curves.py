"""Curves over agents whose knee is known, with noise, and tables that people published."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from agenttop.analyse.points import LevelPoint

Curve = Callable[[int], float]

MANY = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)

STAR = 16


def closed_queue(agents: int) -> float:
    """One server, agents that think 15 times as long as it serves one: exact mean value analysis. N* = 16."""
    queue = rate = 0.0
    for n in range(1, agents + 1):
        response = 1.0 + queue
        rate = n / (response + STAR - 1)
        queue = rate * response
    return 100 * rate


def hinge(agents: int) -> float:
    """A straight line up to 16 agents, flat from there on."""
    return 100 * min(agents, STAR) / STAR


def batch(agents: int) -> float:
    """A batch whose steps get longer with each sequence: half the per-agent rate at 16 agents."""
    return 100 * agents / (STAR + agents)


def batch_with_cliff(agents: int) -> float:
    """The same, 40 % lost beyond 24 agents and more with each agent after."""
    return batch(min(agents, 24)) * (1.0 if agents <= 24 else 0.6 - 0.002 * (agents - 24))


def straight(agents: int) -> float:
    """No knee at all."""
    return 10.0 * agents


def noisy(curve: Curve, noise: float, seed: int, levels: Sequence[int] = MANY) -> list[LevelPoint]:
    """The curve measured once at each level, each time off by a relative error."""
    dice = random.Random(f"{curve.__name__} {noise} {seed}")
    return [LevelPoint(agents=n, decode_tok_s=curve(n) * max(0.1, 1 + dice.gauss(0, noise))) for n in levels]


def within_one(found: int | None, true: int, levels: Sequence[int] = MANY) -> bool:
    """At the true level or at one of its neighbours among those tested."""
    return found is not None and abs(levels.index(found) - levels.index(true)) <= 1


ONE_BUDGET = [
    LevelPoint(agents=3, completions_per_min=1.54, wait_s=112, prefill_tok_s=1481),
    LevelPoint(agents=5, completions_per_min=1.63, wait_s=168, prefill_tok_s=1582),
    LevelPoint(agents=9, completions_per_min=1.52, wait_s=330, prefill_tok_s=1572),
]
"""Two RTX 4090, prompts of 64k tokens, short replies, by number of slots."""

EXPERTS = [
    LevelPoint(agents=agents, decode_tok_s=total, decode_tok_s_per_agent=each)
    for agents, (each, total) in enumerate(
        zip((169, 154, 137, 125, 130, 124, 126, 123), (169, 220, 247, 404, 316, 372, 369, 388), strict=True),
        1,
    )
]
"""A mixture of experts on two RTX 3090: the total scatters, the rate per agent reaches a floor."""
