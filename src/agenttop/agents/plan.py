"""What an agent will do: sizes and pauses drawn from its profile, fixed by a seed and the agent's number.

Each quantity has its own stream of randomness, and every turn draws from each exactly once. So the plan
does not depend on how the engine behaves: the same seed gives the same turns on every host.
"""

from __future__ import annotations

import random

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.settings import Profile


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the plan. Sizes in tokens."""

    number: int
    """From 1."""
    input: int
    output: int
    pause_s: float
    """Before this turn; 0 before the first."""
    pause_kind: str
    """tool or human."""


class AgentPlan:
    """The endless sequence of turns of one agent."""

    def __init__(self, profile: Profile, seed: int, number: int) -> None:
        self._profile = profile
        self._streams = {
            name: random.Random(f"agenttop:{seed}:{number}:{name}")
            for name in ("first", "input", "output", "tool", "human", "turns", "backoff")
        }
        self._tool_turns_left = self._draw_tool_turns()
        self._number = 0

    def next(self) -> Step:
        """The turn after the last one asked for."""
        self._number += 1
        profile, pacing = self._profile, self._profile.pacing
        pause, kind = 0.0, "tool"
        if self._number > 1:
            if pacing.human_pause_s is not None and self._tool_turns_left <= 0:
                pause, kind = self._draw("human", pacing.human_pause_s), "human"
                self._tool_turns_left = self._draw_tool_turns()
            else:
                pause = self._draw("tool", pacing.tool_pause_s)
                self._tool_turns_left -= 1
        first = self._number == 1
        wanted = (
            self._draw("first", profile.context.first) if first else self._draw("input", profile.turn.input)
        )
        return Step(
            number=self._number,
            input=max(1, round(wanted)),
            output=max(1, round(self._draw("output", profile.turn.output))),
            pause_s=pause,
            pause_kind=kind,
        )

    def jitter(self) -> float:
        """A factor of 0.5 to 1.5 for the wait before a retry."""
        return 0.5 + self._streams["backoff"].random()

    def _draw(self, stream: str, distribution: Distribution) -> float:
        return distribution.draw(self._streams[stream])

    def _draw_tool_turns(self) -> int:
        turns = self._profile.pacing.tool_turns
        return 0 if turns is None else round(self._draw("turns", turns))


def start_gap_s(profile: Profile, seed: int, number: int) -> float:
    """Seconds between the start of the agent before and that of agent `number`, as the profile says.

    It depends on the seed and the number only, so agents added later follow the same plan.
    """
    start = profile.start
    if start.kind == "at-once":
        return 0.0
    if start.kind == "every" or start.stagger_s <= 0:
        return start.stagger_s
    return random.Random(f"agenttop:{seed}:{number}:start").expovariate(1 / start.stagger_s)
