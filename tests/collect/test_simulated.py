"""Engines that say they are simulated: real ones of ours, and servers that lie."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.engine import http, recognise
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.simulated import (
    ASK_S,
    FASTEST,
    LIMIT,
    PATH,
    SimulatedAdapter,
    gpu_samples,
    parse,
    speedup_of,
)
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.engine.watch import EngineWatch
from agenttop.model.frames import GpuSample
from agenttop.sim.http import MARK
from tests import hostile
from tests.collect import imitations as imitate
from tests.servers import LlamaServer, free_port
from tests.simulated import Simulated

Start = Callable[..., EngineWatch]
SAYS_SO = f"{MARK[0].decode()}: 1\r\n"
SIM = {"simulated": "RTX 5090", "model": "m", "wire": "vllm", "speedup": 1.0, "gpus": [], "notes": []}
GPU = {
    "gpu": "GPU-of-the-host",
    "index": 0,
    "vendor": "nvidia",
    "name": "NVIDIA GeForce RTX 5090",
    "power_w": 450.0,
}


@pytest.fixture
async def watch() -> AsyncIterator[Start]:
    """Starts watches that end with the test."""
    started: list[EngineWatch] = []

    def start(url: str, **options: Any) -> EngineWatch:
        made = EngineWatch(url, **{"patience_s": 5.0, "polls_host": False, **options})
        started.append(made)
        return made

    yield start
    for each in started:
        await each.close()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognise, "_ANSWER_S", 1.0)
    monkeypatch.setattr(http, "ANSWER_S", 2.0)


def vllm_that_says(sim: Any, headers: str = SAYS_SO) -> hostile.HostileServer:
    return imitate.serves({**imitate.VLLM, "/sim": sim}, headers=headers)


async def look(watch: Start, server: hostile.HostileServer, **options: Any) -> EngineReading:
    return await watch(server.url, **options).poll()


# Simulated engines of our own


@pytest.mark.parametrize(("wire", "inner"), [("vllm", VllmAdapter), ("llama.cpp", LlamaCppAdapter)])
async def test_both_wires_are_read_by_their_own_adapter_and_said_to_be_simulated(
    wire: str, inner: type, watch: Start, start_sim_here: Callable[..., Simulated]
) -> None:
    server = start_sim_here(wire=wire)
    adapter = await recognise.recognise(server.url)
    assert isinstance(adapter, SimulatedAdapter)
    assert isinstance(adapter.inner, inner)
    assert adapter.allowed_paths == adapter.inner.allowed_paths | {PATH}
    await adapter.client.close()
    reading = await watch(server.url).poll()
    sample = reading.sample
    assert (sample.state, sample.simulated, sample.speedup) == ("ok", "RTX 5090", 1.0)
    assert sample.name == adapter.inner.name
    # vLLM reserves a block.
    assert sample.kv_pool_tokens == pytest.approx(server.get("/sim").json()["kv_pool_tokens"], abs=64)
    assert [event.event for event in reading.events] == ["engine.simulated", "engine.up"]
    [gpu] = reading.gpus
    assert gpu.gpu == f"sim:127.0.0.1:{server.port}/0"
    assert gpu.t == sample.t
    assert (gpu.name, gpu.mem_total_bytes) == ("NVIDIA GeForce RTX 5090", 34_190_917_632)
    assert gpu.power_w is not None


async def test_gpus_and_the_notice_come_with_every_look_the_event_once(
    watch: Start, start_sim_here: Callable[..., Simulated]
) -> None:
    watched = watch(start_sim_here().url)
    readings = [await watched.poll() for _ in range(4)]
    assert [len(reading.gpus) for reading in readings] == [1] * 4
    assert {reading.sample.simulated for reading in readings} == {"RTX 5090"}
    events = [event.event for reading in readings for event in reading.events]
    assert events.count("engine.simulated") == 1


async def test_rates_of_an_engine_that_runs_fast_are_in_its_own_time(
    watch: Start, start_sim_here: Callable[..., Simulated]
) -> None:
    """Ten times as fast as life: in session time, which runs as fast, the rate is the one of life."""
    server = start_sim_here(model="qwen3.5-9b-4bit", speedup=10, noise=0)
    begun = time.monotonic()
    watched = watch(server.url, now=lambda: (time.monotonic() - begun) * 10, rate=10.0)

    def ask() -> float:
        """Tokens per session second, as a client sees them."""
        started = time.monotonic()
        usage = server.stream("hello", 2000).usage
        assert usage is not None
        return float(usage["completion_tokens"]) / ((time.monotonic() - started) * 10)

    request = asyncio.create_task(asyncio.to_thread(ask))
    rates, samples = [], []
    while not request.done():
        sample = (await watched.poll()).sample
        samples.append(sample)
        if sample.running and sample.decode_tok_s and sample.window_s and sample.window_s > 2:
            rates.append(sample.decode_tok_s)
        await asyncio.sleep(0.02)
    seen = await request
    assert {sample.state for sample in samples} <= {"ok", "busy"}
    assert sorted(rates)[len(rates) // 2] == pytest.approx(seen, rel=0.25)


async def test_totals_are_what_the_clients_were_told(
    watch: Start, start_sim_here: Callable[..., Simulated]
) -> None:
    """Prompt, cached and output tokens by the engine's counters, against the usage of every reply."""
    server = start_sim_here(speedup=20)
    watched = watch(server.url, rate=20.0)
    texts = ("the same words " * 400, "the same words " * 400, "other words " * 300)
    answers = [await asyncio.to_thread(server.chat, text, 20) for text in texts]
    usages = [answer.json()["usage"] for answer in answers]
    sample = (await watched.poll()).sample
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[1] > 0
    assert sample.prompt_tokens_total == sum(usage["prompt_tokens"] for usage in usages)
    assert sample.output_tokens_total == sum(usage["completion_tokens"] for usage in usages)
    assert sample.cached_tokens_total == sample.prefix_hits_tokens_total == sum(cached)
    assert (sample.running, sample.waiting, sample.kv_used_tokens) == (0, 0, 0)


