"""The plan of a load on a time axis, before anything runs: when each agent talks, pauses and compacts.

Sizes and pauses are those of the seed, exactly as the driver will draw them. How long a turn takes is assumed
from two speeds, for an agent that never waits for another and whose history is always cached: what the
engine really makes of it is what a run measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from agenttop.agents.plan import Step
from agenttop.agents.settings import Profile, child_profile
from agenttop.agents.starts import DECODE_TOK_S, PREFILL_TOK_S, start_gap_s
from agenttop.agents.trace import USUAL_INPUT, plan_for

MOST_SPANS = 100_000
"""Of one agent; a plan without pauses against an absurd speed never gets anywhere."""


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """What is assumed of the engine, in tokens per second."""

    prefill: float = PREFILL_TOK_S
    decode: float = DECODE_TOK_S


class PlannedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does for a while."""

    kind: str
    """prime, prefill, decode, compact, tool, human, children."""
    from_s: float
    to_s: float
    context_tokens: int
    """At its end."""
    turn: int
    """Number of the turn it belongs to; 0 for what comes before the first."""
    shortened: bool = False
    """The context was shortened before it."""


class PlannedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one agent."""

    agent: str
    start_s: float
    spans: list[PlannedSpan]

    def turns(self, until_s: float) -> int:
        """Turns that end by then."""
        return sum(span.kind == "decode" and span.to_s <= until_s for span in self.spans)

    def compactions(self, until_s: float) -> int:
        """How often its context has been shortened by then."""
        return sum(span.shortened and span.from_s <= until_s for span in self.spans)


def planned(
    profile: Profile, seed: int, agents: int, for_s: float, speeds: Speeds | None = None
) -> list[PlannedAgent]:
    """The first `for_s` seconds of the plan for `agents` agents, which start as the profile says."""
    speeds = speeds or Speeds()
    rows: list[PlannedAgent] = []
    start = 0.0
    for number in range(1, agents + 1):
        if number > 1:
            start += start_gap_s(profile, seed, number, agents)
        life = _Life(profile, seed, number, speeds)
        spans: list[PlannedSpan] = []
        for span in islice(life.spans(start), MOST_SPANS):
            if span.from_s >= for_s:
                break
            spans.append(span)
        rows.append(PlannedAgent(agent=f"a{number}", start_s=start, spans=spans))
    return rows


class _Life:
    """One agent, walked through its plan with nobody else around."""

    def __init__(self, profile: Profile, seed: int, number: int | str, speeds: Speeds) -> None:
        self._profile = profile
        self._seed = seed
        self._number = number
        self._speeds = speeds
        self._plan = plan_for(profile, seed, number)
        self._context = 0
        self._uncached = 0
        """Of the context: what no prefix cache holds yet."""
        self._now = 0.0
        self._children = 0

    def spans(self, start: float, turns: int | None = None) -> Iterator[PlannedSpan]:
        """From its start on; `turns`: it ends after so many."""
        self._now = start
        primed = self._plan.primed_tokens
        if primed is not None:
            self._context = primed
            yield self._span("prime", primed / self._speeds.prefill, 0)
        done = 0
        while turns is None or done < turns:
            step = self._plan.next()
            yield from self._step(step)
            done += 1

    def _step(self, step: Step) -> Iterator[PlannedSpan]:
        if step.pause_s > 0:
            yield self._span(step.pause_kind, step.pause_s, step.number)
        if step.fresh:
            self._context = 0
        context, compaction, speeds = self._profile.context, self._profile.compaction, self._speeds
        fixed = context.fixed + context.shared_document
        added, output = self._sizes(step, fixed)
        shortened = bool(self._context) and self._context + added + output > context.limit
        if step.prompt is not None:
            shortened = bool(self._context) and step.compact
        if shortened:
            self._context = self._profile.compacted if step.prompt is None else step.prompt - added
            self._uncached = max(0, self._context - context.fixed)
            if compaction.kind == "summary":
                yield self._span("compact", compaction.summary / speeds.decode, step.number)
        if not self._context:
            self._context = self._uncached = fixed
        self._context += added
        yield self._span("prefill", (self._uncached + added) / speeds.prefill, step.number, shortened)
        self._uncached = 0
        self._context += output
        yield self._span("decode", output / speeds.decode, step.number)
        if step.children:
            yield self._span("children", self._longest(step.children), step.number)

    def _sizes(self, step: Step, fixed: int) -> tuple[int, int]:
        """Tokens the turn adds and puts out, as the agent will fit them."""
        if step.prompt is not None:
            if step.compact:
                return min(max(1, step.prompt // 10), USUAL_INPUT), step.output
            return max(1, step.prompt - (self._context or fixed)), step.output
        room = max(2, self._profile.context.limit - (self._profile.compacted if self._context else fixed))
        output = min(step.output, max(room // 2, room - step.input))
        return max(1, min(step.input, room - output)), output

    def _longest(self, turns: tuple[int, ...]) -> float:
        """How long the slowest of some sub-agents takes."""
        profile = child_profile(self._profile)
        longest = 0.0
        for count in turns:
            self._children += 1
            child = _Life(profile, self._seed, f"{self._number}.{self._children}", self._speeds)
            for span in islice(child.spans(0.0, count), MOST_SPANS):
                longest = max(longest, span.to_s)
        return longest

    def _span(self, kind: str, seconds: float, turn: int, shortened: bool = False) -> PlannedSpan:
        begun, self._now = self._now, self._now + seconds
        return PlannedSpan(
            kind=kind,
            from_s=begun,
            to_s=self._now,
            context_tokens=self._context,
            turn=turn,
            shortened=shortened,
        )
