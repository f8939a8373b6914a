"""Dynamo's front end and workers: captured replies, several models, and nonsense."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError
from agenttop.collect.engine.kinds.dynamo.metrics import read_front, read_worker
from agenttop.collect.engine.recognise import recognise
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.scripted import Played

MODELS = samples.body("dynamo/v1_models.json").decode()
IDLE = samples.body("dynamo/frontend-idle.txt").decode()
FRONT = samples.series("dynamo/load6/frontend.jsonl.gz")
WORKER = samples.series("dynamo/load6/worker.jsonl.gz")


def front(**routes: Any) -> Played:
    return Played(
        "Dynamo",
        {"/v1/models": MODELS, "/metrics": IDLE} | {f"/{name}": body for name, body in routes.items()},
    )


def worker() -> Played:
    return Played("Dynamo", {"/metrics": WORKER[0][1].decode()})


async def test_a_captured_run_of_the_front_end() -> None:
    async with front() as server:
        readings = await server.looks(FRONT)
        told = server.why(readings[1])
        asked = server.asked
    first, busy, last = readings[0].sample, readings[1].sample, readings[-1].sample
    assert (first.name, first.model, first.front, first.decode_tok_s) == ("Dynamo", "tiny", True, None)
    assert first.context_limit_tokens == 1024
    assert (busy.running, busy.waiting, busy.waiting_reasons) == (4, 2, {"before their first token": 2})
    assert busy.decode_tok_s == pytest.approx((3893 - 3600) / busy.window_s)  # type: ignore[operator]
    assert busy.per_sequence_of == pytest.approx(2.0)  # from none to four
    assert (last.running, last.waiting, last.waiting_reasons) == (0, 0, {})
    assert (last.output_tokens_total, last.prompt_tokens_total, last.cached_tokens_total) == (6600, 792, 336)
    assert (last.finished_total, last.finish_reasons) == (12, {"success": 12})
    assert all(
        "front end does not see" in (told[field] or "") for field in ("kv_used_fraction", "prefill_tok_s")
    )
    assert (busy.kv_pool_tokens, busy.sequences_max) == (None, None)
    assert "one worker" in (told["sequences_max"] or "")
    (part,) = readings[1].parts
    assert (part.part, part.role, part.state, part.kv_pool_tokens) == ("tiny", "model", "ready", 256 * 16)
    assert (part.running, part.waiting, part.decode_tok_s) == (4, 2, busy.decode_tok_s)
    assert asked.count("/v1/models") == 2  # once as the proof that it is the same server
    measures = {each.measure for reading in readings for each in reading.latencies}
    assert measures == {"ttft", "itl", "e2e"}


async def test_a_captured_run_of_a_worker() -> None:
    async with worker() as server:
        readings = await server.looks(WORKER)
        told = server.why(readings[2])
    busy, last = readings[2].sample, readings[-1].sample
    assert (busy.name, busy.model, busy.state) == ("Dynamo", "tiny", "ok")
    assert (busy.running, busy.waiting) == (4, 2)
    assert busy.kv_used_fraction is not None
    assert 0 < busy.kv_used_fraction < 1
    assert (last.running, last.waiting, last.preemptions_total) == (0, 0, 0)
    assert busy.decode_tok_s is None
    assert "does not count it" in (told["decode_tok_s"] or "")
    assert {each.measure for reading in readings for each in reading.latencies} >= {"ttft", "itl", "e2e"}


async def test_both_are_recognised_by_their_replies() -> None:
    for routes in (
        {"/v1/models": MODELS, "/metrics": FRONT[1][1].decode()},
        {"/metrics": WORKER[1][1].decode()},
    ):
        with imitate.serves(routes) as server:
            adapter = await recognise(server.url)
            assert adapter.name == "Dynamo"
            await adapter.poll()
            await adapter.client.close()


async def test_two_models_are_parts_of_their_own() -> None:
    def page(output: int) -> str:
        lines = []
        for model, factor in (("a", 1), ("b", 2)):
            values = {"inflight_requests": 3, "queued_requests": 1, "output_tokens_total": output * factor}
            lines += [f'dynamo_frontend_{name}{{model="{model}"}} {value}' for name, value in values.items()]
        return "\n".join(lines)

    both = {"data": [{"id": name, "owned_by": "nvidia"} for name in "ab"]}
    async with front(**{"v1/models": both}) as server:
        await server.look(metrics=page(0))
        reading = await server.look(metrics=page(100))
        told = server.why(reading)
    assert (reading.sample.model, reading.sample.running, reading.sample.waiting) == (None, 4, 2)
    assert reading.sample.decode_tok_s == 300.0
    assert [(part.part, part.decode_tok_s) for part in reading.parts] == [("a", 100.0), ("b", 200.0)]
    assert "serves several" in (told["model"] or "")


async def test_a_front_end_before_its_first_worker_and_request() -> None:
    none = re.sub(r'^dynamo_frontend_.*model=".*\n', "", IDLE, flags=re.MULTILINE)
    async with front(**{"v1/models": {"object": "list", "data": []}}) as server:
        reading = await server.look(metrics=none)
        told = server.why(reading)
    assert (reading.sample.running, reading.sample.waiting, reading.sample.model) == (0, 0, None)
    assert reading.parts == []
    assert "no worker has come" in (told["model"] or "")


async def test_restarts_and_other_engines() -> None:
    async with front() as server:
        await server.looks(FRONT[-2:])
        restarted = await server.look(99.0, metrics=FRONT[0][1].decode())
        assert [event.event for event in restarted.events] == ["engine.restart"]
        assert restarted.sample.decode_tok_s is None
        for other in (samples.body("vllm/metrics.txt").decode(), "<html>", (404, "gone")):
            with pytest.raises(ChangedError):
                await server.look(metrics=other)
        with pytest.raises(EngineError):
            await server.look(metrics=(503, "away"))


def test_a_worker_tells_its_pool_under_several_names() -> None:
    rank = 'dp_rank="0",worker_id="1"'
    for name in ("gpu_cache_usage_percent", "kvstats_gpu_cache_usage_percent"):
        found = read_worker(f"dynamo_component_{name}{{{rank}}} 0.25\n")
        assert found is not None
        assert found.fraction == 0.25
    found = read_worker(
        "dynamo_component_kvstats_active_blocks 30\ndynamo_component_kvstats_total_blocks 40\n"
    )
    assert found is not None
    assert found.fraction == 0.75
    assert read_worker("vllm:num_requests_running 1\n") is None
    assert read_front("dynamo_component_uptime_seconds 1\n", 0.0) is None


async def test_a_worker_of_another_engine() -> None:
    page = (
        'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 3\n'
        'dynamo_component_inflight_requests{dynamo_endpoint="clear_kv_blocks"} 1\n'
        'dynamo_component_gpu_cache_usage_percent{dp_rank="0"} 0.5\n'
        'dynamo_component_gpu_cache_usage_percent{dp_rank="1"} 1.5\n'
    )
    async with worker() as server:
        reading = await server.look(metrics=page)
        told = server.why(reading)
    assert (reading.sample.running, reading.sample.kv_used_fraction) == (3, 0.75)
    assert "only vLLM's" in (told["decode_tok_s"] or "")


_LINES = [line for line in FRONT[2][1].decode().splitlines() if line.startswith("dynamo_frontend_")]
_VALUES = st.sampled_from(["NaN", "+Inf", "-Inf", "-1", "1e300", "1e17", "0", "7", "", "abc"])


@given(
    changes=st.lists(st.tuples(st.integers(0, len(_LINES) - 1), _VALUES), max_size=30),
    dropped=st.sets(st.integers(0, len(_LINES) - 1), max_size=40),
    junk=st.text(max_size=60),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_nonsense_reaches_a_frame(
    changes: list[tuple[int, str]], dropped: set[int], junk: str
) -> None:
    lines = list(_LINES)
    for index, value in changes:
        lines[index] = f"{lines[index].rpartition(' ')[0]} {value}"
    mutated = "\n".join([junk, *(line for index, line in enumerate(lines) if index not in dropped)])
    async with front() as server:
        for number, body in enumerate([FRONT[0][1].decode(), mutated, FRONT[2][1].decode(), mutated]):
            await server.survives(2.0 * number, metrics=body)
        await server.survives(200.0, **{"v1/models": junk})
    async with worker() as server:
        whole = WORKER[2][1].decode()
        for number, body in enumerate([whole, whole[: len(whole) // 2] + junk, mutated, whole]):
            await server.survives(2.0 * number, metrics=body)
