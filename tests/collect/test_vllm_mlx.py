"""A vllm-mlx server as it is read: captured runs, an unloaded model, a registry, keys, and odd answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.access.ways import PLAIN
from agenttop.collect.engine.base import ChangedError, EngineReading
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.vllm_mlx import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.access import with_key
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

BATCHED = samples.series("vllm_mlx/batched4.jsonl")
SIMPLE = samples.series("vllm_mlx/simple1.jsonl")
METRICS = samples.body("vllm_mlx/metrics.txt")
ROUTES: dict[str, Any] = {
    "/v1/status": BATCHED[0][1],
    "/health": samples.body("vllm_mlx/health.json"),
    "/v1/models": samples.body("vllm_mlx/v1_models.json"),
    "/metrics": (404, {"detail": "Metrics endpoint is disabled"}),
}
SIMPLE_HEALTH = ROUTES["/health"].replace(b'"batched"', b'"simple"')
LOCKED = (401, {"detail": "API key required"})


def status(*requests: dict[str, Any], at: float = 0.0, **top: Any) -> dict[str, Any]:
    """`/v1/status` at second `at` of the server's life."""
    idle = json.loads(BATCHED[0][1])
    rows = [
        {"status": "running", "phase": "generation", "prompt_tokens": 100, "max_tokens": 1000,
         "cache_hit_type": "miss", "cached_tokens": 0, **request}
        for request in requests
    ]  # fmt: skip
    return {**idle, "num_running": len(rows), "requests": rows, "uptime_s": 100.0 + at, **top}


async def run(bodies: list[tuple[float, bytes]], **routes: Any) -> list[EngineReading]:
    server = Scripted(KIND, ROUTES | {f"/{name}": body for name, body in routes.items()})
    return [await server.look(at, v1__status=body) for at, body in bodies]


async def test_four_requests_as_they_were_captured() -> None:
    readings = await run(BATCHED)
    by_time = {round(at): reading for (at, _), reading in zip(BATCHED, readings, strict=True)}
    idle, prefill, decode, fewer, end = (by_time[at] for at in (2, 10, 15, 16, 22))
    assert (idle.sample.name, idle.sample.model, idle.sample.state) == ("vllm-mlx", "tiny-hf", "ok")
    assert (idle.sample.running, idle.sample.waiting, idle.sample.decode_tok_s) == (0, 0, 0.0)
    assert (prefill.sample.running, prefill.sample.decode_tok_s, prefill.sample.prefill_tok_s) == (
        4,
        0.0,
        None,
    )
    assert [slot.phase for slot in prefill.slots] == ["prefill"] * 4
    assert decode.sample.running == 2
    # 2340 tokens of four prompts were computed while eleven seconds went by.
    assert by_time[14].sample.prefill_tok_s == pytest.approx(2340 / 11, rel=0.1)
    # 57 of the one that ended, 174 and 174; what the one whose client hung up still wrote is not told.
    assert decode.sample.decode_tok_s == pytest.approx((57 + 49 + 174 + 174) / 3.0, rel=0.02)
    assert decode.sample.decode_is_floor
    slots = {slot.slot: slot for slot in fewer.slots}
    assert [slots[number].phase for number in range(4)] == ["idle", "decode", "idle", "decode"]
    assert slots[1].decode_tok_s == pytest.approx((295 - 49) / 2.0, rel=0.02)  # not its mean of 112.9
    assert (slots[1].decoded_tokens, slots[1].remaining_tokens, slots[1].context_tokens) == (295, 345, 745)
    assert (end.sample.running, end.sample.decode_tok_s, end.sample.finished_total) == (0, 0.0, 3)
    assert (end.sample.output_tokens_total, end.sample.prompt_tokens_total) == (885, 2340)
    assert [slot.phase for slot in end.slots] == ["idle"] * 4
    assert [event for reading in readings for event in reading.events] == []


