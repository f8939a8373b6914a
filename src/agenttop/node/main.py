"""The node: composes collecting, directing and recording, and serves consoles."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

import agenttop
from agenttop import paths
from agenttop.collect.host import host_facts
from agenttop.collect.schedule import Ticker
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.clock import SessionClock, SystemClock
from agenttop.model.frames import SCHEMA, Bye, Event, Session
from agenttop.node import demo
from agenttop.node.director import Director
from agenttop.node.doors import Doorman
from agenttop.node.experiment import Experiments
from agenttop.node.hub import Hub, Listener
from agenttop.node.machine import MachineWatch
from agenttop.node.pipes import PipeListener, read_lines
from agenttop.node.sampling import EngineWatches
from agenttop.node.settings import NodeSettings, recording_path, ways_of
from agenttop.node.wishes import Wishes
from agenttop.oslayer import clean_descriptors, ignore_hangup, run_loop, stop_signals
from agenttop.record.write import Recorder
from agenttop.wire.codec import encode

ANNOUNCE_S = 10.0
"""How often the recording's size and the session's file are brought up to date."""


LEAST_INTERVAL_S = 0.2
"""Engines that run faster than life are looked at more often, but no more often than this (real seconds)."""

FIRST_WINDOW_S = 0.3
"""The first rates are taken over at least this long: over a few milliseconds they would be noise."""


class Node:
    """One session, from its first frame to its last."""

    def __init__(self, settings: NodeSettings, stream: int | None) -> None:
        self._settings = settings
        self._clock = SystemClock()
        speedup, simulated = _simulated(settings)
        self._session_clock = SessionClock(self._clock, rate=speedup)
        self._now = self._session_clock.now
        self.session = msgspec.structs.replace(
            _new_session(settings, self._clock.wall()), speedup=speedup, simulated=simulated
        )
        recorder = None
        if settings.record:
            path = recording_path(settings, self.session.session, paths.recordings()).absolute()
            self.session = msgspec.structs.replace(self.session, recording=str(path))
            recorder = Recorder(path, self.session)
        self.hub = Hub(self._now, recorder, self.session.recording)
        ways = ways_of(settings)
        self._engines = EngineWatches(
            self.hub,
            self._now,
            ways=ways,
            interval_s=max(min(settings.interval_s, LEAST_INTERVAL_S), settings.interval_s / speedup),
            rate=speedup,
            agents=lambda: list(self.director.agents.values()),
        )
        self._host = MachineWatch(self._clock, self._now, self._engines.pids)
        self.director = Director(
            self.hub,
            self._now,
            origin=self._session_clock.origin,
            rate=speedup,
            ways=ways,
            engine=self._engines.get,
            knows=self._engines.knows,
            slot_of=self._engines.slot_of,
        )
        self._wishes = Wishes(
            self.hub,
            self._now,
            self.director,
            Experiments(self.hub, self._now, self.director, self.session),
            self._engines,
            self.end,
            self._let_console_go,
            rate=speedup,
        )
        folder, self._doorless = _folder_of_doors()
        self._doorman = Doorman(
            folder, self.session, enter=self._enter, leave=self._leave, line=self._wishes.line
        )
        self._stream = stream
        self._pipe: PipeListener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[str] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._demo: demo.Engine | None = None

    async def serve(self) -> None:
        """Run the session to its end."""
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        self._catch_signals()
        self.hub.publish([self.session])
        self.hub.announce_recording()
        # Before anybody is listened to: the first wish may be a run against one of them.
        for url in self._settings.urls:
            self._engines.add(url, load_allowed=True)
        if self._stream is not None:
            self._pipe = PipeListener(self._stream)
            self.hub.join(self._pipe)
            read_lines(
                0, lambda line: self._call(self._wishes.line, line), lambda: self._call(self._pipe_ended)
            )
        await self._open_door()
        self._spawn(self._watch_host())
        self._spawn(self._keep_books())
        if self._settings.demo:
            self._spawn(self._start_demo())
        if self._settings.discover and not self._settings.demo:
            self._spawn(self._engines.discover())
        why = await self._end
        await self._close(why)

    async def _open_door(self) -> None:
        """Let `agenttop attach` in; where that cannot be, the session goes on and says so."""
        try:
            if self._doorless is None:
                await self._doorman.open()
        except OSError as error:
            self._doorless = f"its folder cannot be written: {error.strerror or error}"
        if self._doorless is not None:
            text = f"no other console can attach to this session: {self._doorless}"
            self.hub.event("session.no-door", text, severity="warn")

    def end(self, why: str) -> None:
        """End the session in order; the first reason counts."""
        if self._end is not None and not self._end.done():
            self._end.set_result(why)

    async def _close(self, why: str) -> None:
        self._doorman.update(agents=0)
        await self.director.close()
        await self._wishes.close()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._engines.close()
        if self._demo is not None:
            await asyncio.to_thread(self._demo.stop)
        await self._host.close()
        self.hub.publish([Event(t=self._now(), event="session.end", text=f"the session is over: {why}")])
        await self.hub.commit()
        self.hub.announce_recording()
        self.hub.close()
        self.hub.publish([Bye(t=self._now(), why=why)])
        await self._doorman.close()
        if self._pipe is not None:
            await asyncio.to_thread(self._pipe.close)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._jobs.add(task)
        task.add_done_callback(self._job_done)
        return task

    def _job_done(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        # A part of the node broke. The session goes on without it, and says so.
        error = task.exception()
        self.hub.event(
            "node.fault", f"a part of the node stopped: {type(error).__name__}: {error}", severity="bad"
        )

    def _call(self, function: Any, *arguments: Any) -> None:
        """From a thread into the loop; after the loop has ended there is nobody to call."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _catch_signals(self) -> None:
        ignore_hangup()
        for number in stop_signals():
            signal.signal(number, lambda received, _frame: self._call(self.end, _ended_by(received)))

    # What is looked at

    async def _watch_host(self) -> None:
        self.hub.publish(await self._host.open())
        await asyncio.sleep(FIRST_WINDOW_S)
        ticker = Ticker(self._settings.interval_s)
        while True:
            self.hub.publish(await self._host.sample())
            await ticker.wait()

    async def _keep_books(self) -> None:
        """Commit the recording once a second; keep the session's file true."""
        ticker = Ticker(1.0)
        announced = self._now()
        while True:
            await ticker.wait()
            await self.hub.commit()
            plan = self.director.plan
            self._doorman.update(
                engines=sorted(self._engines.samples),
                agents=self.director.target,
                profile=plan.profile if plan else None,
                consoles=self.hub.listeners,
            )
            if self._now() - announced >= ANNOUNCE_S * self._session_clock.rate:
                announced = self._now()
                self.hub.announce_recording()
            self._end_if_alone()

    async def _start_demo(self) -> None:
        self.hub.event("demo.starting", demo.announcement(self._settings))
        starting = asyncio.ensure_future(asyncio.to_thread(demo.start, self._settings))
        try:
            # Shielded: an engine that is being started when the session ends must still be stopped.
            self._demo = await asyncio.shield(starting)
        except AgenttopError as error:
            self.hub.event("demo.failed", str(error), severity="bad")
            self.end(f"the demo engine did not start: {error}")
            return
        except asyncio.CancelledError:
            with contextlib.suppress(AgenttopError):
                self._demo = await starting
            raise
        self._engines.add(self._demo.url, load_allowed=True)
        self._wishes.obey(demo.load(self._demo.url, self._settings))

    # Consoles and their wishes

    def _enter(self, listener: Listener) -> None:
        self.hub.join(listener)
        self.hub.event("console.attached", "a console attached")

    def _leave(self, listener: Listener) -> None:
        self.hub.part(listener)
        self.hub.event("console.left", "a console left")
        self._end_if_alone()

    def _let_console_go(self) -> None:
        """The console on stdin has said that it leaves: its hanging up is no news then."""
        if self._pipe is not None:
            self.hub.part(self._pipe)
        self._end_if_alone()

    def _pipe_ended(self) -> None:
        if self._pipe is not None:
            self.hub.part(self._pipe)
        if self._settings.demo:
            self.end("the console is gone, and a demo ends with it")
            return
        if self.director.active or self._wishes.running:
            self.hub.event(
                "console.left", "the console is gone; the session goes on until its agents are stopped"
            )
        self._end_if_alone()

    def _end_if_alone(self) -> None:
        """Nobody watches and nothing runs: nothing is left to do."""
        if self.hub.listeners == 0 and not self._wishes.running and not self.director.active:
            self.end("no console and no agents are left")


