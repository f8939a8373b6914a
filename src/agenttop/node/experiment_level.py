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
from agenttop.model.frames import EngineSample, Level, Turn
from agenttop.node import experiment_words as words
from agenttop.node.director import Director
from agenttop.node.experiment_frames import LevelBook
from agenttop.node.experiment_words import LevelOrder
from agenttop.node.hub import Hub

LOOK_S = 0.5
LEAST_LOOK_S = 0.05
"""How often a level in progress is looked at: in session time, and at least so many real seconds apart."""

JUDGE_SHARE = 0.08
"""The row of a level in progress costs more the longer it runs: it is asked for after this much more time."""

LEAST_TOLD_S = 0.5
"""Staggered starts that take less are not worth a word."""

HOLD_LOOK_S = 0.5
"""How often a level that lasts a given time is looked at, in real seconds."""

LOOKED_AT_S = 5.0
"""So long an engine may take to show how it is now, in real seconds."""

DESERTED = "no agent is left: all gave up or were lost, as the events before say"

GRACE = 2.0
"""A level that cannot be judged yet may take so many times what it was given, where the budget allows."""


@dataclass(frozen=True, slots=True)
class LevelEnd:
    """How a level ended."""

    how: str
    """steady, unsteady, time, failures, client, budget; deserted: no agent is left; engine: nothing but
    failures, and it is down."""
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
                self._hub.event(
                    "run.starts", words.late_starts(level, self._director.last_start), severity="warn"
                )
        if level.t_end is not None:
            if not await self._hold(level.t_end):
                return self._over(level, "deserted", DESERTED, None)
            return self._over(level, "time", words.time_up(order, level, self._book.turns(level.t)), None)
        how, why = await self._settle(level, order)
        return self._over(level, how, why, self._book.end(level, self._now()))

    async def _hold(self, until: float) -> bool:
        """Let the level last until then. False: all its agents have ended before."""
        rate = self._director.rate
        while (left := until - self._now()) > 0:
            if self._director.deserted:
                return False
            await asyncio.sleep(min(left / rate, HOLD_LOOK_S))
        return True

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
        text = words.announcement(order)
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
            if self._director.deserted:
                return "deserted", DESERTED
            if state.halted_by is not None:
                return await self._halted(level, state)
            if now >= order.until:
                return words.cut(self._book.row(now), state)
            spent = now - (
                state.since if state.since is not None else max(level.t, self._director.last_start)
            )
            late = spent >= order.at_most_s
            if (state.ready or late) and now >= next_row:
                next_row = now + JUDGE_SHARE * (now - level.t)
                row = self._book.row(now)
                if row is not None and row.valid and row.steady == "steady":
                    return "steady", words.judged(order, row, state, spent)
                patience = GRACE if order.purpose is not None and not (row and row.valid) else 1.0
                if late and spent >= patience * order.at_most_s:
                    turns = self._book.turns(level.t)
                    return "unsteady", words.late(order, row, state, spent, turns)

    async def _halted(self, level: Level, state: Progress) -> tuple[str, str]:
        """How a level ends that never will be judged."""
        assert state.halted_by is not None
        turns = self._book.turns(level.t)
        engine = await self._looked_at_since(turns[-1]) if turns else self._book.engine(None)
        if state.halted_by == "failures" and engine is not None and engine.state not in SERVING:
            return "engine", f"the engine is not serving ({engine.state}); {state.waits_for}"
        return state.halted_by, state.waits_for

    async def _looked_at_since(self, turn: Turn) -> EngineSample | None:
        """The engine as it was after a request ended: agents learn that it is gone before it is looked at."""
        until = self._now() + LOOKED_AT_S * self._director.rate
        while True:
            engine = self._book.engine(turn.engine)
            if engine is None or engine.state not in SERVING or engine.t - (engine.age_s or 0.0) > turn.t:
                return engine
            if self._now() >= until:
                return engine
            await asyncio.sleep(LEAST_LOOK_S)
