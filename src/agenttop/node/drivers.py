"""The driver processes of a session: as many as its agents need, seen as one.

One process serves hundreds of agents. When more are asked for, or when what a process was measured to take
says that one core is not enough, the next agents go to another one. An agent stays where it was started:
its connection and its engine's cache are there. Its number alone fixes its plan, whichever process runs it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

import msgspec

from agenttop.model import units
from agenttop.model.commands import Configure, DriverCommand, HaltAgent, LaunchAgent, PauseAll
from agenttop.model.frames import AgentSample, Event, Frame, LoadSample, Missing, OwnSample
from agenttop.node.drive import Worker
from agenttop.node.merge import Past, merge

AGENTS_EACH = 256
"""Agents of one process, as long as nothing has been measured."""

CPU_EACH = 0.5
"""Share of a core a process may come to take; from 70 % on a level is invalid (`agents.meter`)."""

LEAST_EACH, MOST_EACH = 16, 512

LEAST_MEASURED = 8
"""With fewer agents than this a process says little about what one agent costs."""

MEASURES = 30
"""Seconds that are looked back for the dearest."""

TWICE_S = 10.0
"""The same news from another process within this time is not told again."""


class Seat:
    """One process and what is known of it."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number = number
        self.worker = worker
        self.agents: dict[str, AgentSample | None] = {}
        """Its agents, with their newest samples."""
        self.load: LoadSample | None = None
        self._costs: deque[float] = deque(maxlen=MEASURES)

    @property
    def name(self) -> str:
        """As in `OwnSample.role`."""
        return "driver" if self.number == 1 else f"driver {self.number}"

    @property
    def top_agents(self) -> int:
        """Agents that are nobody's sub-agents."""
        return sum(sample is None or sample.parent is None for sample in self.agents.values())

    @property
    def room(self) -> float:
        """How many more agents it should take."""
        each = float(AGENTS_EACH)
        if self._costs:
            each = min(float(MOST_EACH), max(float(LEAST_EACH), CPU_EACH / max(self._costs)))
        return each - self.top_agents

    def measured(self, sample: LoadSample) -> None:
        """Its newest sample."""
        self.load = sample
        if sample.cpu_fraction and sample.active >= LEAST_MEASURED:
            self._costs.append(sample.cpu_fraction / sample.active)


