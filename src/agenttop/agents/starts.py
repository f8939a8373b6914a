"""When agents start: the gap before each, and how long one cycle of a profile is meant to last."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agenttop.agents.distribution import Distribution
from agenttop.agents.settings import Profile, child_profile

PREFILL_TOK_S = 2000.0
DECODE_TOK_S = 50.0
"""Assumed speeds of an engine that serves one agent: for plans that are made before anything has been
measured. A mid-range GPU with a model of 8 to 30 billion parameters reaches about that."""


def start_gap_s(profile: Profile, seed: int, number: int, agents: int | None = None) -> float:
    """Seconds between the start of the agent before and that of agent `number`, as the profile says.

    It depends on the seed and the number only, so agents added later follow the same plan. `agents`: how
    many a start of kind spread is to be divided among; None: as many as the profile starts.
    """
    start = profile.start
    if start.kind == "spread":
        cycle = cycle_s(profile) if start.cycle_s is None else start.cycle_s
        return cycle / max(1, agents or profile.agents)
    if start.kind == "at-once" or start.stagger_s <= 0:
        return 0.0
    if start.kind != "poisson":
        return start.stagger_s
    return random.Random(f"agenttop:{seed}:{number}:start").expovariate(1 / start.stagger_s)


def starts_s(profile: Profile, levels: Sequence[int], standing: int = 0) -> float:
    """Seconds that the staggered starts of a ramp take, all levels together. `standing`: agents that run
    already and stay. A level of fewer agents than before takes new ones."""
    total, before = 0.0, standing
    for agents in levels:
        before = 0 if agents < before else before
        joining = range(max(1, before) + 1, agents + 1)
        total += sum(start_gap_s(profile, 0, number, agents) for number in joining)
        before = agents
    return total


def cycle_s(profile: Profile, prefill: float = PREFILL_TOK_S, decode: float = DECODE_TOK_S) -> float:
    """Seconds from one compaction to the next, or from one conversation to the next, at these speeds.

    From means, for an agent that never waits for another: a plan, not a forecast.
    """
    context, turn = profile.context, profile.turn
    fill = 1.0 if turn.fill_rate is None else turn.fill_rate.mean_value
    added, output = turn.input.mean_value * fill, turn.output.mean_value
    every = added / prefill + output / decode + _pause_s(profile) + _children_s(profile, prefill, decode)
    if context.turns is not None:
        opening = (context.first.mean_value + context.shared_document - added) / prefill
        return max(0.1, max(1.0, context.turns.mean_value) * every + opening)
    turns = max(1.0, (context.limit - profile.compacted) / max(1.0, added + output))
    return max(0.1, turns * every + profile.compaction.summary / decode + profile.compacted / prefill)


def _pause_s(profile: Profile) -> float:
    """Mean pause before a turn."""
    pacing = profile.pacing
    tool = pacing.tool_pause_s.mean_value
    if pacing.human_pause_s is None:
        return tool
    runs = _mean(pacing.tool_turns)
    return (runs * tool + pacing.human_pause_s.mean_value) / (runs + 1)


def _children_s(profile: Profile, prefill: float, decode: float) -> float:
    """Mean time a turn waits for sub-agents."""
    children = profile.children
    if children is None:
        return 0.0
    share = 1 / children.every if children.every else children.chance or 0.0
    child = child_profile(profile)
    each = child.turn.input.mean_value / prefill + child.turn.output.mean_value / decode + _pause_s(child)
    opening = (
        child.context.system + child.context.shared_document + child.context.first.mean_value
    ) / prefill
    return share * (opening + children.turns.mean_value * each)


def _mean(distribution: Distribution | None) -> float:
    return 0.0 if distribution is None else distribution.mean_value