@pytest.mark.parametrize(("speedup", "rate"), [(20, 1.0), (1, 20.0)])
async def test_an_engine_at_another_pace_than_the_session_is_not_read(
    speedup: float, rate: float, watch: Start, start_sim_here: Callable[..., Simulated]
) -> None:
    reading = await watch(start_sim_here(speedup=speedup).url, rate=rate).poll()
    assert reading.sample.state == "unsupported"
    assert f"{speedup:g} times the speed of life" in (reading.sample.note or "")
    assert (reading.sample.running, reading.gpus) == (None, [])


@pytest.mark.engine
async def test_a_real_engine_is_not_read_in_simulated_time(watch: Start, llama_server: LlamaServer) -> None:
    reading = await watch(llama_server.url, rate=20.0).poll()
    assert reading.sample.state == "unsupported"
    assert "real engine would be wrong" in (reading.sample.note or "") or "figures of a real" in (
        reading.sample.note or ""
    )


async def test_a_real_engine_on_the_port_of_a_simulated_one_is_noticed(watch: Start) -> None:
    routes: dict[str, Any] = {**imitate.VLLM, "/sim": SIM}
    headers = [SAYS_SO]

    def answer(host: hostile.HostileServer, connection: socket.socket) -> None:
        while line := hostile._read_request(host, connection):
            reply = routes.get(line.split(" ")[1], (404, {"detail": "Not Found"}))
            reply = reply if isinstance(reply, tuple) else (200, reply)
            kind = "text/plain" if isinstance(reply[1], str) else "application/json"
            hostile._send(connection, reply, kind, headers[0])

    with hostile.HostileServer(answer) as server:
        watched = watch(server.url)
        assert (await watched.poll()).sample.simulated == "RTX 5090"
        headers[0] = ""
        del routes["/sim"]
        reading = await watched.poll()
    assert (reading.sample.simulated, reading.sample.speedup, reading.gpus) == (None, None, [])
    assert reading.sample.state == "ok"


# Servers that lie


