"""The driver process: runs the agents and reports on them. `python -m agenttop.agents.driver`

Reads orders (`DriverCommand` lines) on stdin and writes frames on stdout. It ends when told to, on SIGTERM,
and when stdin is closed, which happens also when the node that started it is killed; every request in flight
is then cancelled. It is a process of its own so that nothing delays its time stamps.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from agenttop import oslayer
from agenttop.access.key import Key, from_names
from agenttop.agents.agent import Agent
from agenttop.agents.load import Load
from agenttop.agents.meter import Meter
from agenttop.agents.outbox import Outbox
from agenttop.agents.reply import Reply
from agenttop.agents.stalls import Stalls
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.commands import (
    Configure,
    DriverCommand,
    HaltAgent,
    HaltAll,
    LaunchAgent,
    PauseAll,
    Shutdown,
)
from agenttop.model.frames import Event, LoadSample, Missing, OwnSample, Turn
from agenttop.model.text import clean
from agenttop.wire.codec import LineSplitter, WireError, decode_driver_command

BEAT_S = 0.1
"""Changes are reported this often at most, all in one write."""

LOOK_EVERY = 5
SECOND_EVERY = 10
"""In beats: a look at how far a request is; a sample of each agent and of the whole."""

SLICE = 16
"""Agents sampled without a break: less than a millisecond."""

STOP_S = 2.0

KERNEL_STAMPED = 64
"""With more agents than this the kernel's time stamps, at half as much CPU again, are left off by default."""


