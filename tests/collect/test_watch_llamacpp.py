"""Watching a real llama.cpp server while it works, stalls, sleeps, dies and comes back."""

from __future__ import annotations

import asyncio
import bisect
import http.client
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agenttop.collect.engine import http as engine_http
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.watch import EngineWatch
from tests.access import with_key
from tests.servers import STEADY, LlamaServer
from tests.waiting import until, until_async

pytestmark = pytest.mark.engine

Start = Callable[..., EngineWatch]
StartServer = Callable[..., LlamaServer]


@pytest.fixture
async def watch() -> AsyncIterator[Start]:
    started: list[EngineWatch] = []

    def start(server: LlamaServer, **options: Any) -> EngineWatch:
        made = EngineWatch(server.url, **options)
        started.append(made)
        return made

    yield start
    for each in started:
        await each.close()


async def polled(
    watch: EngineWatch, wanted: Callable[[EngineReading], bool], every_s: float = 0.05, within_s: float = 30.0
) -> list[EngineReading]:
    """Poll until a reading is as wanted; returns all of them."""
    readings = [await watch.poll()]
    deadline = time.monotonic() + within_s
    while not wanted(readings[-1]):
        assert time.monotonic() < deadline, f"in vain; the last was {readings[-1]}"
        await asyncio.sleep(every_s)
        readings.append(await watch.poll())
    return readings


def in_state(state: str) -> Callable[[EngineReading], bool]:
    return lambda reading: reading.sample.state == state


def events(readings: list[EngineReading]) -> list[str]:
    return [event.event for reading in readings for event in reading.events]