def _folder_of_doors() -> tuple[Path, str | None]:
    """Where doors are, or why there can be none."""
    try:
        return paths.sessions(), None
    except AgenttopError as error:
        return Path(), str(error)


def _ended_by(number: int) -> str:
    return f"ended by signal {signal.Signals(number).name}"


def _simulated(settings: NodeSettings) -> tuple[float, str | None]:
    """How many times faster than life the session runs, and the host its engine stands for.

    Asked before anything else, because every time of the session follows from it. Engines named together
    must agree. Raises UsageError when they do not.
    """
    if settings.demo:
        return demo.simulated(settings)
    from agenttop.collect.engine.kinds.simulated import speedup_of

    answers = {url: speedup_of(url) for url in settings.urls}
    speeds = {speed for speed, _ in answers.values()}
    if len(speeds) > 1:
        told = ", ".join(f"{url} {speed:g}x" for url, (speed, _) in answers.items())
        raise UsageError(f"these engines run at different speeds ({told})", "watch them in separate sessions")
    return (speeds or {1.0}).pop(), next((host for _, host in answers.values() if host), None)


def _new_session(settings: NodeSettings, wall: float) -> Session:
    facts: dict[str, Any] = host_facts()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall))
    host = str(facts["host"])
    return Session(
        t=0.0,
        schema=SCHEMA,
        session=f"{stamp}-{_file_name(host)}-{secrets.token_hex(2)}",
        started_unix=wall,
        agenttop=agenttop.__version__,
        python=platform.python_version(),
        demo=settings.demo,
        node_pid=os.getpid(),
        urls=list(settings.urls),
        **facts,
    )


def _file_name(host: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in host)[:24] or "host"


def main(settings: NodeSettings) -> int:
    """Serve one session on stdin and stdout. Exit code 0, or 1 with one sentence on stderr."""
    stream = clean_descriptors()
    try:
        node = Node(settings, stream)
    except AgenttopError as error:
        # The console reads frames, so the reason goes out as one, besides on stderr.
        os.write(stream, encode(Bye(t=0.0, why=str(error))))
        sys.stderr.write(f"agenttop: {error}\n")
        return error.exit_code
    run_loop(node.serve())
    return 0
