"""What rehearsed agents do: a few closed-loop ways of working, as sizes and pauses.

These are not the profiles of real runs (`agenttop.agents`), which send text over HTTP: they are the same ways
of working without the text, so that minutes of an experiment pass in a second.
"""

from __future__ import annotations

import math
import random

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """A log-normal quantity within bounds; `sigma` 0 is a constant."""

    median: float
    sigma: float = 0.0
    least: float = 0.0
    most: float = math.inf

    def draw(self, rng: random.Random) -> float:
        """One value; takes one draw of `rng` whatever the sigma."""
        value = self.median * math.exp(self.sigma * rng.gauss(0.0, 1.0)) if self.median else 0.0
        return min(self.most, max(self.least, value))

    def whole(self, rng: random.Random) -> int:
        """One value, at least 1."""
        return max(1, round(self.draw(rng)))


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """How each agent works. Sizes in tokens, pauses in seconds."""

    name: str
    system: int = 2000
    """Shared by all agents, at the head of every context."""
    first: Spread = Spread(1000)
    """The first message, an agent's own."""
    input: Spread = Spread(500)
    """New in each turn."""
    output: Spread = Spread(200)
    pause: Spread = Spread(0.0)
    """Between the end of a turn and the next request."""
    limit: int = 100_000
    """Size at which an agent compacts."""
    compact_to: int = 16_000
    """Own tokens left after a compaction, its summary included."""
    summary: int = 1000
    """Output of the request that compacts."""
    fill_spread: float = 0.0
    """Agents fill at different rates: each one's `input` is scaled by a factor up to this much from 1."""
    stagger: float = 0.0
    """Between the starts of two agents."""
    steady: bool = False
    """Each agent starts at a random point of its saw-tooth; its first request fills the context."""
    documents: bool = False
    """Every turn is a new conversation of one message: nothing grows, nothing is cached but `system`."""
    rounds: bool = False
    """All agents send at once and wait for the slowest, as an orchestrator's swarm does."""