class Drivers:
    """Frames come through `publish`; `gone` is called when the last process has died by itself."""

    def __init__(
        self,
        publish: Callable[[list[Frame]], None],
        gone: Callable[[int | None], None],
        most: int | None = None,
    ) -> None:
        """`most`: processes at once; None: half of the cores, but two at least and eight at most."""
        self._publish = publish
        self._gone = gone
        self._most = most or min(8, max(2, (os.cpu_count() or 2) // 2))
        self._seats: list[Seat] = []
        self._count = 0
        self._configure: Configure | None = None
        self._paused = False
        self._past = Past()
        self._fresh: set[int] = set()
        """Processes that have reported since the last merged sample."""
        self._t = 0.0
        """Session time, as the newest frame tells it."""
        self._told: dict[str, tuple[float, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """Process number of the first one that runs."""
        return next((seat.worker.pid for seat in self._seats if seat.worker.pid is not None), None)

    async def start(self) -> None:
        """Start the first process. Raises OSError when the system refuses."""
        await self._add().worker.start()

    def send(self, *commands: DriverCommand) -> None:
        """Pass orders on to those they concern."""
        for command in commands:
            match command:
                case LaunchAgent():
                    self._launch(command)
                case HaltAgent():
                    for seat in self._seats:
                        if command.agent in seat.agents:
                            seat.worker.send(command)
                case Configure():
                    self._configure = command
                    for seat in self._seats:
                        seat.worker.send(_for(seat, command))
                case _:
                    if isinstance(command, PauseAll):
                        self._paused = command.on
                    for seat in self._seats:
                        seat.worker.send(command)

    async def stop(self) -> None:
        """Cancel everything and wait for the end of all."""
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(seat.worker.stop() for seat in self._seats))

    def _add(self) -> Seat:
        self._count += 1
        seat = Seat(self._count, Worker(self._from, self._died))
        self._seats.append(seat)
        return seat

    def _launch(self, order: LaunchAgent) -> None:
        if not self._seats:
            return  # the last process has just died, which is being told
        seat = max(self._seats, key=lambda seat: seat.room)
        if seat.room < 1 and len(self._seats) < self._most and self._configure is not None:
            seat = self._one_more()
        seat.agents[order.agent] = None
        seat.worker.send(order)

    def _one_more(self) -> Seat:
        running = sum(seat.top_agents for seat in self._seats)
        seat = self._add()
        assert self._configure is not None
        seat.worker.send(_for(seat, self._configure))
        if self._paused:
            seat.worker.send(PauseAll(on=True))
        task = asyncio.ensure_future(self._start(seat))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        text = f"{seat.name}: another process for the agents beyond {running}, one core would not do"
        self._publish([Event(t=self._t, event="driver.added", text=text, source="node")])
        return seat

    async def _start(self, seat: Seat) -> None:
        try:
            await seat.worker.start()
        except OSError as error:
            self._lose(seat, f"{seat.name} cannot be started: {error}", None)

    # What comes from them

    def _from(self, worker: Worker, frames: list[Frame]) -> None:
        seat = next((seat for seat in self._seats if seat.worker is worker), None)
        if seat is None:
            return
        out: list[Frame] = []
        self._t = max(self._t, frames[-1].t)
        for frame in frames:
            match frame:
                case AgentSample():
                    self._keep(seat, frame)
                case LoadSample():
                    out += self._merged(seat, frame)
                    continue
                case OwnSample():
                    frame = msgspec.structs.replace(frame, role=seat.name)
                case Event() | Missing() if self._told_already(seat, frame):
                    continue
                case _:
                    pass
            out.append(frame)
        if out:
            self._publish(out)

    def _keep(self, seat: Seat, sample: AgentSample) -> None:
        if sample.state == "stopped":
            seat.agents.pop(sample.agent, None)
        else:
            seat.agents[sample.agent] = sample

    def _merged(self, seat: Seat, sample: LoadSample) -> list[Frame]:
        """The sample of all, once everyone with agents has reported, or someone has reported twice."""
        twice = seat.number in self._fresh
        out: list[Frame] = [self._sum()] if twice else []
        if twice:
            self._fresh.clear()
        seat.measured(sample)
        self._fresh.add(seat.number)
        if all(other.number in self._fresh or not other.agents for other in self._seats):
            self._fresh.clear()
            out.append(self._sum())
        return out

    def _sum(self) -> LoadSample:
        loads = [seat.load for seat in self._seats if seat.load is not None]
        return merge(loads, self._past, len(self._seats))

    def _told_already(self, seat: Seat, frame: Event | Missing) -> bool:
        """Whether another process has just said the same: what is learnt of an engine, each learns."""
        if len(self._seats) == 1 or (isinstance(frame, Event) and frame.subject is not None):
            return False
        what = f"{frame.event} {frame.text}" if isinstance(frame, Event) else f"{frame.what} {frame.why}"
        t, number = self._told.get(what, (float("-inf"), seat.number))
        self._told = {key: value for key, value in self._told.items() if frame.t - value[0] < TWICE_S}
        if number != seat.number and frame.t - t < TWICE_S:
            return True
        self._told[what] = (frame.t, seat.number)
        return False

    def _died(self, worker: Worker, code: int | None) -> None:
        seat = next(seat for seat in self._seats if seat.worker is worker)
        if len(self._seats) == 1:
            self._seats.clear()
            self._gone(code)
            return
        count = units.plural(len(seat.agents), "agent")
        text = f"{seat.name} ended unexpectedly (exit {code}); its {count} are gone, the others run on"
        self._lose(seat, text, code)

    def _stopped(self, agent: str, sample: AgentSample | None, t: float) -> AgentSample:
        if sample is None:  # it has not been heard of yet
            assert self._configure is not None
            engine, profile = self._configure.engine, self._configure.profile
            return AgentSample(
                t=t, agent=agent, engine=engine, profile=profile, state="stopped", state_since=t
            )
        return msgspec.structs.replace(
            sample, t=t, state="stopped", state_since=t, state_until=None, slot=None
        )

    def _lose(self, seat: Seat, text: str, code: int | None) -> None:
        """One process of several is gone: its agents are shown as stopped, the others go on."""
        t = self._t
        self._seats.remove(seat)
        self._fresh.discard(seat.number)
        if seat.load is not None:
            self._past.add(seat.load)
        stopped: list[Frame] = [self._stopped(name, sample, t) for name, sample in seat.agents.items()]
        event = Event(t=t, event="driver.lost", text=text, source="node", severity="bad")
        self._publish([*stopped, event])
        if not self._seats:
            self._gone(code)


def _for(seat: Seat, order: Configure) -> Configure:
    """Beyond the first process there are too many agents for the kernel's time stamps to be on by default."""
    if seat.number > 1 and order.kernel_stamps is None:
        return msgspec.structs.replace(order, kernel_stamps=False)
    return order
