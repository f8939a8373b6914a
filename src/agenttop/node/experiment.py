"""What climbs by itself: runs of given levels, ramps, and the search for the knee."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from agenttop.analyse.search import Done, Measured, Search
from agenttop.errors import AgenttopError
from agenttop.model import commands as c
from agenttop.model import units
from agenttop.model.frames import Session
from agenttop.node.director import Director, RefusedError, check_target
from agenttop.node.experiment_frames import LevelBook
from agenttop.node.experiment_level import LevelRunner
from agenttop.node.experiment_report import Reporter
from agenttop.node.experiment_words import LevelOrder
from agenttop.node.hub import Hub

FILL_S = 60.0
"""In a search the agents of a level all start within this time: staggers of minutes would eat the budget."""

FILL_SHARE = 0.25
WINDOW_SHARE = 0.75
"""Of what a level may take: for its agents to start, and then until it can be judged."""

LEAST_LEVEL_S = 12.0
USUAL_LEVEL_S = 45.0
"""No level of a search is given less than the first for its window; less than the second only where the
budget would not hold three of them."""


class Experiments:
    """One at a time: `node.wishes` sees to that, and cancels what is to end early."""

    def __init__(self, hub: Hub, now: Callable[[], float], director: Director, session: Session) -> None:
        self._hub = hub
        self._now = now
        self._director = director
        self._session = session

    async def run(self, plan: c.RunPlan) -> None:
        """One level after another, then stop everything.

        Raises:
            RefusedError: before anything has started.
            AgenttopError: no agent is left to go on with.
        """
        if not plan.levels or plan.seconds <= 0:
            raise RefusedError("a run needs at least one level and a duration")
        for agents in plan.levels:
            check_target(agents)
        with self._watching() as (_, runner):
            before = 0
            for number, agents in enumerate(plan.levels):
                order = LevelOrder(
                    number=number,
                    agents=agents,
                    of=len(plan.levels),
                    fresh=plan.cold or agents <= before or agents in plan.levels[:number],
                    seconds=None if plan.settle else plan.seconds,
                    at_most_s=plan.seconds,
                )
                end = await runner.run(order, _start(plan, agents) if number == 0 else None)
                if end.how == "deserted":
                    raise AgenttopError(end.why)
                before = agents
        self._hub.event("run.end", "the run has ended")
        self._director.stop_all("node")

    async def ramp(self, ramp: c.Ramp) -> None:
        """Climb, or step down, and leave the last level's agents running. Raises RefusedError."""
        levels = _checked(ramp)
        start = self._ramp_start(ramp, levels[0])
        with self._watching() as (_, runner):
            before = self._director.target
            for number, agents in enumerate(levels):
                order = LevelOrder(
                    number=number,
                    agents=agents,
                    of=len(levels),
                    origin="ramp",
                    fresh=agents < before or agents in levels[:number],
                    seconds=ramp.hold_s,
                    held=True,
                )
                end = await runner.run(order, start if number == 0 else None)
                if end.how == "deserted":
                    self._hub.event("ramp.end", f"the ramp ends early: {end.why}", severity="warn")
                    return
                before = agents
        self._hub.event("ramp.end", f"the ramp has reached {units.plural(levels[-1], 'agent')}, which go on")

    async def find_knee(self, wish: c.FindKnee) -> None:
        """Search for the knee, the cliff and the capacity, then stop everything. Raises RefusedError."""
        if wish.budget_s <= 0:
            raise RefusedError("a search needs a budget of time")
        check_target(wish.most)
        begun = self._now()
        with self._watching() as (book, runner):
            reporter = Reporter(self._hub, self._now, book, wish.slo)
            search = Search(wish.most, wish.budget_s, reporter.belief)
            while True:
                left = wish.budget_s - (self._now() - begun)
                step = search.next(left)
                if isinstance(step, Done):
                    break
                number = len(search.measured)
                share = search.share_s(left)
                order = LevelOrder(
                    number=number,
                    agents=step.agents,
                    origin="search",
                    purpose=step.purpose,
                    fresh=step.agents <= self._director.target or step.purpose == "confirm",
                    at_most_s=max(LEAST_LEVEL_S, min(USUAL_LEVEL_S, left / 3), share * WINDOW_SHARE),
                    until=begun + wish.budget_s,
                    fill_s=None if wish.stagger_s is not None else min(FILL_S, share * FILL_SHARE),
                )
                end = await runner.run(order, _start(wish, step.agents) if number == 0 else None)
                how = "failures" if end.how == "deserted" else end.how
                level = Measured(step.agents, step.purpose, end.took_s, how)
                await asyncio.to_thread(search.add, level)
                reporter.interim(search)
            self._director.stop_all("node")
            reporter.final(search, step)
        self._hub.event("run.end", "the search has ended")

    @contextlib.contextmanager
    def _watching(self) -> Iterator[tuple[LevelBook, LevelRunner]]:
        """Keep the frames that levels are judged by while a run is under way."""
        book = LevelBook(self._session)
        stop = self._hub.observe(book.take)
        try:
            yield book, LevelRunner(self._hub, self._now, self._director, book)
        finally:
            stop()

    def _ramp_start(self, ramp: c.Ramp, agents: int) -> c.StartAgents | None:
        """What sets the load up for a ramp; None where the load in force is meant and stands."""
        plan = self._director.plan
        if ramp.engine is None and ramp.profile is None:
            if plan is None:
                raise RefusedError("no load is set up yet", "choose an engine and a profile for the ramp")
            return None
        engine = ramp.engine or (plan.engine if plan else None)
        profile = ramp.profile or (plan.profile if plan else None)
        if engine is None or profile is None:
            raise RefusedError("a ramp needs an engine and a profile")
        return c.StartAgents(
            engine=engine,
            profile=profile,
            target=agents,
            stagger_s=ramp.stagger_s,
            seed=ramp.seed,
            pace=ramp.pace,
            overrides=ramp.overrides,
        )


def _checked(ramp: c.Ramp) -> list[int]:
    """The levels of a ramp. Raises RefusedError."""
    for agents in (ramp.first, ramp.last):
        check_target(agents)
        if agents < 1:
            raise RefusedError("every level of a ramp needs at least one agent")
    if ramp.step < 1 or ramp.hold_s <= 0:
        raise RefusedError("a ramp needs a step of at least one agent, and a time to hold each level")
    return ramp.levels()


def _start(wish: c.RunPlan | c.FindKnee, agents: int) -> c.StartAgents:
    return c.StartAgents(
        engine=wish.engine,
        profile=wish.profile,
        target=agents,
        stagger_s=wish.stagger_s,
        seed=wish.seed,
        pace=wish.pace,
        overrides=wish.overrides,
    )