async def test_no_server_is_asked_for_sim_that_does_not_say_so(watch: Start) -> None:
    with vllm_that_says(SIM, headers="") as server:
        reading = await look(watch, server)
        assert reading.sample.simulated is None
        assert not any(PATH in line for line in server.asked)


LIES: dict[str, Any] = {
    "no object": [],
    "text": "hello",
    "nothing": b"",
    "no host": {"speedup": 2.0},
    "an empty host": {**SIM, "simulated": ""},
    "a host of 300 letters": {**SIM, "simulated": "x" * 300},
    "a number for a host": {**SIM, "simulated": 5},
    "speedup 0": {**SIM, "speedup": 0},
    "speedup -3": {**SIM, "speedup": -3.0},
    "speedup as text": {**SIM, "speedup": "20"},
    "speedup null": {**SIM, "speedup": None},
    "speedup huge": {**SIM, "speedup": FASTEST * 2},
    "speedup 1e999": json.dumps(SIM).replace("1.0", "1e999"),
    "speedup NaN": json.dumps(SIM).replace("1.0", "NaN"),
    "gpus no list": {**SIM, "gpus": {"0": GPU}},
    "17 gpus": {**SIM, "gpus": [GPU] * 17},
    "power below zero": {**SIM, "gpus": [{**GPU, "power_w": -1}]},
    "power as text": {**SIM, "gpus": [{**GPU, "power_w": "450"}]},
    "power 1e308": {**SIM, "gpus": [{**GPU, "power_w": 1e308}]},
    "a share of 97": {**SIM, "gpus": [{**GPU, "util_fraction": 97}]},
    "an index below zero": {**SIM, "gpus": [{**GPU, "index": -1}]},
    "bytes as a fraction": {**SIM, "gpus": [{**GPU, "mem_used_bytes": 1.5}]},
    "a hundred throttle reasons": {**SIM, "gpus": [{**GPU, "throttle": ["x"] * 100}]},
    "a share of a reason beyond 1": {**SIM, "gpus": [{**GPU, "throttle_shares": {"power cap": 1.5}}]},
    "memory of an unknown kind": {**SIM, "gpus": [{**GPU, "memory_kind": "magic"}]},
    "nested too deep": "[" * 50_000,
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_makes_no_sense_is_one_sentence(lie: str, watch: Start) -> None:
    with vllm_that_says(LIES[lie]) as server:
        reading = await look(watch, server)
        assert speedup_of(server.url) == (1.0, None)
    sample = reading.sample
    assert (sample.state, sample.simulated, sample.running, reading.gpus) == ("unsupported", None, None, [])
    assert "says it is simulated" in (sample.note or "")
    assert (sample.note or "").isprintable()
    assert len(sample.note or "") < 300


async def test_an_answer_without_end_is_refused(watch: Start) -> None:
    with vllm_that_says({**SIM, "notes": ["x" * 150] * 1000}) as server:
        sample = (await look(watch, server)).sample
    assert sample.state == "unsupported"
    assert "more than 0.064 MB" in (sample.note or "")


async def test_control_sequences_and_long_texts_do_not_get_through(watch: Start) -> None:
    nasty = "\x1b[2J\x07\u202eevil" + "y" * 100
    sim = {
        **SIM,
        "simulated": nasty,
        "gpus": [
            {**GPU, "name": nasty, "vendor": nasty, "throttle": [nasty], "throttle_shares": {nasty: 0.5}}
        ],
    }
    with vllm_that_says(sim) as server:
        reading = await look(watch, server)
    [gpu] = reading.gpus
    texts = [
        reading.sample.simulated,
        gpu.name,
        gpu.vendor,
        *(gpu.throttle or []),
        *gpu.throttle_shares,
        *(e.text for e in reading.events),
    ]
    for text in texts:
        assert text is not None
        assert text.isprintable()
        assert "\u202e" not in text
    assert len(reading.sample.simulated or "") <= 41


async def test_invented_gpus_never_take_the_name_of_a_real_one(watch: Start) -> None:
    with vllm_that_says({**SIM, "gpus": [GPU, GPU, {**GPU, "index": 7}]}) as server:
        reading = await look(watch, server)
        netloc = server.url.removeprefix("http://")
    assert [gpu.gpu for gpu in reading.gpus] == [f"sim:{netloc}/{number}" for number in range(3)]
    assert [gpu.index for gpu in reading.gpus] == [0, 1, 2]


UNTOLD = {
    "t", "gpu", "state", "age_s", "bus", "pci_id", "parent", "mig_instance", "mig", "mem_reserved_bytes",
    "mem_vram_used_bytes", "mem_vram_total_bytes", "mem_gtt_used_bytes", "mem_gtt_total_bytes",
    "mem_clock_max_mhz", "hotspot_c", "temperature_margin_c", "mem_temperature_limit_c", "fan_rpm",
    "power_scope", "pcie_source", "pcie_replays_total", "nvlink_links", "nvlink_received_bytes_s",
    "nvlink_sent_bytes_s", "sm_active_fraction", "sm_occupancy_fraction", "tensor_active_fraction",
    "dram_active_fraction", "dram_read_bytes_s", "dram_write_bytes_s", "dram_is_floor", "ecc_corrected_total",
    "ecc_uncorrected_total", "remapped_rows_total", "health", "visible_only",
}  # fmt: skip
"""What no simulated GPU has."""


def test_a_gpu_has_the_fields_of_a_sample_and_no_others() -> None:
    """So that a field added to GpuSample is not forgotten here."""
    from agenttop.collect.engine.kinds.simulated import _Gpu

    ours = {field.name for field in msgspec.structs.fields(_Gpu)}
    samples = {field.name for field in msgspec.structs.fields(GpuSample)}
    assert samples - ours == UNTOLD
    assert ours <= samples


@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_whatever_the_bytes_there_is_an_answer_or_one_reason(body: bytes) -> None:
    try:
        told = parse(body)
    except ValueError as error:
        if not str(error).isprintable():
            raise
        return
    assert 0 < told.speedup <= FASTEST
    assert gpu_samples(1.0, "http://127.0.0.1:1", told.gpus) is not None


def test_the_size_limit_is_checked_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="longer than 64 kB"):
        parse(b" " * (LIMIT + 1))


