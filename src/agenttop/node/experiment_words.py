"""How a level is ordered, and the words in which it begins and ends: one truth in one sentence each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.measures import is_full
from agenttop.analyse.row import LevelRow
from agenttop.analyse.settle import Progress, enough_s
from agenttop.model import units
from agenttop.model.frames import Level, Turn

MORE = 3.0
"""A level that is not known well enough may want so many times the time it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOrder:
    """How a level is to be run."""

    number: int
    """Counted from 0."""
    agents: int
    of: int | None = None
    origin: str = "run"
    purpose: str | None = None
    fresh: bool = False
    """Its agents are all new."""
    seconds: float | None = None
    """It lasts exactly this long; None: until it can be judged."""
    held: bool = False
    """Those seconds begin when its last agent starts, not with the level."""
    at_most_s: float = 600.0
    """The longest it may take to get warm once all its agents run, and then again to be judged."""
    until: float = float("inf")
    """Session time at which the run as a whole has to end."""
    fill_s: float | None = None
    """The last agent starts no later than this after the first."""


def announcement(order: LevelOrder) -> str:
    """A level begins."""
    of = f" of {order.of}" if order.of else ""
    fresh = ", all new" if order.fresh else ""
    purpose = f" ({order.purpose})" if order.purpose else ""
    return f"level {order.number + 1}{of}: {units.plural(order.agents, 'agent')}{fresh}{purpose}"


def late_starts(level: Level, last_start: float) -> str:
    """That a level is over before its last agent starts."""
    assert level.t_end is not None
    takes, lasts = units.seconds(last_start - level.t), units.seconds(level.t_end - level.t)
    return (
        f"the staggered starts of the agents take {takes}, the level lasts {lasts}: {level.agents} of them "
        "never run together; a longer --for or a shorter --stagger helps"
    )


def time_up(order: LevelOrder, level: Level, turns: Sequence[Turn]) -> str:
    """A level of a given time is over. `turns`: all that ended in it."""
    own = [turn for turn in turns if is_full(turn) and turn.t_sent is not None and turn.t_sent >= level.t]
    had_one = len({turn.agent for turn in own})
    if had_one >= order.agents or order.seconds is None:
        return "its time is up"
    few = f"{had_one} of {units.plural(order.agents, 'agent')}" if had_one else "no agent"
    said = f"its time is up, but {few} completed a turn in it"
    wants = enough_s(order.agents, order.seconds, own)
    return f"{said}; {_more(order, wants or MORE * order.seconds, wants is not None)}"


def judged(order: LevelOrder, row: LevelRow, state: Progress, spent_s: float) -> str:
    """It is steady: with all that was wanted, or as far as its time went."""
    one = row.agents == 1
    each = units.plural(state.turns, "turn") if one else f"{state.fewest} or more turns of each agent"
    if not state.waits_for:
        return f"judged steady over {units.seconds(row.window_s)}, {each}"
    more = _more(order, MORE * order.at_most_s, by_turns=False)
    return f"its time is up after {units.seconds(spent_s)}: steady, but {_lacks(state)}; {more}"


def late(
    order: LevelOrder, row: LevelRow | None, state: Progress, spent_s: float, turns: Sequence[Turn]
) -> str:
    """Its time is up, and it could not be judged steady."""
    time = units.seconds(spent_s)
    if row is not None and row.valid and row.steady != "unsteady":
        lacks = _lacks(state) if state.waits_for else row.why_steady
        said = f"its time is up after {time}, and it is not judged steady: {lacks}"
    else:
        why = (row.why_invalid or row.why_steady) if row is not None else None
        said = f"no steady state within {time}: {why or state.waits_for}"
        if state.fewest > 0:
            return said
    own = [turn for turn in turns if state.since is None or (turn.t_sent or 0.0) >= state.since]
    wants = enough_s(order.agents, spent_s, own)
    if wants is None or wants <= spent_s:
        return f"{said}; {_more(order, MORE * order.at_most_s, by_turns=False)}"
    return f"{said}; {_more(order, wants, by_turns=True)}"


def cut(row: LevelRow | None, state: Progress) -> tuple[str, str]:
    """The time of the whole run is over in the middle of a level: it counts where it is steady already."""
    up = "the time for the whole search is up"
    if row is not None and row.valid and row.steady == "steady":
        return "steady", f"{up}: steady, but {_lacks(state)}" if state.waits_for else f"{up}: steady"
    return "budget", f"{up}: {_lacks(state) if state.waits_for else 'not steady yet'}"


def _lacks(state: Progress) -> str:
    if state.width is not None:
        return f"the total is known to ±{units.percent(state.width)} only"
    return f"it lacked {state.waits_for}" if state.since is not None else state.waits_for


def _more(order: LevelOrder, seconds: float, by_turns: bool) -> str:
    """What would help, with the time it would take by the turns seen, or else one that tells more."""
    time = f"{math.ceil(seconds / 60)}m" if seconds > 120 else f"{math.ceil(seconds)}s"
    would = "would do, by the turns seen" if by_turns else "would tell more"
    match order.origin:
        case "search":
            return "a larger --budget would tell more"
        case "ramp":
            return f"a hold of {time} {would}"
        case _:
            return f"{'--at-most' if order.seconds is None else '--for'} {time} {would}"
