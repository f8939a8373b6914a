"""Which engines a session watches: named and found, once each, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest

from agenttop.access.ways import Ways
from agenttop.collect.discovery import Found, names_of_this_host
from agenttop.model.frames import EngineSample, Event, Frame, GpuSample
from agenttop.node import sampling
from agenttop.node.hub import Hub
from agenttop.node.sampling import EngineWatches
from agenttop.wire.codec import decode_frame
from tests.collect import imitations as imitate
from tests.simulated import Simulated


class Kept:
    """A listener that keeps what it is offered."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def offer(self, lines: bytes) -> None:
        decoded = [decode_frame(line) for line in lines.splitlines()]
        self.frames += [frame for frame in decoded if isinstance(frame, Frame)]

    def events(self, name: str) -> list[Event]:
        return [frame for frame in self.frames if isinstance(frame, Event) and frame.event == name]

    def engines(self) -> set[str]:
        return {frame.engine for frame in self.frames if isinstance(frame, EngineSample)}


class Watching:
    """Engines as a node watches them, and what was published."""

    def __init__(self) -> None:
        self.kept = Kept()
        hub = Hub(time.monotonic, None, None)
        hub.join(self.kept)
        self.found: list[Found] = []
        self.engines = EngineWatches(hub, time.monotonic, ways=Ways(), interval_s=0.05, agents=list)

    async def until(self, look: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not look():
                await asyncio.sleep(0.02)


@pytest.fixture
async def watching(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watching]:
    monkeypatch.setattr(sampling, "DISCOVERY_S", 0.05)
    session = Watching()
    monkeypatch.setattr(sampling, "find_engines", lambda early: list(session.found))
    search = asyncio.create_task(session.engines.discover())
    yield session
    search.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await search
    await session.engines.close()


async def test_an_engine_that_was_only_found_is_let_go_when_it_is_gone(watching: Watching) -> None:
    with imitate.serves(imitate.VLLM) as server:
        watching.found = [Found(url=server.url, hint="vLLM")]
        await watching.until(lambda: watching.kept.events("engine.up"))
    watching.found = []
    await watching.until(lambda: watching.kept.events("engine.gone"))
    [gone] = watching.kept.events("engine.gone")
    assert gone.subject == server.url
    assert "vLLM" in gone.text
    assert not watching.engines.knows(server.url)
    assert watching.engines.get(server.url) is None
    told = len(watching.kept.frames)
    await asyncio.sleep(0.2)
    assert len(watching.kept.frames) == told


async def test_one_that_comes_back_is_found_again(watching: Watching) -> None:
    with imitate.serves(imitate.VLLM) as server:
        watching.found = [Found(url=server.url, hint="vLLM")]
        await watching.until(lambda: watching.kept.events("engine.up"))
    watching.found = []
    await watching.until(lambda: watching.kept.events("engine.gone"))
    with imitate.serves(imitate.VLLM) as other:
        watching.found = [Found(url=other.url, hint="vLLM")]
        await watching.until(lambda: len(watching.kept.events("engine.found")) == 2)


async def test_an_engine_that_was_named_stays_listed(watching: Watching) -> None:
    with imitate.serves(imitate.VLLM) as server:
        watching.engines.add(server.url, load_allowed=True)
        await watching.until(lambda: watching.kept.events("engine.up"))
    await watching.until(lambda: watching.kept.events("engine.down"))
    await asyncio.sleep(0.05 * (sampling.GONE_AFTER + 4))
    assert watching.kept.events("engine.gone") == []
    assert watching.engines.knows(server.url)


async def test_an_engine_named_by_another_address_of_this_host_is_not_listed_twice(
    watching: Watching,
) -> None:
    with imitate.serves(imitate.VLLM) as server:
        port = server.url.rpartition(":")[2]
        named = f"http://{socket.gethostname().lower()}:{port}"
        watching.engines.add(named, load_allowed=True)
        watching.found = [Found(url=server.url, hint="vLLM", everywhere=True)]
        await watching.until(lambda: named in watching.kept.engines())
        await asyncio.sleep(0.3)
        assert watching.kept.events("engine.found") == []
        # One that listens on loopback alone is another one.
        watching.found = [Found(url=server.url, hint="vLLM")]
        await watching.until(lambda: watching.kept.events("engine.found"))


def test_by_which_names_this_host_is_known() -> None:
    names = names_of_this_host()
    assert {"127.0.0.1", "localhost", socket.gethostname().lower()} <= names
    found = Found(url="http://127.0.0.1:8000", hint="vLLM", everywhere=True)
    assert found.is_at("http://127.0.0.1:8000", frozenset())
    assert found.is_at("http://192.168.1.5:8000", frozenset({"192.168.1.5"}))
    assert not found.is_at("http://192.168.1.5:8001", frozenset({"192.168.1.5"}))
    assert not found.is_at("http://192.168.1.6:8000", frozenset({"192.168.1.5"}))


async def test_the_gpus_of_a_simulated_engine_are_published_with_it(
    watching: Watching, start_sim_here: Callable[..., Simulated]
) -> None:
    server = start_sim_here()
    watching.engines.add(server.url, load_allowed=True)
    await watching.until(lambda: any(isinstance(frame, GpuSample) for frame in watching.kept.frames))
    gpu = next(frame for frame in watching.kept.frames if isinstance(frame, GpuSample))
    assert gpu.gpu == f"sim:127.0.0.1:{server.port}/0"