async def test_the_rate_holds_what_the_server_wrote() -> None:
    """All tokens of the captured run but those of the client that hung up, counted second by second."""
    server = Scripted(KIND, ROUTES)
    total = 0
    for at, body in BATCHED:
        await server.look(at, v1__status=body)
        total = server.adapter._work._decoded  # type: ignore[attr-defined]
    assert 885 + 49 - 8 <= total <= 885 + 61


async def test_one_request_without_continuous_batching() -> None:
    readings = await run(SIMPLE, health=SIMPLE_HEALTH)
    busy = readings[5]
    assert (busy.sample.running, busy.sample.sequences_max, len(busy.slots)) == (1, 1, 1)
    assert busy.sample.prefill_tok_s is None
    assert "how much of a prompt came from its cache" in why(busy)["prefill_tok_s"]
    assert readings[6].sample.decode_tok_s == pytest.approx(266 / 3, rel=0.02)
    assert readings[-1].sample.decode_tok_s == 0.0  # though it tells 75.1 of the request that ended


async def test_a_request_that_is_not_streamed_shows_no_rate() -> None:
    server = Scripted(KIND, ROUTES | {"/health": SIMPLE_HEALTH})
    await server.look()
    blocking = {"request_id": "simple-1", "status": "running", "kind": "blocking_serialized"}
    for second in range(5):
        body = status(at=second + 1, requests=[blocking], num_running=1)
        busy = await server.look(v1__status=body)
    assert (busy.sample.running, busy.sample.decode_tok_s, busy.slots) == (1, None, [])
    assert "--continuous-batching" in " ".join(fixes(busy))
    ended = status(at=7, total_completion_tokens=5000, total_requests_processed=1)
    after = await server.look(v1__status=ended)
    assert (after.sample.decode_tok_s, after.sample.decode_is_floor) == (0.0, True)  # not 5000 at once


async def test_slots_keep_their_numbers_while_requests_live() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    await server.look(v1__status=status({"request_id": "a", "completion_tokens": 5}, at=1))
    two = status(
        {"request_id": "a", "completion_tokens": 9}, {"request_id": "b", "completion_tokens": 1}, at=2
    )
    reading = await server.look(v1__status=two)
    assert [(slot.slot, slot.task) for slot in reading.slots] == [(0, 1), (1, 2)]
    one = status({"request_id": "b", "completion_tokens": 9}, at=3, total_completion_tokens=12,
                 total_requests_processed=1)  # fmt: skip
    reading = await server.look(v1__status=one)
    assert [(slot.slot, slot.phase, slot.task) for slot in reading.slots] == [
        (0, "idle", None),
        (1, "decode", 2),
    ]
    new, old = {"request_id": "c", "completion_tokens": 1}, {"request_id": "b", "completion_tokens": 20}
    two = status(new, old, at=4, total_completion_tokens=12, total_requests_processed=1)
    reading = await server.look(v1__status=two)
    assert [(slot.slot, slot.task) for slot in reading.slots] == [(0, 3), (1, 2)]
    assert reading.sample.decode_tok_s == pytest.approx((12 + 20 + 1 - 0) / 4, rel=0.35)


async def test_a_restart_is_an_event_and_begins_anew() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(v1__status=status(at=500, total_completion_tokens=900))
    reading = await server.look(v1__status=status(at=-99, total_completion_tokens=0))
    assert [event.event for event in reading.events] == ["engine.restart"]
    assert reading.sample.decode_tok_s is None


async def test_an_unloaded_model_sleeps() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__status=samples.body("vllm_mlx/handmade/unloaded.json"))
    assert (reading.sample.state, reading.sample.model) == ("asleep", "mlx-community/Qwen3-8B-4bit")
    assert "the next request loads it" in (reading.sample.note or "")


