"""The engines the node looks at, each in a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from agenttop.access.ways import Access, Ways
from agenttop.collect.discovery import Found, find_engines
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.registry import registry
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.schedule import Ticker
from agenttop.collect.weights import WeightsOf
from agenttop.errors import UsageError
from agenttop.model.frames import AgentSample, EngineSample, SlotSample
from agenttop.model.url import normalise
from agenttop.node.hub import Hub
from agenttop.node.join import Joiner
from agenttop.oslayer import names_of_this_host

DISCOVERY_S = 5.0
"""An engine is on the screen within 10 s of its start."""
GONE_AFTER = 12
"""Searches in a row that miss an engine which was only found, until it is not watched any more."""


class EngineWatches:
    """All engines of a session: those named, and those found on this host."""

    def __init__(
        self,
        hub: Hub,
        now: Callable[[], float],
        *,
        ways: Ways,
        interval_s: float,
        rate: float = 1.0,
        agents: Callable[[], list[AgentSample]],
    ) -> None:
        self._hub = hub
        self._now = now
        self._ways = ways
        self._interval_s = interval_s
        self._rate = rate
        self._agents = agents
        self._watches: dict[str, EngineWatch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._missed: dict[str, int] = {}
        """Searches in a row that have not found an engine."""
        self._behind: dict[str, str] = {}
        """Engines that a front passes requests on to, by what the front says, with the front."""
        self._told_plug_ins = False
        self._joiners: dict[str, Joiner] = {}
        self._weights: dict[str, WeightsOf] = {}
        self.samples: dict[str, EngineSample] = {}

    def add(self, url: str, *, load_allowed: bool) -> None:
        """Watch an engine from now on. Raises UsageError for something that is no URL.

        `Ways` says which key it gets: one found on the host might be anybody's.
        """
        url = normalise(url)
        if url in self._watches:
            return
        access = self._access(url)
        watch = EngineWatch(
            url,
            access=access,
            now=self._now,
            load_allowed=load_allowed,
            metrics=access.metrics,
            rate=self._rate,
        )
        self._watches[watch.url] = watch
        sizes = access.weights_bytes, access.active_weights_bytes
        self._weights[watch.url] = WeightsOf(watch.url, *sizes)
        self._tasks[watch.url] = asyncio.create_task(self._follow(watch), name=f"engine {watch.url}")

    def _access(self, url: str) -> Access:
        """How an engine is reached; where its key or CA cannot be had, that is told, and it goes without."""
        try:
            return self._ways.to(url)
        except UsageError as error:
            self._hub.event("engine.no-key", str(error), severity="warn", subject=url)
            return self._ways.bare(url)

    def get(self, url: str) -> EngineSample | None:
        """The newest sample of an engine, by its URL."""
        return self.samples.get(url)

    def pids(self) -> dict[str, int]:
        """Process id of each engine that runs on this host, by its URL, as far as known."""
        return {url: sample.pid for url, sample in self.samples.items() if sample.pid is not None}

    def slot_of(self, agent: AgentSample) -> int | None:
        """The slot of its engine that serves an agent's request."""
        joiner = self._joiners.get(agent.engine)
        return joiner.slot_of(agent) if joiner is not None else None

    def knows(self, url: str) -> bool:
        """Whether this engine is watched; its first sample may still be on its way."""
        return url in self._watches

    def allow(self, url: str) -> None:
        """The user has confirmed that load may go there."""
        watch = self._watches.get(url)
        if watch is None or watch.load_allowed:
            return
        watch.load_allowed = True
        sample = self.samples.get(url)
        if sample is not None:
            self.samples[url] = msgspec.structs.replace(sample, load_allowed=True)
        self._hub.event("engine.confirmed", f"load may go to {url}", source="you", subject=url)

    async def discover(self) -> None:
        """Look for engines on this host, again and again, off the event loop."""
        loop = asyncio.get_running_loop()
        names = await loop.run_in_executor(None, names_of_this_host)
        ticker = Ticker(DISCOVERY_S)
        while True:
            found = await loop.run_in_executor(None, find_engines, partial(self._hand_over, loop, names))
            self._tell_plug_ins()
            self._take(names, found)
            await self._let_go(found)
            await ticker.wait()

    def _hand_over(self, loop: asyncio.AbstractEventLoop, names: frozenset[str], found: list[Found]) -> None:
        """What is known before ports are asked; from the thread of the search."""
        loop.call_soon_threadsafe(self._take, names, found)

    def _take(self, names: Collection[str], found: list[Found]) -> None:
        """Watch what is new. A server that a front has started is the front's to tell."""
        for each in found:
            # An engine the user named by another address of this host is not listed twice.
            if each.behind is not None or any(each.is_at(url, names) for url in self._watches):
                continue
            with contextlib.suppress(UsageError):  # a path that is none
                self.add(each.url, load_allowed=False)
                self._hub.event("engine.found", f"found {each.hint} at {each.url}", subject=each.url)

    def _tell_plug_ins(self) -> None:
        """Say once which engines of other packages are not used."""
        if self._told_plug_ins:
            return
        self._told_plug_ins = True
        for refused in registry().refused:
            text = f"the engine {refused.entry} of the package {refused.package} is not used: {refused.why}"
            self._hub.event("plug-in.refused", text, severity="warn")

    async def _let_go(self, found: list[Found]) -> None:
        """Stop watching engines that were only found, and have been gone for a while."""
        here = {each.url for each in found}
        for url, watch in list(self._watches.items()):
            sample = self.samples.get(url)
            lost = sample is not None and sample.state in ("down", "unsupported")
            gone = lost and url not in here and not watch.load_allowed
            self._missed[url] = self._missed.get(url, 0) + 1 if gone else 0
            if self._missed[url] < GONE_AFTER or sample is None:
                continue
            for known in (self._watches, self.samples, self._joiners, self._missed):
                known.pop(url, None)
            self._behind = {other: front for other, front in self._behind.items() if front != url}
            task = self._tasks.pop(url)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await watch.close()
            await self._weights.pop(url).close()
            text = f"{sample.name} at {url} is gone, and not watched any more"
            self._hub.event("engine.gone", text, subject=url)

    async def close(self) -> None:
        """Stop looking."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for watch in self._watches.values():
            await watch.close()
        for weights in self._weights.values():
            await weights.close()

    async def _follow(self, watch: EngineWatch) -> None:
        ticker = Ticker(self._interval_s)
        joiner = self._joiners[watch.url] = Joiner()
        while True:
            reading = await watch.poll()
            self._tell_plug_ins()
            sample, unweighed = self._weights[watch.url].add(self._placed(reading))
            self.samples[watch.url] = sample
            slots: list[SlotSample] = joiner.join(reading.slots, self._agents_of(watch.url))
            figures = [sample, *slots, *reading.parts, *reading.latencies, *reading.gpus]
            self._hub.publish([*figures, *reading.missing, *unweighed, *reading.events])
            await ticker.wait()

    def _placed(self, reading: EngineReading) -> EngineSample:
        """The sample, with the front that leads to this engine where there is one."""
        sample = reading.sample
        for part in reading.parts:
            if part.url is not None and part.url != sample.engine:
                if part.state == "gone":
                    self._behind.pop(part.url, None)
                else:
                    self._behind[part.url] = sample.engine
        front = self._behind.get(sample.engine)
        return msgspec.structs.replace(sample, behind=front) if front and sample.behind is None else sample

    def _agents_of(self, url: str) -> list[AgentSample]:
        return [agent for agent in self._agents() if agent.engine == url]
