"""The wishes of the consoles: each command to whoever carries it out, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agenttop.errors import AgenttopError
from agenttop.model import commands as c
from agenttop.model.frames import OwnSample
from agenttop.model.text import clean
from agenttop.node.director import Director
from agenttop.node.experiment import Experiments
from agenttop.node.hub import Hub
from agenttop.node.sampling import EngineWatches
from agenttop.wire.codec import WireError, decode_command

SETTLE_S = 5.0
"""How long cancelled requests may take to be reported before a run's recording is closed."""


C = TypeVar("C", bound=c.Command)

STEERING = (c.StartAgents, c.SetTarget, c.AddAgents, c.StopAgent)
"""What changes the agents by hand."""


class Wishes:
    """Obeys commands. What is refused becomes an event; nothing a console sends ends the node by accident."""

    def __init__(
        self,
        hub: Hub,
        now: Callable[[], float],
        director: Director,
        experiments: Experiments,
        engines: EngineWatches,
        end: Callable[[str], None],
        console_leaves: Callable[[], None],
        *,
        rate: float = 1.0,
    ) -> None:
        self._hub = hub
        self._now = now
        self._director = director
        self._experiments = experiments
        self._engines = engines
        self._end = end
        self._console_leaves = console_leaves
        self._rate = rate
        self._jobs: set[asyncio.Task[None]] = set()
        self._run: asyncio.Task[None] | None = None
        self._run_is = ""
        """run, search or ramp: what `_run` is."""
        self._turn = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether a run, a search or a ramp is in progress."""
        return self._run is not None and not self._run.done()

    def line(self, line: bytes) -> None:
        """One line from a console."""
        try:
            command = decode_command(line)
        except WireError as error:
            self._refuse(str(error))
            return
        self.obey(command)

    def obey(self, command: c.Command) -> None:
        """Carry a command out, or begin to."""
        if isinstance(command, STEERING) and not self._may_steer():
            return
        match command:
            case c.StartAgents():
                if command.confirmed:
                    self._engines.allow(command.engine)
                self._later(self._director.start(command))
            case c.SetTarget():
                self._later(self._director.set_target(command.target))
            case c.AddAgents():
                self._later(self._add(command.count))
            case c.StopAgent():
                self._now_or_refuse(lambda: self._director.stop_one(command.agent))
            case c.StopAll():
                self._abandon_all()
                self._director.stop_all()
            case c.Drain():
                self._abandon_all()
                self._director.drain()
            case c.Pause():
                self._director.pause(command.on)
            case c.Mark():
                self._hub.event("mark", clean(command.text), source="you")
            case c.RunPlan():
                self._begin("run", lambda: self._to_the_end(self._experiments.run, command, "the run"))
            case c.FindKnee():
                self._begin(
                    "search", lambda: self._to_the_end(self._experiments.find_knee, command, "the search")
                )
            case c.Ramp():
                if command.confirmed and command.engine is not None:
                    self._engines.allow(command.engine)
                self._begin("ramp", lambda: self._ramp(command))
            case c.OwnCost():
                self._own_cost(command)
            case c.Leave():
                self._console_leaves()
            case c.Quit():
                self._end("ended by the user")

    async def close(self) -> None:
        """Abandon whatever is being carried out."""
        jobs = [*self._jobs, *([self._run] if self._run else [])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    def _refuse(self, why: str) -> None:
        self._hub.event("command.refused", why, severity="bad")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._carry_out(work))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._turn:  # one wish at a time, in the order they came
                await work
        except AgenttopError as error:
            self._refuse(str(error))
        finally:
            work.close()  # given up before its turn came

    def _now_or_refuse(self, work: Callable[[], None]) -> None:
        try:
            work()
        except AgenttopError as error:
            self._refuse(str(error))

    async def _add(self, count: int) -> None:
        await self._director.set_target(max(0, self._director.target + count))

    def _may_steer(self) -> bool:
        """Steering by hand ends a ramp; in a run or search it would falsify the level, and is refused."""
        if not self.running:
            return True
        if self._run_is == "ramp":
            assert self._run is not None
            self._run.cancel()
            self._hub.event("ramp.end", "the ramp ends here: the agents are steered by hand", source="you")
            return True
        self._refuse(f"a {self._run_is} is in progress: stop it first (x stops all agents)")
        return False

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.running:
            self._refuse(f"a {self._run_is} is in progress: stop it first (x stops all agents)")
            return
        self._run_is = name
        self._run = asyncio.ensure_future(work())

    def _abandon_all(self) -> None:
        """Whoever stops everything means also the start that still waits for its engine."""
        for job in self._jobs:
            job.cancel()
        if self._run is not None and not self._run.done():
            self._run.cancel()
            text = f"the {self._run_is} was stopped before its end"
            name = "ramp.end" if self._run_is == "ramp" else "run.abandoned"
            self._hub.event(name, text, source="you", severity="warn")

    async def _to_the_end(
        self, work: Callable[[C], Coroutine[Any, Any, None]], command: C, what: str
    ) -> None:
        """Carry out what the session was started for: it ends with it."""
        try:
            await work(command)
        except AgenttopError as error:
            self._hub.event("run.failed", str(error), severity="bad")
            self._end(f"{what} failed: {error}")
            return
        except Exception as error:  # noqa: BLE001 - a fault here must not leave agents running without end
            text = f"an internal error ended {what}: {type(error).__name__}: {error}"
            self._hub.event("run.failed", text, severity="bad")
            self._end(f"{what} failed: {text}")
            return
        await self._settle()
        self._end(f"{what} has ended")

    async def _ramp(self, ramp: c.Ramp) -> None:
        try:
            await self._experiments.ramp(ramp)
        except AgenttopError as error:
            self._refuse(str(error))

    async def _settle(self) -> None:
        """Wait until the cancelled requests have been reported, so that the recording has them."""
        deadline = self._now() + SETTLE_S * self._rate
        while self._director.agents and self._now() < deadline:
            await asyncio.sleep(0.05)

    def _own_cost(self, cost: c.OwnCost) -> None:
        own = OwnSample(
            t=self._now(),
            role="console",
            pid=cost.pid,
            cpu_fraction=cost.cpu_fraction,
            window_s=cost.window_s,
            memory_bytes=cost.memory_bytes,
        )
        self._hub.publish([own])