class Driver:
    """Holds the agents, obeys orders, and turns what happens into frames. All on one event loop."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._now = _session_clock(time.monotonic())
        self._load: Load | None = None
        self._salt = secrets.token_hex(4)  # two runs with one seed must not find each other's prompts cached
        self._agents: dict[str, Agent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, Agent] = {}
        self._uncounted: set[str] = set()
        self._paused = False
        self._stopping = asyncio.Event()
        self._work = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._meter = Meter(self._now)
        self._past = _Totals()
        """Of agents that have stopped."""
        self._tokens_before = 0
        self._failures: Counter[str] = Counter()
        """By kind, in the whole session."""
        self._stamps: set[str] = set()
        """Where time stamps of this second came from."""
        self._stalls = Stalls()
        self._second_every, self._look_every = SECOND_EVERY, LOOK_EVERY

    # Orders

    def obey(self, command: DriverCommand) -> None:
        """Carry out one order of the node."""
        match command:
            case Configure():
                self._configure(command)
            case LaunchAgent():
                self._launch(command)
            case HaltAgent():
                agent = self._agents.get(command.agent)
                if agent is not None:
                    agent.halt(command.now)
            case HaltAll():
                self._halt_all(command.now)
            case PauseAll():
                self._paused = command.on
                for agent in self._agents.values():
                    agent.pause(command.on)
            case Shutdown():
                self.stop()
        self._work.set()

    def stop(self) -> None:
        """Cancel everything and end."""
        self._stopping.set()
        self._work.set()

    def complain(self, text: str) -> None:
        """An order that could not be read."""
        self._event("driver.bad-order", clean(text), severity="bad")
        self._work.set()

    def _configure(self, order: Configure) -> None:
        self._now = _session_clock(order.origin, order.clock_rate)
        # A session second is what is reported on, but never more often than five times a second.
        self._second_every = max(2, round(SECOND_EVERY / order.clock_rate))
        self._look_every = max(1, round(LOOK_EVERY / order.clock_rate))
        if not self._agents:
            self._meter = Meter(self._now, order.clock_rate)
        try:
            key = self._key_of(order)
            salt = order.salt or self._salt
            self._load = Load(
                order,
                api_key=key.reveal() if key is not None else None,
                salt=salt,
                now=self._now,
                note=self._note,
            )
            if order.kernel_stamps is None:
                self._load.kernel_stamps = lambda: len(self._agents) <= KERNEL_STAMPED
        except (AgenttopError, ValueError) as error:
            self._load = None
            self._event("driver.bad-load", f"this load cannot be run: {clean(str(error))}", severity="bad")
            return
        task = asyncio.ensure_future(self._load.learn_ratio())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _key_of(self, order: Configure) -> Key | None:
        try:
            return from_names(order.api_key_env, order.api_key_file)
        except UsageError as error:
            text = f"{clean(str(error))}: requests go without a key"
            self._event("driver.no-key", text, severity="warn")
            return None

    def _launch(self, order: LaunchAgent) -> None:
        if self._load is None:
            self._event("driver.bad-order", f"{order.agent} has no load to run", order.agent, "bad")
            return
        if order.agent in self._agents:
            self._event("driver.bad-order", f"{order.agent} runs already", order.agent, "warn")
            return
        agent = Agent(order.agent, order.number, order.at, self._load, self)
        self.adopt(agent)

    def adopt(self, agent: Agent) -> asyncio.Task[None]:
        """Run an agent; sub-agents come here from their parents."""
        if self._paused:
            agent.pause(True)
        self._agents[agent.name] = agent
        self.changed(agent)
        task = asyncio.ensure_future(agent.run())
        self._tasks[agent.name] = task
        task.add_done_callback(lambda done: self._gone(agent, done))
        return task

    def _halt_all(self, now: bool) -> None:
        agents = list(self._agents.values())
        flying = sum(agent.in_flight is not None for agent in agents)
        for agent in agents:
            agent.halt(now)
        if agents and now:
            text = f"agents stopped: {len(agents)}, requests in flight cancelled: {flying}"
            self._event("agents.cancelled", text)

    def _gone(self, agent: Agent, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            text = f"{agent.name} ended by a fault in agenttop: {type(error).__name__}: {error}"
            self._event("driver.fault", clean(text), agent.name, "bad")
        self._agents.pop(agent.name, None)
        self._tasks.pop(agent.name, None)
        self._past.add(agent)
        self._work.set()

    # What agents report (see `agents.agent.Desk`)

    def changed(self, agent: Agent) -> None:
        """Its newest state goes out with the next beat."""
        self._changed[agent.name] = agent

    def ended(self, turn: Turn, reply: Reply, first_try: bool) -> None:
        """A request has ended."""
        self._outbox.add(turn)
        self._meter.ended(reply, turn.t_queued, first_try)
        if turn.error_kind is not None and turn.error_kind != "cancelled":
            self._failures[turn.error_kind] += 1
        if reply.events:
            self._stamps.add("kernel" if reply.kernel_stamped else "application")
        if turn.error_kind is None and turn.output_tokens is None and turn.engine not in self._uncounted:
            self._uncounted.add(turn.engine)
            why = "the engine sends no token counts (usage) with its replies"
            self._outbox.add(Missing(t=self._now(), what=f"{turn.engine}:output_tokens", why=why))

    def noted(self, event: str, text: str, agent: Agent, severity: str) -> None:
        """Something for the time axis."""
        self._event(event, text, agent.name, severity)

    def _note(self, event: str, text: str) -> None:
        """What a load has learnt about its engine."""
        self._event(event, clean(text))

    def _event(self, event: str, text: str, subject: str | None = None, severity: str = "info") -> None:
        frame = Event(
            t=self._now(), event=event, text=text, source="driver", severity=severity, subject=subject
        )
        self._outbox.add(frame)

    # Reporting

    async def run(self) -> None:
        """Report until told to stop; then cancel every request and report that, too."""
        beat = 0
        while not self._stopping.is_set():
            if not self._agents:
                await self._idle()
                beat = 0
                continue
            beat += 1
            self._choose(beat)
            await self._report()
            if beat % self._second_every == 0:
                self._second()
            self._outbox.flush()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), BEAT_S)
        await self._end()

    async def _idle(self) -> None:
        """Without agents there is nothing to report but that, once."""
        if self._changed:
            self._second()
        self._meter.run_ticker(False)
        await self._report()
        self._outbox.flush()
        await self._work.wait()
        self._work.clear()
        self._meter.restart()

    async def _end(self) -> None:
        for agent in list(self._agents.values()):
            agent.halt(now=True)
        tasks = [*self._tasks.values()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=STOP_S)
            for task in left:
                task.cancel()
        for task in self._background:
            task.cancel()
        if self._changed:
            self._second()
        await self._report()
        self._outbox.flush()

    def _choose(self, beat: int) -> None:
        """Whose turn it is, besides those whose state has changed: every agent once a second.

        Agents are spread over the beats: hundreds of samples at once would hold up the stamps of tokens.
        """
        flying = False
        for number, (name, agent) in enumerate(self._agents.items()):
            if agent.in_flight is not None:
                flying = True
                if number % self._look_every == beat % self._look_every:
                    agent.look()
            if number % self._second_every == beat % self._second_every:
                self._changed[name] = agent
        self._meter.run_ticker(flying)
        for name, text, subject, severity in self._stalls.news(self._agents.values()):
            self._event(name, text, subject, severity)

    def _stamps_from(self, replies: list[Reply]) -> str | None:
        """Where the time stamps of the last second came from."""
        stamps, self._stamps = self._stamps, set()
        stamps |= {"kernel" if reply.kernel_stamped else "application" for reply in replies if reply.events}
        return "mixed" if len(stamps) > 1 else next(iter(stamps), None)

    async def _report(self) -> None:
        """Queue the samples that are due, a few at a time, so that tokens get through in between."""
        changed, self._changed = self._changed, {}
        for number, agent in enumerate(changed.values(), start=1):
            self._outbox.add(agent.sample(), may_drop=agent.state != "stopped")
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _second(self) -> None:
        """What is reported once a second."""
        agents = list(self._agents.values())
        replies = [reply for agent in agents if (reply := agent.in_flight) is not None]
        readings = self._meter.read(replies)
        totals = _Totals(self._past)
        for agent in agents:
            totals.add(agent)
        fresh, self._tokens_before = totals.output_tokens - self._tokens_before, totals.output_tokens
        counted = all(reply.output_tokens is not None for reply in replies if reply.events)
        load, window = self._load, readings.window_s
        own_agents = [agent for agent in agents if agent.parent is None]
        sample = LoadSample(
            t=self._now(),
            engine=load.engine if load is not None else None,
            profile=load.profile_name if load is not None else None,
            target=len(own_agents),
            active=sum(agent.started for agent in own_agents),
            in_flight=len(replies),
            paused=self._paused,
            window_s=window,
            decode_tok_s=max(0, fresh) / window if window is not None and counted else None,
            turns_done=totals.turns,
            compactions=totals.compactions,
            failures=totals.failures,
            output_tokens_total=totals.output_tokens,
            loop_lag_p99_s=readings.loop_lag_p99_s,
            cpu_fraction=readings.cpu_fraction,
            send_late_p99_s=readings.send_late_p99_s,
            shared_reads_fraction=readings.shared_reads_fraction,
            client_limited=readings.client_limited,
            failure_kinds=dict(self._failures),
            stalled=sum(agent.state == "stalled" for agent in agents),
            stamps=self._stamps_from(replies),
        )
        self._outbox.add(sample, may_drop=True)
        own = OwnSample(
            t=self._now(),
            role="driver",
            pid=os.getpid(),
            cpu_fraction=readings.cpu_fraction,
            window_s=window,
        )
        self._outbox.add(own, may_drop=True)


class _Totals:
    """Sums over agents."""

    def __init__(self, start: _Totals | None = None) -> None:
        self.turns: int = start.turns if start else 0
        self.compactions: int = start.compactions if start else 0
        self.failures: int = start.failures if start else 0
        self.output_tokens: int = start.output_tokens if start else 0

    def add(self, agent: Agent) -> None:
        self.turns += agent.turns_done
        self.compactions += agent.compactions
        self.failures += agent.failures
        self.output_tokens += agent.output_tokens_total


def read_orders(loop: asyncio.AbstractEventLoop, driver: Driver, descriptor: int = 0) -> None:
    """Read orders until the pipe is closed; for a thread, since not every system can wait for a pipe."""
    splitter = LineSplitter()
    try:
        while data := os.read(descriptor, 65536):
            for line in splitter.feed(data):
                try:
                    loop.call_soon_threadsafe(driver.obey, decode_driver_command(line))
                except WireError as error:
                    loop.call_soon_threadsafe(driver.complain, str(error))
    except OSError:
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(driver.stop)


def _session_clock(origin: float, rate: float = 1.0) -> Callable[[], float]:
    """Seconds since the session began, as `SessionClock`, but one call deep: it is asked at every read."""
    monotonic = time.monotonic
    if rate == 1.0:
        return lambda: monotonic() - origin
    return lambda: (monotonic() - origin) * rate


async def _serve(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    outbox = Outbox(descriptor)
    driver = Driver(outbox)
    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(driver.stop))
    threading.Thread(target=read_orders, args=(loop, driver), name="orders", daemon=True).start()
    # What lives from here on is short-lived; the collector need not walk the rest again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    await driver.run()
    await loop.run_in_executor(None, outbox.close)


def main() -> int:
    """The process. Ctrl-C in the terminal is the console's business, not ours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    oslayer.run_loop(_serve(oslayer.clean_descriptors()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
