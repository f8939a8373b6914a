"""Real llama.cpp servers of three generations: read at rest and at work, asked nothing beyond the list."""

from __future__ import annotations

import asyncio
import bisect
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agenttop.collect.engine.harmless import PROBES
from agenttop.collect.engine.kinds.llamacpp import KIND
from agenttop.collect.engine.watch import EngineWatch
from tests.servers import STEADY, Listener, LlamaServer
from tests.waiting import until_async
from tests.wheels import GENERATIONS

pytestmark = pytest.mark.engine

Wheel = Callable[[str], Path]
StartServer = Callable[..., LlamaServer]
BUILDS = sorted(GENERATIONS)
LEAST_LOOKS = 5
"""More than the ten seconds are taken where the machine is so busy that they bring fewer."""


async def state_of(watch: EngineWatch, state: str = "ok") -> None:
    async def reached() -> bool:
        return (await watch.poll()).sample.state == state

    deadline = time.monotonic() + 30
    while not await reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


class Talker(threading.Thread):
    """Streams completions one after another, and notes when each token came: the client's own count.

    Not chats: builds before September end those of a model with random weights, whose text no template fits.
    """

    def __init__(self, server: LlamaServer) -> None:
        super().__init__(daemon=True)
        self.arrivals: list[float] = []
        self._port = server.port
        self._enough = threading.Event()
        self.start()

    def stop(self) -> None:
        self._enough.set()
        self.join(30)

    def run(self) -> None:
        body = json.dumps({"prompt": "once upon a time", "max_tokens": 1500, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        while not self._enough.is_set():
            # Bytes as they come: six of these share one interpreter, and late stamps are wrong counts.
            with socket.create_connection(("127.0.0.1", self._port), 60) as connection:
                connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
                rest = b""
                while not self._enough.is_set() and (data := connection.recv(65536)):
                    *events, rest = (rest + data).split(b"\n\n")
                    texts = sum(b'"text":"' in event and b'"text":""' not in event for event in events)
                    self.arrivals += [time.monotonic()] * texts
                    if any(event.endswith(b"data: [DONE]") for event in events):
                        break

    def between(self, start: float, end: float) -> int:
        return bisect.bisect(self.arrivals, end) - bisect.bisect(self.arrivals, start)


class Watched:
    """One server under load from two streams, and what is shown of it beside what its clients counted."""

    def __init__(self, build: str, server: LlamaServer) -> None:
        self.build, self.server = build, server
        self.listener = Listener(server.port)
        self.watch = EngineWatch(self.listener.url)
        self.shown = self.counted = 0.0
        self.looks = 0
        self.phases: set[str] = set()

    async def follow(self, seconds: float) -> None:
        await state_of(self.watch)
        talkers = [Talker(self.server) for _ in range(2)]
        await until_async(lambda: all(talker.arrivals for talker in talkers))
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds or (self.looks < LEAST_LOOKS and passed < 45):
            reading = await self.watch.poll()
            sample = reading.sample
            end = sample.t - (sample.age_s or 0)
            self.phases |= {slot.phase for slot in reading.slots}
            # What a slow reply says was true some time before it came, and a floor says that it is one: such
            # looks are not compared.
            prompt = sample.poll_every_s == 1.0 and bool(reading.slots)
            if prompt and not sample.decode_is_floor and sample.decode_tok_s and sample.window_s:
                start = end - sample.window_s
                if start > begun:
                    self.looks += 1
                    self.shown += sample.decode_tok_s * sample.window_s
                    self.counted += sum(talker.between(start, end) for talker in talkers)
            await asyncio.sleep(0.9)
        for talker in talkers:
            talker.stop()
        await self.watch.close()
        self.listener.close()


@pytest.mark.slow
async def test_rates_at_work_agree_with_the_clients_own_count(
    start_llama: StartServer, llama_wheel: Wheel
) -> None:
    """All three at the same time: ten seconds of looks whose windows lie within the load."""
    all_watched = [
        Watched(build, start_llama(shape=STEADY, slots=2, context=4096, wheel=llama_wheel(build)))
        for build in BUILDS
    ]
    await asyncio.gather(*(each.follow(10.0) for each in all_watched))
    allowed = {f"GET {path}" for path in PROBES | KIND.allowed_paths}
    for each in all_watched:
        assert each.looks >= LEAST_LOOKS, each.build
        assert each.shown == pytest.approx(each.counted, rel=0.05), each.build
        assert "decode" in each.phases
        assert set(each.listener.asked) <= allowed, each.build
        assert "GET /slots" in each.listener.asked


@pytest.mark.parametrize("build", BUILDS)
async def test_what_each_build_tells(start_llama: StartServer, llama_wheel: Wheel, build: str) -> None:
    server = start_llama(slots=2, context=1024, wheel=llama_wheel(build))
    watch = EngineWatch(server.url)
    try:
        await asyncio.to_thread(complete, server, 40)
        await state_of(watch)
        reading = await watch.poll()
    finally:
        await watch.close()
    sample = reading.sample
    why = {what.rpartition(":")[2]: missing for what, missing in reasons(watch).items()}
    assert (sample.name, sample.state, sample.pid) == ("llama.cpp", "ok", server.pid)
    assert (sample.slots_total, sample.context_limit_tokens, sample.running) == (2, 512, 0)
    assert (sample.kv_layout, sample.kv_pool_tokens, sample.waiting) == ("split", 1024, 0)
    assert sample.model
    assert sample.quantisation == ("F16" if build != "8672" else None)
    assert ("quantisation" in why) is (build == "8672")
    assert sample.output_tokens_total == 40
    if build == "8672":
        assert (sample.kv_used_tokens, sample.kv_used_fraction) == (None, None)
        assert why["kv_used_tokens"] == "update llama.cpp"
    else:
        assert 40 <= (sample.kv_used_tokens or 0) < 100
    newer = build == "11063"
    assert (sample.cached_tokens_total is not None) is newer
    assert (sample.drafted_tokens_total is not None) is newer
    assert ("prefix_hits_tokens_total" in why) is not newer


def reasons(watch: EngineWatch) -> dict[str, str | None]:
    """What was said to be missing, to its remedy."""
    return {what: frame.fix for what, frame in watch._standing._missing.items()}


def complete(server: LlamaServer, tokens: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = json.dumps({"prompt": "once upon a time", "max_tokens": tokens})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    reply.read()
    connection.close()


@pytest.mark.parametrize("build", ["8672", "10068"])
async def test_a_build_that_its_metrics_keep_awake_falls_asleep_while_it_is_watched(
    start_llama: StartServer, llama_wheel: Wheel, build: str
) -> None:
    """Before August 2026 a scrape starts the idle timer anew: its process's CPU time tells instead."""
    server = start_llama(sleep_idle_s=1, wheel=llama_wheel(build))
    watch = EngineWatch(server.url)
    try:
        await state_of(watch, "asleep")
        await asyncio.to_thread(complete, server, 30)
        assert not server.json("/props")["is_sleeping"]
        awake = await watch.poll()
        assert (awake.sample.state, awake.sample.restarts) == ("ok", 0)
        await state_of(watch, "asleep")
        for _ in range(3):
            assert (await watch.poll()).sample.state == "asleep"
    finally:
        await watch.close()
