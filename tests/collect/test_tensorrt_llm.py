"""A TensorRT-LLM server as it is read, from hand-made replies. (That nothing is drained: test_recognise.)"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.harmless import forbidden
from agenttop.collect.engine.http import UnauthorisedError
from agenttop.collect.engine.kinds.tensorrt_llm import KIND
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

NEW = samples.body("tensorrt_llm/handmade/prometheus.txt").decode()
LATER = samples.body("tensorrt_llm/handmade/prometheus-later.txt").decode()
OLD = samples.body("tensorrt_llm/handmade/prometheus-1.1.txt").decode()
OLD_LATER = samples.body("tensorrt_llm/handmade/prometheus-1.1-later.txt").decode()
PAGE = "/prometheus/metrics"
ROUTES: dict[str, Any] = {
    "/v1/models": samples.body("tensorrt_llm/handmade/v1_models.json"),
    "/version": samples.body("tensorrt_llm/handmade/version.json"),
    PAGE: NEW,
}
near: Any = pytest.approx
LOCKED = (401, {"error": "Unauthorized"})


def test_what_would_be_drained_is_not_on_the_list() -> None:
    assert not {"/metrics", "/perf_metrics", "/kv_cache_events", "/health_generate"} & KIND.allowed_paths
    assert forbidden(["/perf_metrics"]) == ["/perf_metrics"]


async def test_gauges_are_of_now_only_right_after_a_request_has_ended() -> None:
    server = Scripted(KIND, ROUTES)
    first = await server.look(at=0.0)
    ended = (await server.look(at=1.0, prometheus__metrics=LATER)).sample
    still = (await server.look(at=2.0)).sample
    later = await server.look(at=9.0)
    assert (first.sample.running, first.sample.kv_used_fraction) == (None, None)
    assert "none has ended just now" in why(first)["running"]
    assert (ended.running, ended.waiting, ended.kv_used_fraction) == (2, 0, 0.2)
    assert (ended.kv_pool_tokens, ended.kv_used_tokens) == (64_000, 12_800)
    assert still.running == 2
    assert (later.sample.running, later.sample.kv_pool_tokens) == (None, 64_000)


async def test_what_is_shown() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0)
    reading = await server.look(at=6.0, prometheus__metrics=LATER)
    sample = reading.sample
    assert (sample.name, sample.version, sample.model) == ("TensorRT-LLM", "1.2.0", "llama")
    assert (sample.quantisation, sample.kv_dtype, sample.sequences_max) == ("FP8", "fp8", 64)
    assert (sample.finished_total, sample.finish_reasons) == (5, {"stop": 4, "length": 1})
    assert (sample.prompt_tokens_total, sample.output_tokens_total, sample.cached_tokens_total) == (
        500,
        1000,
        125,
    )
    assert sample.prefix_hit_fraction == 0.85
    assert (sample.decode_tok_s, sample.last_decode_tok_s) == (None, near(50.0))
    assert "only when a request ends" in why(reading)["decode_tok_s"]
    found = {each.measure: each for each in reading.latencies}
    assert set(found) == {"ttft", "e2e", "queue"}
    assert found["e2e"].mean_s == near(2.0)
    assert set(server.asked) == {PAGE, "/v1/models", "/version"}


async def test_the_unprefixed_names_of_older_versions() -> None:
    server = Scripted(KIND, {**ROUTES, PAGE: OLD})
    await server.look(at=0.0)
    reading = await server.look(at=6.0, prometheus__metrics=OLD_LATER)
    assert (reading.sample.finished_total, reading.sample.running) == (5, None)
    assert {each.measure for each in reading.latencies} == {"ttft", "e2e", "queue"}
    assert "enable_iter_perf_stats" in why(reading)["running"]
    assert any("enable_iter_perf_stats: true" in fix for fix in fixes(reading))


async def test_undefined_is_no_model() -> None:
    server = Scripted(KIND, {PAGE: NEW.replace('model="org/llama"', 'model="undefined"')})
    assert (await server.look()).sample.model is None
    assert (await Scripted(KIND, {PAGE: NEW}).look()).sample.model == "org/llama"


async def test_figures_that_are_off_and_those_that_have_not_come_yet() -> None:
    off = await Scripted(KIND, {**ROUTES, PAGE: (404, {})}).look()
    assert any("return_perf_metrics: true" in fix for fix in fixes(off))
    assert (off.sample.state, off.sample.model) == ("ok", "llama")
    empty = await Scripted(KIND, {**ROUTES, PAGE: ""}).look()
    assert "none has ended yet" in why(empty)["running"]


async def test_gauges_of_several_processes_are_not_added_up() -> None:
    twice = LATER + "\n".join(
        line.replace('pid="4242"', 'pid="7"') for line in LATER.splitlines() if "num_requests_running" in line
    )
    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0)
    reading = await server.look(at=1.0, prometheus__metrics=twice + "\n")
    assert (reading.sample.running, reading.sample.waiting) == (None, 0)
    assert "several processes" in why(reading)["running"]


async def test_keys_restarts_and_another_engine() -> None:
    reading = await Scripted(KIND, {**ROUTES, "/v1/models": LOCKED}).look()
    assert reading.sample.finished_total == 4
    assert [event.event for event in reading.events] == ["engine.locked"]
    with pytest.raises(UnauthorisedError):
        await Scripted(KIND, dict.fromkeys(ROUTES, LOCKED)).look()
    server = Scripted(KIND, {**ROUTES, PAGE: LATER})
    await server.look()
    readings = [await server.look(prometheus__metrics=NEW) for _ in range(6)]
    assert [event.event for reading in readings for event in reading.events] == ["engine.restart"]
    with pytest.raises(ChangedError):
        await Scripted(KIND, {**ROUTES, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}).look()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    bodies = [
        (PAGE, LATER.encode()),
        (PAGE, OLD.encode()),
        *((path, ROUTES[path]) for path in ("/v1/models", "/version")),
    ]
    for _ in range(3):
        path, body = bodies[data.draw(st.integers(0, len(bodies) - 1))]
        server.routes[path] = data.draw(mutated(body))
        await server.survives()
