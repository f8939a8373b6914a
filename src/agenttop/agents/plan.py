"""What an agent will do: sizes and pauses drawn from its profile, fixed by a seed and the agent's number.

Each quantity has its own stream of randomness, and every turn draws from each exactly once. So the plan
does not depend on how the engine behaves: the same seed gives the same turns on every host.
"""

from __future__ import annotations

import random

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.settings import Profile

_STREAMS = (
    "first", "input", "output", "tool", "human", "turns", "backoff", "fill", "conversation", "prime",
    "spawn", "children", "child-turns",
)  # fmt: skip


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the plan. Sizes in tokens."""

    number: int
    """From 1."""
    input: int
    output: int
    pause_s: float
    """Before this turn; 0 before the first, and where the agent has waited for its sub-agents instead."""
    pause_kind: str
    """tool or human: what the pause was for, and what the input is."""
    fresh: bool = False
    """It begins a new conversation."""
    children: tuple[int, ...] = ()
    """Sub-agents that are sent out after this turn, and how many turns each makes."""
    prompt: int | None = None
    """Of a replay: size of the whole prompt, which `input` is made to fit; None: `input` counts."""
    compact: bool = False
    """Of a replay: the context is shortened before this turn, and at no other time."""
    text: str | None = None
    """Of a replay that keeps what was said: the input, word for word."""


class AgentPlan:
    """The endless sequence of turns of one agent."""

    def __init__(self, profile: Profile, seed: int, number: int | str) -> None:
        """`number`: of the agent in the session; of a sub-agent, its parent's and its own: `3.1`."""
        self._profile = profile
        self._streams = {name: random.Random(f"agenttop:{seed}:{number}:{name}") for name in _STREAMS}
        self._tool_turns_left = self._draw_tool_turns()
        self._number = 0
        fill = profile.turn.fill_rate
        self.fill_rate = 1.0 if fill is None else self._draw("fill", fill)
        """Factor on all inputs of this agent."""
        self.primed_tokens = self._primed() if profile.start.kind == "steady" else None
        """Context that the agent starts with; None: it starts from nothing."""
        self._left = self._draw_turns()
        self._sent_out = False

    def next(self) -> Step:
        """The turn after the last one asked for."""
        self._number += 1
        fresh = self._number > 1 and self._left == 0
        if fresh:
            self._left = self._draw_turns()
        self._left = None if self._left is None else self._left - 1
        first = fresh or (self._number == 1 and self.primed_tokens is None)
        pause, kind = self._pause() if self._number > 1 or self.primed_tokens is not None else (0.0, "tool")
        input_tokens = self._draw("input", self._profile.turn.input) * self.fill_rate
        if first:
            input_tokens = self._draw("first", self._profile.context.first)
        children = self._children()
        self._sent_out = bool(children)
        return Step(
            number=self._number,
            input=max(1, round(input_tokens)),
            output=max(1, round(self._draw("output", self._profile.turn.output))),
            pause_s=pause,
            pause_kind=kind,
            fresh=fresh,
            children=children,
        )

    def jitter(self) -> float:
        """A factor of 0.5 to 1.5 for the wait before a retry."""
        return 0.5 + self._streams["backoff"].random()

    def _pause(self) -> tuple[float, str]:
        """The pause before the turn: its length and what for."""
        pacing = self._profile.pacing
        if pacing.human_pause_s is not None and self._tool_turns_left <= 0 and not self._sent_out:
            self._tool_turns_left = self._draw_tool_turns()
            return self._draw("human", pacing.human_pause_s), "human"
        self._tool_turns_left -= 1
        pause = self._draw("tool", pacing.tool_pause_s)
        return 0.0 if self._sent_out else pause, "tool"

    def _children(self) -> tuple[int, ...]:
        children = self._profile.children
        if children is None:
            return ()
        lot = self._streams["spawn"].random()
        count = round(self._draw("children", children.count))
        due = self._number % children.every == 0 if children.every else lot < (children.chance or 0.0)
        if not due:
            return ()
        return tuple(max(1, round(self._draw("child-turns", children.turns))) for _ in range(count))

    def _primed(self) -> int:
        """A random point between a compaction and the limit, with room for a usual turn."""
        turn = self._profile.turn
        low = self._profile.compacted
        high = max(low, self._profile.context.limit - round(turn.input.median + turn.output.median))
        return low + round((high - low) * self._streams["prime"].random())

    def _draw(self, stream: str, distribution: Distribution) -> float:
        return distribution.draw(self._streams[stream])

    def _draw_turns(self) -> int | None:
        turns = self._profile.context.turns
        return None if turns is None else max(1, round(self._draw("conversation", turns)))

    def _draw_tool_turns(self) -> int:
        turns = self._profile.pacing.tool_turns
        return 0 if turns is None else round(self._draw("turns", turns))