class Stream(threading.Thread):
    """One streamed request that notes when each token arrived: the client's own count."""

    def __init__(self, server: LlamaServer, text: str, tokens: int) -> None:
        super().__init__(daemon=True)
        self.arrivals: list[float] = []
        self._port = server.port
        message = {"role": "user", "content": text}
        self._body = json.dumps({"messages": [message], "max_tokens": tokens, "stream": True})
        self._enough = threading.Event()
        self.start()

    def stop(self) -> None:
        self._enough.set()
        self.join(60)

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("POST", "/v1/chat/completions", self._body, {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if b'"content":"' in line:
                self.arrivals.append(time.monotonic())
            if self._enough.is_set():
                break
        connection.close()

    def between(self, start: float, end: float) -> int:
        return bisect.bisect(self.arrivals, end) - bisect.bisect(self.arrivals, start)


async def test_phases_of_a_request(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(shape=STEADY, slots=2, context=4096, batch=32)
    watched = watch(server)
    first = (await polled(watched, in_state("ok")))[-1]
    assert [slot.phase for slot in first.slots] == ["idle", "idle"]
    assert (first.sample.running, first.sample.kv_used_tokens, first.sample.waiting) == (0, 0, 0)
    assert (first.sample.pid, first.sample.slots_total) == (server.pid, 2)
    assert first.sample.context_limit_tokens == 2048
    assert first.sample.model

    request = server.background_chat("word " * 150, max_tokens=150)
    readings = await polled(
        watched, lambda r: any(s.phase == "decode" and s.decode_tok_s for s in r.slots), 0.01
    )
    busy = [next(s for s in r.slots if s.phase != "idle") for r in readings if r.sample.running == 1]
    assert len({slot.task for slot in busy}) == 1
    prefill = [slot for slot in busy if slot.phase == "prefill"]
    assert prefill, "a prompt of 750 tokens in batches of 32 is seen in prefill"
    steps = [slot.prefilled_tokens for slot in prefill]
    assert steps == sorted(steps)
    assert max(slot.prefill_tok_s or 0 for slot in prefill) > 0
    assert {slot.decoded_tokens for slot in prefill} == {0}
    decode = busy[-1]
    assert decode.decode_tok_s > 0
    assert decode.context_tokens - decode.decoded_tokens == pytest.approx(750, abs=80)
    assert decode.decoded_tokens + decode.remaining_tokens == 150
    assert readings[-1].sample.kv_active_tokens == decode.context_tokens
    assert readings[-1].sample.prefill_tok_s > 0

    readings = await polled(watched, lambda r: r.sample.running == 0)
    request.join()
    idle = readings[-1]
    assert idle.sample.kv_idle_tokens == idle.sample.kv_used_tokens > 750 + 140
    assert idle.sample.kv_active_tokens == 0
    assert idle.sample.kv_layout == "split"
    assert idle.sample.kv_pool_tokens == 4096
    assert idle.sample.kv_used_fraction == pytest.approx(idle.sample.kv_used_tokens / 4096)
    done = next(slot for slot in idle.slots if slot.context_tokens)
    assert (done.phase, done.decode_tok_s, done.decoded_tokens) == ("idle", None, None)


@pytest.mark.slow
async def test_rates_agree_with_the_clients_own_counts(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(shape=STEADY, slots=2, context=4096)
    watched = watch(server)
    await polled(watched, in_state("ok"))
    streams = [Stream(server, f"agent {number} says", 1900) for number in range(2)]
    await until_async(lambda: all(stream.arrivals for stream in streams))
    begun = time.monotonic()
    compared: list[tuple[float, float]] = []
    per_slot: list[tuple[float, float]] = []
    while all(stream.is_alive() for stream in streams) and len(compared) < 15:
        reading = await watched.poll()
        sample = reading.sample
        end = sample.t - (sample.age_s or 0)
        if not reading.slots:
            continue  # no news: this machine is busy
        if sample.decode_tok_s and sample.window_s and end - sample.window_s > begun + 0.2:
            start = end - sample.window_s
            compared.append(
                (sample.decode_tok_s, sum(s.between(start, end) for s in streams) / sample.window_s)
            )
            rates = [slot.decode_tok_s for slot in reading.slots if slot.decode_tok_s]
            per_slot.append((sum(rates), sample.decode_tok_s))
        await asyncio.sleep(0.2)
    for stream in streams:
        stream.stop()
    if len(compared) < 3:
        pytest.skip("this machine decodes too fast for a window of steady decoding")
    ours, theirs = (sum(pair[side] for pair in compared) for side in (0, 1))
    assert ours == pytest.approx(theirs, rel=0.05)
    assert sum(a for a, _ in per_slot) == pytest.approx(sum(b for _, b in per_slot), rel=0.05)


@pytest.mark.slow
async def test_short_requests_one_after_another_are_counted_to_the_last_token(
    start_llama: StartServer, watch: Start
) -> None:
    """Each ends between two looks; what the looks miss the server's own total has."""
    server = start_llama(shape=STEADY)
    watched = watch(server)
    await watched.poll()
    stop = threading.Event()
    counted: list[int] = []

    def talk() -> None:
        while not stop.is_set():
            counted.append(server.chat(max_tokens=70)["usage"]["completion_tokens"])

    talkers = [threading.Thread(target=talk) for _ in range(3)]
    begun = time.monotonic()
    for talker in talkers:
        talker.start()
    rates: list[float] = []
    while time.monotonic() < begun + 10.0:
        await asyncio.sleep(0.9)
        sample = (await watched.poll()).sample
        if not sample.decode_is_floor and time.monotonic() > begun + 4.0:  # the whole window lay within it
            rates.append(sample.decode_tok_s or 0.0)
    stop.set()
    for talker in talkers:
        await asyncio.to_thread(talker.join)
    real = sum(counted) / (time.monotonic() - begun)
    assert rates, "the account was settled now and then"
    # The machine's own speed varies while it runs; the exact account is tested on the meter.
    assert sum(rates) / len(rates) == pytest.approx(real, rel=0.35)


async def test_more_requests_than_slots_wait(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(shape=STEADY, slots=1, context=2048)
    watched = watch(server)
    await polled(watched, in_state("ok"))
    requests = [server.background_chat(f"agent {number}", max_tokens=1500) for number in range(3)]
    reading = (await polled(watched, lambda r: r.sample.waiting == 2))[-1]
    assert reading.sample.running == 1
    for request in requests:
        request.cancel()
    reading = (await polled(watched, lambda r: r.sample.running == 0 and r.sample.waiting == 0))[-1]
    assert reading.slots[0].phase == "idle"


@pytest.mark.parametrize(("unified", "layout", "limit"), [(True, "unified", 2048), (False, "split", 512)])
async def test_how_slots_share_the_cache(
    start_llama: StartServer, watch: Start, unified: bool, layout: str, limit: int
) -> None:
    server = start_llama(unified=unified, context=2048, slots=4)
    server.chat("one", max_tokens=100)
    reading = (await polled(watch(server), in_state("ok")))[-1]
    sample = reading.sample
    assert (sample.kv_layout, sample.kv_pool_tokens, sample.context_limit_tokens) == (layout, 2048, limit)
    assert 100 < sample.kv_used_tokens < 200

    blind = (await polled(watch(server, polls_host=False), in_state("ok")))[-1]
    assert (blind.sample.kv_layout, blind.sample.kv_pool_tokens, blind.sample.pid) == (None, None, None)
    assert blind.sample.kv_used_tokens == sample.kv_used_tokens
    told = {frame.what: frame for frame in blind.missing}
    assert "engine's host" in told[f"{server.url}:kv_layout"].fix


async def test_killed_and_started_again_on_the_same_port(start_llama: StartServer, watch: Start) -> None:
    server = start_llama()
    server.chat("hello", max_tokens=20)
    watched = watch(server)
    await polled(watched, in_state("ok"))
    server.kill()
    down = await polled(watched, in_state("down"))
    assert "nothing listens" in down[-1].sample.note
    assert down[-1].sample.kv_used_tokens is None
    assert events(down) == ["engine.down"]
    again = start_llama(port=server.port)
    back = await polled(watched, in_state("ok"))
    assert events(back) == ["engine.restart"]
    assert (back[-1].sample.restarts, back[-1].sample.pid) == (1, again.pid)
    assert back[-1].sample.kv_used_tokens == 0


async def test_a_restart_between_two_looks_is_noticed(start_llama: StartServer, watch: Start) -> None:
    server = start_llama()
    server.chat("hello", max_tokens=20)
    watched = watch(server)
    assert (await polled(watched, in_state("ok")))[-1].sample.output_tokens_total == 20
    server.kill()
    again = start_llama(port=server.port)
    readings = [await watched.poll()]
    readings += await polled(watched, in_state("ok"))
    assert events(readings).count("engine.restart") == 1
    assert readings[-1].sample.restarts == 1
    assert (await watched.poll()).sample.pid == again.pid


async def test_killed_in_mid_stream(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(shape=STEADY)
    request = server.background_chat("hello", max_tokens=1900)
    watched = watch(server)
    await polled(watched, lambda r: any(slot.phase == "decode" for slot in r.slots))
    server.kill()
    reading = (await polled(watched, in_state("down")))[-1]
    assert (reading.sample.running, reading.sample.decode_tok_s, reading.slots) == (None, None, [])
    request.join()


async def test_a_stalled_server_is_busy_not_down(
    start_llama: StartServer, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_http, "ANSWER_S", 0.5)
    server = start_llama()
    server.chat("hello", max_tokens=20)
    # A session clock that runs ten times as fast: three of its seconds are soon over.
    watched = watch(server, now=lambda: 10 * time.monotonic(), patience_s=0.05)
    before = (await polled(watched, in_state("ok")))[-1].sample
    server.freeze()
    busy = await polled(
        watched, lambda r: r.sample.state == "busy" and "answers nothing" in (r.sample.note or "")
    )
    sample = busy[-1].sample
    assert sample.age_s > 3
    assert (sample.kv_used_tokens, sample.model) == (before.kv_used_tokens, before.model)
    assert (sample.decode_tok_s, busy[-1].slots) == (None, [])
    assert events(busy) == ["engine.busy"]
    server.thaw()
    back = await polled(watched, in_state("ok"))
    assert events(back) == ["engine.up"]
    assert (back[-1].sample.restarts, len(back[-1].slots)) == (0, 4)


async def test_keys(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(api_key="right")
    reading = (await polled(watch(server), in_state("unauthorised")))[-1]
    assert "--api-key-env" in reading.sample.note
    assert (reading.sample.name, reading.sample.running) == ("llama.cpp", None)
    reading = (await polled(watch(server, access=with_key("wrong")), in_state("unauthorised")))[-1]
    assert "does not accept the key" in reading.sample.note
    reading = (await polled(watch(server, access=with_key("right")), in_state("ok")))[-1]
    assert reading.sample.running == 0


async def test_without_metrics_and_without_slots(start_llama: StartServer, watch: Start) -> None:
    server = start_llama(metrics=False)
    reading = (await polled(watch(server), in_state("ok")))[-1]
    assert (reading.sample.waiting, reading.sample.running) == (None, 0)
    assert any("--metrics" in (frame.fix or "") for frame in reading.missing)


async def test_a_server_may_fall_asleep_while_it_is_watched_and_is_not_woken(
    start_llama: StartServer, watch: Start
) -> None:
    server = start_llama(sleep_idle_s=1)
    server.chat("hello", max_tokens=20)
    watched = watch(server)
    asleep = await polled(watched, in_state("asleep"))
    assert asleep[-1].sample.kv_used_tokens == 0
    assert len(asleep[-1].slots) == 4
    assert {slot.phase for slot in asleep[-1].slots} == {"idle"}
    for _ in range(5):
        assert (await watched.poll()).sample.state == "asleep"
        assert server.json("/props")["is_sleeping"]
    await asyncio.to_thread(server.chat, "wake up", 50)
    awake = await polled(watched, in_state("ok"))
    assert "engine.restart" not in events(awake)
    assert awake[-1].sample.restarts == 0
    assert awake[-1].sample.kv_used_tokens > 50
    await polled(watched, in_state("asleep"))


def test_a_sleeping_server_really_is_woken_by_its_slots(start_llama: StartServer) -> None:
    """Why all this care: when it is no longer so, the rules may be relaxed."""
    server = start_llama(sleep_idle_s=1)
    until(lambda: server.json("/props")["is_sleeping"])
    server.json("/slots")
    assert not server.json("/props")["is_sleeping"]
