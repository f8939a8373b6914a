"""The plan of an agent that replays a recorded session: the same steps, with exact sizes and pauses."""

from __future__ import annotations

import random
from statistics import median

from agenttop.agents.plan import AgentPlan, Step
from agenttop.agents.settings import Profile
from agenttop.agents.tracefile import TraceFile, TraceTurn, opened

USUAL_INPUT = 650
"""Tokens that a turn after a compaction adds, at most, the rest being what the compaction has left: the
median of recorded agents."""


class TracePlan:
    """The turns of one session, over and over. Agent k plays session k, counted from the first again."""

    def __init__(self, profile: Profile, seed: int, number: int | str) -> None:
        """Raises UsageError when the trace cannot be read."""
        trace = profile.trace
        assert trace is not None
        file = opened(trace.file)
        self._profile = profile
        self._size, self._pause = trace.size_factor, trace.pause_factor
        self._turns = file.session(_ordinal(number) - 1, trace.subagents).turns
        self._rng = random.Random(f"agenttop:{seed}:{number}:trace")
        self._between_s = _between(self._turns)
        self._number = 0
        self.fill_rate = 1.0
        self.primed_tokens: int | None = None
        """A replay starts where the session did."""

    def next(self) -> Step:
        """The turn after the last one asked for; after the last of the session its first again."""
        number = self._number
        self._number += 1
        place = number % len(self._turns)
        turn = self._turns[place]
        before = self._turns[place - 1] if place else None
        known = self._profile.context.fixed
        if before is not None:
            known = self._sized(before.prompt + before.output)
        pause_s, kind = self._pause_before(turn, again=place == 0) if number else (0.0, "human")
        return Step(
            number=number + 1,
            input=max(1, self._sized(turn.prompt) - known),
            output=self._sized(turn.output),
            pause_s=pause_s,
            pause_kind=kind,
            fresh=place == 0 and number > 0,
            prompt=self._sized(turn.prompt),
            compact=turn.kind == "compact",
            text=turn.text,
        )

    def jitter(self) -> float:
        """A factor of 0.5 to 1.5 for the wait before a retry."""
        return 0.5 + self._rng.random()

    def _pause_before(self, turn: TraceTurn, again: bool) -> tuple[float, str]:
        pacing = self._profile.pacing
        kind = "human" if again or turn.kind == "human" else "tool"
        recorded = self._between_s if again else turn.pause_s
        if recorded is not None:
            return recorded * self._pause, kind
        drawn = pacing.human_pause_s if kind == "human" else pacing.tool_pause_s
        return (drawn or pacing.tool_pause_s).draw(self._rng), kind

    def _sized(self, tokens: int) -> int:
        return max(1, round(tokens * self._size))


def plan_for(profile: Profile, seed: int, number: int | str) -> AgentPlan | TracePlan:
    """What an agent of this profile will do. Raises UsageError when a trace cannot be read."""
    return TracePlan(profile, seed, number) if profile.trace is not None else AgentPlan(profile, seed, number)


def _ordinal(number: int | str) -> int:
    """Of a sub-agent (`3.1`) that of its parent."""
    return number if isinstance(number, int) else int(number.partition(".")[0])


def _between(turns: list[TraceTurn]) -> float | None:
    """What passes before a session begins again: its usual pause of a person, else its usual pause."""
    human = [turn.pause_s for turn in turns if turn.kind == "human" and turn.pause_s is not None]
    usual = human or [turn.pause_s for turn in turns if turn.pause_s is not None]
    return median(usual) if usual else None


def sessions_in(profile: Profile) -> TraceFile:
    """The trace of a profile that replays one. Raises UsageError when it cannot be read."""
    assert profile.trace is not None
    return opened(profile.trace.file)
