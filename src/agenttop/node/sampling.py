"""What the node looks at, and how often: host and GPUs in one thread, each engine in a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from agenttop.access.ways import Access, Ways
from agenttop.collect.discovery import Found, find_engines, names_of_this_host
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.gpu.base import GpuAdapter
from agenttop.collect.gpu.detect import detect
from agenttop.collect.host import HostSampler
from agenttop.collect.own import OwnCost
from agenttop.collect.schedule import Ticker
from agenttop.errors import UsageError
from agenttop.model.clock import Clock
from agenttop.model.frames import AgentSample, EngineSample, Frame, Missing, SlotSample
from agenttop.model.url import normalise
from agenttop.node.hub import Hub
from agenttop.node.join import Joiner

DISCOVERY_S = 10.0
GONE_AFTER = 6
"""Searches in a row that miss an engine which was only found, until it is not watched any more."""


class HostWatch:
    """Host, GPUs and the node's own cost. All sampling happens in one thread: psutil keeps the base of its
    differences per thread, and a GPU library must never block the event loop."""

    def __init__(self, clock: Clock, now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")
        self._host: HostSampler | None = None
        self._own: OwnCost | None = None
        self._gpus: list[GpuAdapter] = []

    async def open(self) -> list[Missing]:
        """Find the GPUs and take the base of the first rates."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def sample(self) -> list[Frame]:
        """One look at everything."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._sample)

    async def close(self) -> None:
        """Let go of the GPU libraries; a call that hangs in a driver is not waited for."""
        with contextlib.suppress(TimeoutError):
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.run_in_executor(self._thread, self._close), 2.0)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> list[Missing]:
        self._host = HostSampler(self._clock)
        self._own = OwnCost("node")
        self._gpus, missing = detect(self._now())
        return missing

    def _sample(self) -> list[Frame]:
        t = self._now()
        frames: list[Frame] = []
        if self._host is not None:
            frames.append(self._host.sample(t))
        for adapter in self._gpus:
            frames.extend(adapter.sample(t))
        if self._own is not None:
            frames.append(self._own.sample(t))
        return frames

    def _close(self) -> None:
        for adapter in self._gpus:
            adapter.close()


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
        self._joiners: dict[str, Joiner] = {}
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
            found = await loop.run_in_executor(None, find_engines)
            for each in found:
                # An engine the user named by another address of this host is not listed twice.
                if not any(each.is_at(url, names) for url in self._watches):
                    self.add(each.url, load_allowed=False)
                    self._hub.event("engine.found", f"found {each.hint} at {each.url}", subject=each.url)
            await self._let_go(found)
            await ticker.wait()

    async def _let_go(self, found: list[Found]) -> None:
        """Stop watching engines that were only found, and have been gone for a while."""
        here = {each.url for each in found}
        for url, watch in list(self._watches.items()):
            sample = self.samples.get(url)
            gone = (
                sample is not None and sample.state == "down" and url not in here and not watch.load_allowed
            )
            self._missed[url] = self._missed.get(url, 0) + 1 if gone else 0
            if self._missed[url] < GONE_AFTER or sample is None:
                continue
            for known in (self._watches, self.samples, self._joiners, self._missed):
                known.pop(url, None)
            task = self._tasks.pop(url)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await watch.close()
            text = f"{sample.name} at {url} is gone, and not watched any more"
            self._hub.event("engine.gone", text, subject=url)

    async def close(self) -> None:
        """Stop looking."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for watch in self._watches.values():
            await watch.close()

    async def _follow(self, watch: EngineWatch) -> None:
        ticker = Ticker(self._interval_s)
        joiner = self._joiners[watch.url] = Joiner()
        while True:
            reading = await watch.poll()
            self.samples[watch.url] = reading.sample
            slots: list[SlotSample] = joiner.join(reading.slots, self._agents_of(watch.url))
            figures = [reading.sample, *slots, *reading.parts, *reading.latencies, *reading.gpus]
            self._hub.publish([*figures, *reading.missing, *reading.events])
            await ticker.wait()

    def _agents_of(self, url: str) -> list[AgentSample]:
        return [agent for agent in self._agents() if agent.engine == url]
