"""One level of a run: entered, held until it is over, and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agenttop.analyse.row import LevelRow
from agenttop.analyse.settle import Progress, progress
from agenttop.analyse.verdict import SERVING
from agenttop.model import commands as c
from agenttop.model import units
from agenttop.model.frames import Level
from agenttop.node.director import Director
from agenttop.node.experiment_frames import LevelBook
from agenttop.node.hub import Hub

LOOK_S = 0.5
LEAST_LOOK_S = 0.05
"""How often a level in progress is looked at: in session time, and at least so many real seconds apart."""

JUDGE_SHARE = 0.08
"""The row of a level in progress costs more the longer it runs: it is asked for after this much more time."""

LEAST_TOLD_S = 0.5
"""Staggered starts that take less are not worth a word."""

GRACE = 2.0
"""A level that cannot be judged yet may take so many times what it was given, where the budget allows."""


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


@dataclass(frozen=True, slots=True)
class LevelEnd:
    """How a level ended."""

    how: str
    """steady, unsteady, time, failures, client, budget; engine: nothing but failures, and it is down."""
    why: str
    row: LevelRow | None
    took_s: float


class LevelRunner:
    """Runs levels one after another on the director's agents."""

    def __init__(self, hub: Hub, now: Callable[[], float], director: Director, book: LevelBook) -> None:
        self._hub = hub
        self._now = now
        self._director = director
        self._book = book

    async def run(self, order: LevelOrder, start: c.StartAgents | None) -> LevelEnd:
        """Enter a level and return when it is over; its agents go on. `start` sets the load up, first of all.

        Raises RefusedError.
        """
        if order.fresh:
            await self._director.clear()
        if order.held:
            await self._launch(order, start)
            level = self._enter(order)
        else:
            level = self._enter(order)
            await self._launch(order, start)
            if level.t_end is not None and self._director.last_start > level.t_end:
                self._hub.event("run.starts", _late_starts(level, self._director.last_start), severity="warn")
        if level.t_end is not None:
            await asyncio.sleep(max(0.0, level.t_end - self._now()) / self._director.rate)
            return self._over(level, "time", "its time is up", None)
        how, why = await self._settle(level, order)
        return self._over(level, how, why, self._book.end(level, self._now()))

    async def _launch(self, order: LevelOrder, start: c.StartAgents | None) -> None:
        """Have its agents started, or stopped. Raises RefusedError."""
        if start is not None:
            await self._director.start(start, order.fill_s, source="node")
        else:
            await self._director.set_target(order.agents, order.fill_s, source="node")

    def _enter(self, order: LevelOrder) -> Level:
        """Tell everyone that the level begins."""
        begun = self._now()
        starts_s = max(0.0, self._director.last_start - begun) if order.held else 0.0
        level = Level(
            t=begun,
            level=order.number,
            agents=order.agents,
            t_end=begun + starts_s + order.seconds if order.seconds is not None else None,
            purpose=order.purpose,
            cold=order.fresh,
            of=order.of,
            origin=order.origin,
        )
        self._hub.publish([level])
        self._book.begin(level)
        text = _announcement(order)
        if starts_s >= LEAST_TOLD_S:
            text += f"; held once all of them run, in {units.seconds(starts_s)}"
        self._hub.event("run.level", text)
        return level

    def _over(self, level: Level, how: str, why: str, row: LevelRow | None) -> LevelEnd:
        self._hub.event(
            "run.level-end",
            f"level {level.level + 1} of {units.plural(level.agents, 'agent')} ends: {why}",
            severity="info" if how in ("steady", "time") else "warn",
        )
        return LevelEnd(how, why, row, self._now() - level.t)

    async def _settle(self, level: Level, order: LevelOrder) -> tuple[str, str]:
        """Wait until the level can be judged, or never will be. Returns how it ended, and why in words."""
        next_row = 0.0
        while True:
            await asyncio.sleep(max(LEAST_LOOK_S, LOOK_S / self._director.rate))
            now = self._now()
            state = progress(order.agents, now, self._book.loads(level.t), self._book.turns(level.t))
            if state.halted_by is not None:
                return self._halted(level, state)
            if now >= order.until:
                return _cut(self._book.row(now), state)
            spent = now - (
                state.since if state.since is not None else max(level.t, self._director.last_start)
            )
            late = spent >= order.at_most_s
            if (state.ready or late) and now >= next_row:
                next_row = now + JUDGE_SHARE * (now - level.t)
                row = self._book.row(now)
                if row is not None and row.valid and row.steady == "steady":
                    return "steady", _judged(row, state, spent)
                patience = GRACE if order.purpose is not None and not (row and row.valid) else 1.0
                if late and spent >= patience * order.at_most_s:
                    return "unsteady", _late(row, state, spent)

    def _halted(self, level: Level, state: Progress) -> tuple[str, str]:
        """How a level ends that never will be judged."""
        assert state.halted_by is not None
        turns = self._book.turns(level.t)
        engine = self._book.engine(turns[-1].engine if turns else None)
        if state.halted_by == "failures" and engine is not None and engine.state not in SERVING:
            return "engine", f"the engine is not serving ({engine.state}); {state.waits_for}"
        return state.halted_by, state.waits_for


def _announcement(order: LevelOrder) -> str:
    of = f" of {order.of}" if order.of else ""
    fresh = ", all new" if order.fresh else ""
    purpose = f" ({order.purpose})" if order.purpose else ""
    return f"level {order.number + 1}{of}: {units.plural(order.agents, 'agent')}{fresh}{purpose}"


def _late_starts(level: Level, last_start: float) -> str:
    assert level.t_end is not None
    takes, lasts = units.seconds(last_start - level.t), units.seconds(level.t_end - level.t)
    return (
        f"the staggered starts of the agents take {takes}, the level lasts {lasts}: {level.agents} of them "
        "never run together; a longer --for or a shorter --stagger helps"
    )


def _judged(row: LevelRow, state: Progress, spent_s: float) -> str:
    one = row.agents == 1
    each = units.plural(state.turns, "turn") if one else f"{state.fewest} or more turns of each agent"
    lacks = f"; after {units.seconds(spent_s)} it still lacked {state.waits_for}" if state.waits_for else ""
    return f"judged steady over {units.seconds(row.window_s)}, {each}{lacks}"


def _late(row: LevelRow | None, state: Progress, spent_s: float) -> str:
    if row is not None and row.valid and row.steady != "unsteady":
        lacks = state.waits_for or row.why_steady
        return f"not judged steady within {units.seconds(spent_s)}: it still lacked {lacks}"
    why = (row.why_invalid or row.why_steady) if row is not None else None
    return f"no steady state within {units.seconds(spent_s)}: {why or state.waits_for}"


def _cut(row: LevelRow | None, state: Progress) -> tuple[str, str]:
    """The time of the whole run is over in the middle of a level: it counts where it is steady already."""
    if row is not None and row.valid and row.steady == "steady":
        return (
            "steady",
            f"the time for the whole run is up; it was steady ({state.waits_for or 'enough seen'})",
        )
    return "budget", f"the time for the whole run is up ({state.waits_for or 'not steady yet'})"