async def test_models_of_a_registry_are_parts() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__status=samples.body("vllm_mlx/handmade/registry.json"))
    assert [(part.part, part.state) for part in reading.parts] == [("qwen", "loaded"), ("gemma", "unloaded")]
    assert reading.parts[0].memory_bytes == pytest.approx(4.6 * 2**30, rel=1e-6)
    assert (reading.sample.model, reading.sample.running) == ("qwen", None)
    assert "which of them are loaded" in why(reading)["running"]


async def test_latencies_where_metrics_are_on() -> None:
    server = Scripted(KIND, ROUTES | {"/metrics": METRICS})
    told = [latency for at in range(1, 40) for latency in (await server.look(float(at))).latencies]
    assert {latency.measure for latency in told} == {"ttft", "e2e"}
    later = METRICS.replace(b"seconds_count{", b"seconds_other{")
    assert (await server.look(v1__status=status(at=50), metrics=later)).sample.state == "ok"
    off = await Scripted(KIND, ROUTES).look()
    assert "start vllm-mlx with --enable-metrics" in fixes(off)


async def test_metrics_that_are_off_are_asked_once_a_minute() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(50):
        await server.look()
    assert server.asked.count("/metrics") == 1
    assert server.asked.count("/health") == 1


@pytest.mark.parametrize("key", [None, "wrong-key-1234"])
async def test_what_is_open_without_a_key_is_shown(key: str | None) -> None:
    process = ServerProcess(pid=7, command=Command(["python3", "/venv/bin/vllm-mlx", "serve", "m"]))

    async def seen() -> Circumstances:
        return Circumstances(process=process)

    routes = ROUTES | dict.fromkeys(("/v1/status", "/v1/models"), LOCKED)
    with imitate.serves(routes, kind="vllm-mlx") as server:
        access = with_key(key) if key else PLAIN
        adapter = await recognise(server.url, access=access, process=seen)
        assert adapter.name == "vllm-mlx"
        sample = (await adapter.poll()).sample
        assert await adapter.alive()
        await adapter.client.close()
    assert (sample.state, sample.model, sample.pid) == ("unauthorised", "tiny-hf", 7)
    assert ("does not accept" if key else "--api-key-env") in (sample.note or "")


@pytest.mark.parametrize("models", [ROUTES["/v1/models"], {"object": "list", "data": []}])
async def test_it_is_not_taken_for_vllm(models: Any) -> None:
    with imitate.serves(ROUTES | {"/v1/models": models}, kind="vllm-mlx") as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        await adapter.client.close()
    assert (adapter.name, reading.sample.running) == ("vllm-mlx", 0)


async def test_its_command_line_tells_how_many_run_at_once() -> None:
    server = Scripted(KIND, ROUTES)
    words = ["vllm-mlx", "serve", "m", "--continuous-batching", "--max-num-seqs", "12"]
    process = ServerProcess(pid=7, command=Command(words))
    server.adapter = KIND.adapter(server._client, Circumstances(process=process))
    assert (await server.look()).sample.sequences_max == 12


async def test_another_engine_at_its_address_is_noticed() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    with pytest.raises(ChangedError):
        await server.look(v1__status=(404, {}))


BODIES = [("/v1/status", BATCHED[at][1]) for at in (0, 5, 14, 16)]
BODIES += [("/v1/status", SIMPLE[5][1]), ("/health", ROUTES["/health"]), ("/metrics", METRICS[:4000])]
BODIES += [
    ("/v1/status", samples.body(f"vllm_mlx/handmade/{name}.json")) for name in ("registry", "unloaded")
]


async def test_counts_that_are_not_told_have_a_reason() -> None:
    told = json.loads(ROUTES["/v1/status"])
    del told["num_running"], told["num_waiting"]
    reading = await Scripted(KIND, {**ROUTES, "/v1/status": told}).look()
    assert {why(reading)[field] for field in ("running", "waiting")} == {"GET /v1/status does not tell it"}


@settings(max_examples=80, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(4):
        path, body = data.draw(st.sampled_from(BODIES))
        server.routes[path] = data.draw(st.one_of(st.just(body), mutated(body)))
        await server.survives()
