"""LiteLLM proxy: golden cases over captures of the real one."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.litellm import KIND, Deployment, LiteLlmAdapter, PerToken, deployments
from agenttop.collect.engine.recognise import recognise
from tests.collect import fronts, samples
from tests.collect import imitations as imitate
from tests.collect.frames_check import assert_sane

IDLE = samples.body("litellm/metrics_idle.txt").decode()
BUSY = gzip.decompress(samples.body("litellm/metrics_busy.txt.gz")).decode()
AFTER = gzip.decompress(samples.body("litellm/metrics_after.txt.gz")).decode()
OFF = (404, {"detail": "Not Found"})
LOCKED = (401, "Unauthorized access to metrics endpoint")


def litellm(**routes: Any) -> imitate.Imitation:
    changed = {f"/{name.replace('_', '/')}": reply for name, reply in routes.items()}
    return imitate.serves({**imitate.LITELLM, **changed}, kind="LiteLLM")


async def test_the_busy_capture() -> None:
    """Two requests run; the third in flight is the question itself."""
    with litellm() as front:
        each = fronts.adapter(KIND, front.url, Circumstances())
        reading = await fronts.look(each)
        await each.client.close()
        assert "GET /v1/models" not in front.asked  # refused questions stand in the proxy's metrics
        assert "GET /health/backlog" not in front.asked
    sample = reading.sample
    assert (sample.name, sample.front, sample.state, sample.running) == ("LiteLLM", True, "ok", 2)
    assert (sample.prompt_tokens_total, sample.output_tokens_total) == (52, 3100)
    assert (sample.decode_tok_s, sample.prefill_tok_s, sample.waiting) == (None, None, None)
    assert sample.finished_total == 5
    told = fronts.parts(reading)
    assert {name.partition(" (")[0]: part.state for name, part in told.items()} == {
        "broken": "partial outage",
        "tiny-simulated": "healthy",
    }
    assert {part.role for part in told.values()} == {"deployment"}
    assert {part.url for part in told.values()} == {"http://127.0.0.1:8001", "http://127.0.0.1:1"}
    why = fronts.reasons(reading)
    assert "engines behind it" in (why["decode_tok_s"].fix or "")
    assert "needs a key" in (why["model"].why or "")
    assert fronts.unexplained(reading) == []


async def test_nothing_has_passed_yet() -> None:
    with litellm(metrics_=IDLE) as front:
        each = fronts.adapter(KIND, front.url, Circumstances())
        reading = await fronts.look(each)
        await each.client.close()
    assert (reading.sample.running, reading.sample.output_tokens_total, reading.parts) == (0, None, [])
    assert fronts.unexplained(reading) == []
    assert "none since it was started" in (fronts.reasons(reading)["output_tokens_total"].why or "")


async def test_what_ended_between_two_looks() -> None:
    text = [BUSY]
    with litellm(metrics_=lambda: text[0]) as front:
        each = fronts.adapter(KIND, front.url, Circumstances())
        await fronts.look(each)
        text[0] = AFTER
        each.client.now.time += 10  # type: ignore[attr-defined]
        reading = await each.poll()
        again = await each.poll()
        await each.client.close()
    assert (reading.sample.running, reading.sample.output_tokens_total) == (0, 6100)
    notes = [part.note for part in reading.parts if part.note]
    assert len(notes) == 1
    assert "mean of 2 that ended in the last 10 s" in notes[0]
    measures = {latency.measure: latency for latency in reading.latencies}
    assert (measures["ttft"].count, measures["e2e"].count) == (2, 2)
    assert again.latencies == []
    assert again.sample == reading.sample  # it is asked every 2 s


@pytest.mark.parametrize(
    ("metrics", "fix"),
    [(OFF, 'callbacks: ["prometheus"]'), (LOCKED, "require_auth_for_metrics_endpoint: false")],
)
async def test_without_metrics_it_says_what_helps(metrics: Any, fix: str) -> None:
    with litellm(metrics_=metrics) as front:
        each = fronts.adapter(KIND, front.url, Circumstances())
        reading = await fronts.look(each, 10)
        await each.client.close()
        assert front.asked.count("GET /metrics/") == 1  # then after a minute
    assert (reading.sample.state, reading.sample.running) == ("ok", None)
    assert fix in (fronts.reasons(reading)["running"].fix or "")


async def test_it_shuts_down_or_something_else_comes() -> None:
    for reply, error in (((503, {"status": "shutting_down"}), EngineError), (OFF, ChangedError)):
        with litellm(metrics_=OFF, health_readiness=reply) as front:
            each = fronts.adapter(KIND, front.url, Circumstances())
            with pytest.raises(error):
                await each.poll()
            await each.client.close()


@pytest.mark.parametrize(
    "front_page", [b'"LiteLLM: RUNNING"', "<html><title>LiteLLM API - Swagger UI</title>", OFF]
)
async def test_it_is_recognised(front_page: Any) -> None:
    """By its front page, or where that is switched off by its readiness; its models are owned by `openai`."""
    with imitate.serves({**imitate.LITELLM, "/": front_page}, kind="LiteLLM") as front:
        adapter = await recognise(front.url)
        await adapter.client.close()
    assert isinstance(adapter, LiteLlmAdapter)


def test_deployments_whose_series_disagree_have_no_state() -> None:
    text = (
        'litellm_deployment_state{api_base="http://k:v@h:1/?key=x",litellm_model_name="a",model_id="1"} 0.0\n'
        'litellm_deployment_state{api_base="http://h:1/v1",litellm_model_name="b",model_id="1"} 2.0\n'
        'litellm_deployment_state{api_base="",litellm_model_name="c",model_id="2"} 7\n'
    )
    assert [(each.name, each.state) for each in deployments(text)] == [("a", None), ("c", None)]


def test_time_per_token_is_of_the_last_minute() -> None:
    pace = PerToken()
    each = Deployment("1", "a", "")

    def told(t: float, seconds: float, requests: int) -> str | None:
        return pace.of(t, Deployment(each.identity, each.name, "", None, seconds, requests))

    assert told(0, 1.0, 100) is None
    assert (told(30, 1.5, 110) or "").startswith("50 ms per output token: the mean of 10")
    assert (told(100, 1.6, 111) or "").startswith("100 ms per output token: the mean of 1 ")
    assert told(101, 0.1, 1) is None  # restarted


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_its_metrics_hold(data: st.DataObject) -> None:
    lines = [line for line in BUSY.splitlines() if line.startswith("litellm_")]
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=40))
    value = data.draw(st.sampled_from(["NaN", "-3", "+Inf", "1e300", "0", "x", ""]))
    place = data.draw(st.integers(0, max(0, len(chosen) - 1)))
    if chosen:
        chosen[place] = chosen[place].rpartition(" ")[0] + " " + value

    async def run() -> None:
        with litellm(metrics_="\n".join(chosen)) as front:
            each = fronts.adapter(KIND, front.url, Circumstances())
            try:
                assert_sane(await fronts.look(each, 4))
            except (EngineError, ChangedError):
                pass
            finally:
                await each.client.close()

    asyncio.run(run())