# The question before a session begins


def test_the_pace_of_a_simulated_engine(start_sim_here: Callable[..., Simulated]) -> None:
    assert speedup_of(start_sim_here(speedup=20).url) == (20.0, "RTX 5090")
    assert speedup_of(start_sim_here(wire="llama.cpp", speedup=4).url) == (4.0, "RTX 5090")


def test_the_pace_of_one_that_still_loads_or_wants_a_key(
    start_sim_here: Callable[..., Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_KEY", "secret")
    assert speedup_of(start_sim_here(wire="llama.cpp", speedup=3, load_time="1h").url) == (3.0, "RTX 5090")
    assert speedup_of(start_sim_here(speedup=3, api_key_env="SIM_KEY").url) == (3.0, "RTX 5090")


@pytest.mark.parametrize(
    "make",
    [
        hostile.html_page,
        hostile.not_http,
        hostile.huge_reply,
        hostile.redirect,
        hostile.loading,
        hostile.closes,
        hostile.stalls,
        hostile.slow_drip,
        lambda: imitate.serves(imitate.VLLM),
        lambda: imitate.serves(imitate.ROUTER, server="llama.cpp"),
    ],
)
def test_everything_else_runs_at_the_pace_of_life(make: Callable[[], hostile.HostileServer]) -> None:
    with make() as server:
        begun = time.monotonic()
        assert speedup_of(server.url) == (1.0, None)
        taken = time.monotonic() - begun
        assert not any(PATH in line for line in server.asked)
    assert taken < 10 * ASK_S  # it ends; a drip of single bytes would last for minutes


def test_nobody_is_asked_beyond_this_host() -> None:
    for url in ("http://192.0.2.1:8000", "https://127.0.0.1:8000", "http://no-such-host.invalid:1"):
        assert speedup_of(url) == (1.0, None)
    assert speedup_of(f"http://127.0.0.1:{free_port()}") == (1.0, None)
