"""An SGLang server as it is read: captured runs, versions, ranks, restarts, keys, and odd answers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.http import UnauthorisedError
from agenttop.collect.engine.kinds.sglang import KIND, metrics
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

IDLE_METRICS = samples.body("sglang/idle-metrics.txt").decode()
AFTER = samples.body("sglang/metrics.txt").decode()
LOADS = samples.body("sglang/v1_loads.txt")
ROUTES: dict[str, Any] = {
    "/v1/models": samples.body("sglang/v1_models.txt"),
    "/v1/loads": LOADS,
    "/metrics": IDLE_METRICS,
    "/server_info": samples.body("sglang/server_info.txt"),
}
OFF = {**ROUTES, "/metrics": (404, {"detail": "Not Found"})}
RUN = samples.series("sglang/load16/v1_loads.jsonl.gz")
METRICS_RUN = samples.series("sglang/load16/metrics.jsonl.gz")
REQUESTS = json.loads(samples.body("sglang/load16/requests.json"))
LOCKED = (401, {"error": "Unauthorized"})


def loads(*changes: dict[str, Any], at: float = 0.0, **top: Any) -> dict[str, Any]:
    """`/v1/loads` with one rank for each of `changes`."""
    reply = json.loads(LOADS)
    rank = reply["loads"][0]
    ranks = [
        {**rank, "dp_rank": number, "timestamp": 1.7e9 + at, **change}
        for number, change in enumerate(changes)
    ]
    return {**reply, "loads": ranks, **top}


async def run(routes: dict[str, Any], bodies: list[tuple[float, bytes]], path: str) -> list[EngineReading]:
    server = Scripted(KIND, routes)
    return [await server.look(at, **{path: body}) for at, body in bodies]


async def test_an_idle_server() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    sample = (await server.look()).sample
    asked = server.asked
    assert (sample.name, sample.version, sample.model, sample.state) == ("SGLang", "0.5.23", "tiny", "ok")
    assert (sample.running, sample.waiting, sample.slots_total) == (0, 0, None)
    assert (sample.kv_pool_tokens, sample.kv_active_tokens, sample.kv_idle_tokens) == (4096, 0, 22)
    assert (sample.kv_used_fraction, sample.kv_layout) == (0.0, "paged")
    assert (sample.context_limit_tokens, sample.sequences_max) == (2048, 2048)
    assert (sample.kv_dtype, sample.quantisation) == ("bfloat16", None)
    assert (sample.output_tokens_total, sample.prompt_tokens_total, sample.finished_total) == (8, 14, 1)
    assert (sample.prefix_hits_tokens_total, sample.prefix_queries_tokens_total) == (0, 16)
    assert (sample.decode_tok_s, sample.prefill_tok_s) == (0.0, 0.0)
    assert sample.memory_bytes == pytest.approx(0.016 * 2**30, abs=2)
    assert asked.count("/server_info") == 1
    assert not {"/health", "/health_generate", "/flush_cache", "/get_load"} & set(asked)


async def test_every_token_of_a_captured_run_is_in_the_rate() -> None:
    """What the rate says times how long it stood is what the clients got, with the metrics off."""
    end, last = RUN[-1][0], json.loads(RUN[-1][1])
    after = []
    for second in range(1, 5):
        last["loads"][0]["timestamp"] += 1.0
        after.append((end + second, json.dumps(last).encode()))
    readings = await run(OFF, [*RUN, *after], "v1__loads")
    told = sum(
        (now.sample.decode_tok_s or 0.0) * (now.sample.t - before.sample.t)
        for before, now in pairwise(readings)
    )
    tokens = sum(request["tokens"] for request in REQUESTS)
    assert tokens == 6400
    assert told == pytest.approx(tokens, rel=0.05)
    assert readings[-1].sample.decode_tok_s == 0.0


async def test_the_rate_of_a_captured_run_while_two_streams_run() -> None:
    """The last two requests decode alone, 400 tokens each."""
    readings = await run(OFF, RUN, "v1__loads")
    alone = [request for request in REQUESTS if request["start"] + request["ttft"] > 31]
    begin = max(request["start"] + request["ttft"] for request in alone) + 3.6
    end = min(request["end"] for request in alone)
    rates = [reading.sample for reading in readings if begin <= reading.sample.t <= end]
    assert len(alone) == 2
    assert rates
    expected = sum(
        (request["tokens"] - 1) / (request["end"] - request["start"] - request["ttft"]) for request in alone
    )
    for sample in rates:
        assert sample.decode_tok_s == pytest.approx(expected, rel=0.05)
        assert sample.per_sequence_tok_s == pytest.approx(expected / 2, rel=0.05)
        assert (sample.running, sample.per_sequence_of) == (2, 2)
        assert not sample.decode_is_floor
    assert any(reading.sample.decode_is_floor for reading in readings)  # while prompts came in


async def test_a_captured_run_as_it_is_shown() -> None:
    readings = await run(OFF, RUN, "v1__loads")
    by_time = {round(at, 1): reading for (at, _), reading in zip(RUN, readings, strict=True)}
    busy = by_time[22.0].sample
    assert (busy.running, busy.waiting, busy.waiting_reasons) == (7, 9, {"queued": 9})
    assert (busy.kv_active_tokens, busy.kv_used_fraction) == (3535, 0.863)
    assert busy.window_s == pytest.approx(3.0, abs=0.7)
    stuck = by_time[10.5]
    assert stuck.sample.window_s is not None
    assert stuck.sample.window_s > 2.0  # 15 steps took 4.5 s
    assert why(stuck)["kv_idle_tokens"].startswith("GET /metrics is not there")
    assert "start SGLang with --enable-metrics" in fixes(stuck)
    assert all(reading.events == [] for reading in readings)


async def test_live_counters_are_preferred_and_agree_with_the_clients() -> None:
    readings = await run({**ROUTES, "/v1/loads": (404, {})}, METRICS_RUN, "metrics")
    last = readings[-1].sample
    assert last.window_s == pytest.approx(6.0, abs=0.1)  # these looks are three seconds apart
    assert last.decode_tok_s == pytest.approx((2331 - 749) / 6.0, rel=0.05)
    assert last.per_sequence_of == 7
    before, after = metrics.read(METRICS_RUN[0][1].decode(), 0.0), metrics.read(AFTER, 1.0)
    assert before is not None
    assert after is not None
    grown = (after.counters["decode"] or 0) - (before.counters["decode"] or 0)
    assert grown == sum(request["tokens"] for request in REQUESTS)


async def test_what_the_metrics_add() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    reading = await server.look(at=10.0, metrics=AFTER)
    later = await server.look(at=20.0, metrics=AFTER)
    sample = reading.sample
    assert (sample.output_tokens_total, sample.prompt_tokens_total, sample.finished_total) == (6416, 2238, 18)
    assert (sample.cached_tokens_total, sample.prefix_hits_tokens_total) == (111, 111)
    assert sample.prefix_queries_tokens_total == 2129 + 111
    assert (sample.kv_idle_tokens, sample.kv_active_tokens, sample.kv_used_tokens) == (3856, 0, 3856)
    assert sample.preemptions_total is None
    assert "first retraction" in why(reading)["preemptions_total"]
    latencies = {each.measure: each for each in reading.latencies}
    assert set(latencies) == {"ttft", "itl", "e2e", "queue"}
    assert (latencies["e2e"].count, latencies["itl"].count) == (17, 0)  # the first look had no ITL at all
    assert latencies["e2e"].mean_s == pytest.approx(435.4 / 17, rel=0.01)
    assert later.sample.decode_tok_s == 0.0  # `generation_tokens_total` is no live counter


async def test_metrics_that_are_off_are_asked_for_now_and_then() -> None:
    server = Scripted(KIND, OFF)
    for second in range(130):
        await server.look(at=float(second))
    assert server.asked.count("/metrics") == 3
    assert server.asked.count("/v1/loads") == 130


async def test_the_older_load_and_its_gauges() -> None:
    """0.5.3 to 0.5.10: `num_reqs` counts the waiting ones, and so does `num_tokens`."""
    older = {
        **OFF,
        "/v1/loads": (404, {}),
        "/get_load": [{"dp_rank": 0, "num_reqs": 9, "num_waiting_reqs": 4, "num_tokens": 900}],
    }
    server = Scripted(KIND, older)
    reading = await server.look()
    assert (reading.sample.running, reading.sample.waiting) == (5, 4)
    assert reading.sample.kv_used_tokens is None
    assert "only while no request waits" in why(reading)["kv_used_tokens"]
    assert "start SGLang with --enable-metrics" in fixes(reading)
    idle = [{"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 0, "num_tokens": 1024}]
    sample = (await server.look(get_load=idle)).sample
    assert (sample.kv_used_tokens, sample.kv_pool_tokens, sample.kv_used_fraction) == (1024, 4096, 0.25)
    assert server.asked.count("/v1/loads") == 1


async def test_the_gauge_of_an_older_version_is_believed_only_while_requests_run() -> None:
    def at_work(running: int, throughput: float) -> dict[str, Any]:
        change = {"num_running_reqs": running, "gen_throughput": throughput, "decode_moments": None}
        return loads(change)

    server = Scripted(KIND, OFF)
    reading = await server.look(v1__loads=at_work(4, 120.0))
    assert (reading.sample.decode_tok_s, reading.sample.window_s) == (120.0, None)
    sticky = await server.look(v1__loads=at_work(0, 120.0))
    assert sticky.sample.decode_tok_s is None
    assert "stays at that of the last batch" in why(sticky)["decode_tok_s"]
    unmeasured = await server.look(v1__loads=at_work(4, 0.0))
    assert unmeasured.sample.decode_tok_s is None
    assert "only with its metrics on" in why(unmeasured)["decode_tok_s"]


async def test_data_parallel_ranks_are_added_up_and_shown_apart() -> None:
    def state(second: float) -> dict[str, Any]:
        moments = [0, 0, 0, 0, 0, 1000 + 50 * second]
        one = {"num_running_reqs": 3, "num_used_tokens": 1024, "token_usage": 0.25, "decode_moments": moments}
        two = {**one, "num_running_reqs": 5, "token_usage": 0.75, "num_used_tokens": 3072}
        two["decode_moments"] = [0, 0, 0, 0, 0, 100 * second]
        return loads(one, two, at=second)

    server = Scripted(KIND, OFF)
    for second in range(5):
        reading = await server.look(at=float(second), v1__loads=state(second))
    sample = reading.sample
    assert (sample.data_parallel, sample.running, sample.kv_pool_tokens) == (2, 8, 8192)
    assert (sample.kv_used_fraction, sample.kv_fullest_fraction) == (0.5, 0.75)
    assert sample.decode_tok_s == pytest.approx(150.0)
    assert [(part.part, part.role, part.running) for part in reading.parts] == [
        ("0", "rank", 3),
        ("1", "rank", 5),
    ]
    assert [part.decode_tok_s for part in reading.parts] == [pytest.approx(50.0), pytest.approx(100.0)]


def test_processes_of_one_rank_say_the_same_and_count_once() -> None:
    line = 'sglang:num_running_reqs{{dp_rank="{}",tp_rank="{}",pp_rank="{}",priority="{}"}} {}\n'
    text = "".join(
        line.format(dp, tp, pp, priority, value)
        for dp in (0, 1)
        for tp in (2 * dp, 2 * dp + 1)
        for pp in (0, 1)
        for priority, value in (("", 4), ("1", 3), ("2", 1))
    )
    found = metrics.read(text, 0.0)
    assert found is not None
    assert (found.running, found.ranks) == (8, 2)
    escaped = metrics.read(text.replace("sglang:", "sglang_"), 0.0)
    assert escaped is not None
    assert escaped.running == 8


def test_series_that_differ_by_other_labels_are_added_up() -> None:
    found = metrics.read(AFTER, 0.0)
    assert found is not None
    assert (found.output, found.requests) == (6416, 18)
    assert found.histograms["ttft"].count == 18


async def test_retractions_are_an_event_and_a_total_only_where_they_are_counted() -> None:
    counted = AFTER + 'sglang:num_retracted_requests_total{tp_rank="0"} 3.0\n'
    server = Scripted(KIND, ROUTES)
    await server.look(metrics=AFTER)
    reading = await server.look(metrics=counted)
    assert reading.sample.preemptions_total == 3
    assert [event.event for event in reading.events] == ["engine.preempted"]
    quiet, pushed = {"queues": {"retracted": 0}}, {"queues": {"waiting": 2, "retracted": 2}}
    server = Scripted(KIND, OFF)
    await server.look(v1__loads=loads(quiet))
    reading = await server.look(v1__loads=loads(pushed, at=1.0))
    assert reading.sample.preemptions_total is None
    assert reading.sample.waiting_reasons == {}  # those pushed out wait in the queue like the others
    assert "2 requests" in reading.events[0].text


async def test_why_requests_wait() -> None:
    queues = {"waiting": 3, "grammar": 2, "paused": 1, "retracted": 0}
    server = Scripted(KIND, OFF)
    sample = (await server.look(v1__loads=loads({"num_waiting_reqs": 3, "queues": queues}))).sample
    assert sample.waiting == 5
    assert sample.waiting_reasons == {"queued": 3, "grammar": 2, "paused": 1}


async def test_speculation() -> None:
    drafts = {"speculative": {"accept_length": 2.5, "accept_rate": 0.75}}
    server = Scripted(KIND, OFF)
    off = await server.look()
    sample = (await server.look(v1__loads=loads(drafts))).sample
    assert "speculative decoding is off" in why(off)["tokens_per_step"]
    assert (sample.tokens_per_step, sample.draft_acceptance) == (2.5, 0.75)


async def test_a_restart_is_told_once_it_is_sure_and_alternating_servers_are_none() -> None:
    def state(second: float, tokens: float) -> dict[str, Any]:
        return loads({"decode_moments": [0, 0, 0, 0, 0, tokens]}, at=second)

    server = Scripted(KIND, OFF)
    for second in range(3):
        await server.look(v1__loads=state(second, 1000 + second))
    readings = [await server.look(v1__loads=state(3 + second, second)) for second in range(6)]
    assert [event.event for reading in readings for event in reading.events] == ["engine.restart"]
    server = Scripted(KIND, OFF)
    readings = [await server.look(v1__loads=state(second, 1000 * (second % 2))) for second in range(12)]
    assert [event for reading in readings for event in reading.events] == []
    assert {reading.sample.decode_tok_s for reading in readings[2:]} == {None}
    assert "in turn" in why(readings[-1])["decode_tok_s"]


async def test_a_key_that_was_not_given() -> None:
    locked = {**ROUTES, "/v1/loads": LOCKED, "/v1/models": LOCKED, "/server_info": LOCKED}
    server = Scripted(KIND, locked)
    first, second = await server.look(metrics=AFTER), await server.look()
    assert (first.sample.running, first.sample.model, first.sample.context_limit_tokens) == (0, "tiny", 2048)
    assert [event.event for event in first.events] == ["engine.locked"]
    assert second.events == []
    with pytest.raises(UnauthorisedError):
        await Scripted(KIND, {**locked, "/metrics": (404, {})}).look()


async def test_keys_among_the_settings_are_not_kept() -> None:
    info = {
        **json.loads(samples.body("sglang/server_info.txt")),
        "api_key": "sk-secret",
        "quantization": "fp8",
    }
    server = Scripted(KIND, {**ROUTES, "/server_info": info})
    reading = await server.look()
    assert reading.sample.quantisation == "fp8"
    assert "sk-secret" not in repr(reading) + repr(vars(server.adapter))


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3", "1e300"])
async def test_values_that_cannot_be_are_not_shown(value: str) -> None:
    odd = "\n".join(
        f"{line.rpartition(' ')[0]} {value}" if line.startswith("sglang:") and "_bucket" not in line else line
        for line in AFTER.splitlines()
    )
    server = Scripted(KIND, {**ROUTES, "/v1/loads": (404, {})})
    for _ in range(3):
        sample = (await server.look(metrics=odd)).sample
    assert (sample.running, sample.output_tokens_total, sample.kv_active_tokens) == (None, None, None)


def essence(text: str) -> bytes:
    """Without what is not read, so that most mutations matter."""
    wanted = tuple(f"sglang:{name}" for names in metrics.CATALOGUE._families.values() for name in names)
    lines = [line for line in text.splitlines() if line.startswith((*wanted, "sglang:e2e"))]
    return "\n".join(lines).encode()


BODIES = [
    ("/v1/loads", LOADS),
    ("/v1/loads", RUN[40][1]),
    ("/metrics", essence(AFTER)),
    ("/metrics", essence(METRICS_RUN[3][1].decode())),
    ("/v1/models", ROUTES["/v1/models"]),
    ("/server_info", ROUTES["/server_info"][:3000]),
]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        path, body = BODIES[data.draw(st.integers(0, len(BODIES) - 1))]
        server.routes[path] = data.draw(mutated(body))
        await server.survives()
