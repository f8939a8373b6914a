"""Which engines a session watches: named and found, once each, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from agenttop.access.ways import Ways
from agenttop.collect.discovery import Found
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.registry import Refused, Registry, registry
from agenttop.collect.engine.watch import EngineWatch
from agenttop.model.frames import (
    SCHEMA,
    EngineSample,
    Event,
    Frame,
    GpuSample,
    LatencySample,
    PartSample,
    Session,
)
from agenttop.node import sampling
from agenttop.node.hub import Hub
from agenttop.node.sampling import EngineWatches
from agenttop.oslayer import names_of_this_host
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.view.store import Store
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


async def test_a_server_that_a_front_has_started_is_not_listed_beside_it(watching: Watching) -> None:
    with imitate.serves(imitate.VLLM) as server, imitate.serves(imitate.VLLM) as child:
        watching.found = [
            Found(url=server.url, hint="vLLM"),
            Found(url=child.url, hint="llama.cpp", behind=server.url),
        ]
        await watching.until(lambda: watching.kept.events("engine.up"))
        assert not watching.engines.knows(child.url)
        assert child.asked == []
        assert len(watching.kept.events("engine.found")) == 1


async def test_an_engine_is_known_to_be_behind_the_front_that_names_it(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    with imitate.serves(imitate.VLLM) as front, imitate.serves(imitate.VLLM) as engine:
        told = ["ready"]
        poll = EngineWatch.poll

        async def with_a_part(self: EngineWatch) -> EngineReading:
            reading = await poll(self)
            if self.url != front.url:
                return reading
            part = PartSample(
                t=reading.sample.t,
                engine=front.url,
                part="m",
                role="deployment",
                url=engine.url,
                state=told[-1],
            )
            return msgspec.structs.replace(reading, parts=[part])

        monkeypatch.setattr(EngineWatch, "poll", with_a_part)
        watching.found = [Found(url=front.url, hint="vLLM"), Found(url=engine.url, hint="vLLM")]

        def behind() -> str | None:
            sample = watching.engines.get(engine.url)
            return sample.behind if sample is not None else None

        await watching.until(lambda: behind() == front.url)
        assert watching.engines.get(front.url).behind is None
        told.append("gone")
        await watching.until(lambda: behind() is None)


async def test_something_else_at_the_port_of_an_engine_that_was_found_is_let_go(watching: Watching) -> None:
    with imitate.serves({}) as server:
        watching.found = [Found(url=server.url, hint="vLLM")]
        await watching.until(lambda: watching.kept.events("engine.unsupported"))
        await asyncio.sleep(0.05 * (sampling.GONE_AFTER + 4))
        assert watching.engines.knows(server.url)  # the search still says that it is one
        watching.found = []
        await watching.until(lambda: watching.kept.events("engine.gone"))


async def test_an_engine_of_another_package_that_is_not_used_is_told_once(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Refused("mine", "my-package", "it cannot be loaded")
    known = Registry(registry().kinds, (refused,))
    monkeypatch.setattr(sampling, "registry", lambda: known)
    watching.engines._told_plug_ins = False
    with imitate.serves(imitate.VLLM) as server:
        watching.found = [Found(url=server.url, hint="vLLM")]
        await watching.until(lambda: watching.kept.events("engine.up"))
        await asyncio.sleep(0.3)
    [event] = watching.kept.events("plug-in.refused")
    assert event.severity == "warn"
    assert "my-package" in event.text


async def test_what_is_known_early_is_watched_before_the_search_is_over(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    with imitate.serves(imitate.VLLM) as server:
        known = [Found(url=server.url, hint="vLLM")]

        def search(early: Callable[[list[Found]], None]) -> list[Found]:
            early(known)
            over.wait(20)
            return known

        monkeypatch.setattr(sampling, "find_engines", search)
        try:
            await watching.until(lambda: watching.kept.events("engine.up"))
            assert not over.is_set()
        finally:
            over.set()
    assert len(watching.kept.events("engine.found")) == 1


async def test_one_recording_holds_parts_and_latencies_of_several_engines(tmp_path: Path) -> None:
    path = tmp_path / "several.agenttop"
    recorder = Recorder(path, Session(t=0.0, schema=SCHEMA, session="s", started_unix=0.0, host="h", os="o"))
    hub = Hub(time.monotonic, recorder, str(path))
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    for step in range(3):
        for url in urls:
            hub.publish(
                [
                    EngineSample(t=float(step), engine=url, url=url, name="vLLM", state="ok", running=step),
                    LatencySample(
                        t=float(step), engine=url, measure="ttft", window_s=60.0, count=step, p50_s=0.1
                    ),
                    PartSample(t=float(step), engine=url, part="0", role="rank", running=step),
                    PartSample(t=float(step), engine=url, part="1", role="rank", running=0),
                ]
            )
    await hub.commit()
    hub.close()
    with Recording(path) as recording:
        assert {each.engine for each in recording.of(EngineSample)} == set(urls)
        latencies = [(each.engine, each.count) for each in recording.of(LatencySample)]
        assert latencies == [(url, step) for step in range(3) for url in urls]
        # A part is written when something of it has changed: rank 0 three times, rank 1 once.
        assert len(recording.of(PartSample)) == 2 * (3 + 1)
        store = Store()
        store.feed(recording.frames(0.0, 9.0), 3.0)
    assert {url: store.latencies[url]["ttft"].count for url in urls} == dict.fromkeys(urls, 2)
    assert all(set(store.parts[url]) == {("rank", "0"), ("rank", "1")} for url in urls)
