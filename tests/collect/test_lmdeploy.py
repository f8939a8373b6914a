"""An LMDeploy server as it is read, from hand-made replies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import UnauthorisedError
from agenttop.collect.engine.kinds.lmdeploy import KIND
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

FIRST = samples.body("lmdeploy/handmade/metrics-1.txt").decode()
SECOND = samples.body("lmdeploy/handmade/metrics-2.txt").decode()
ROUTES: dict[str, Any] = {
    "/v1/models": samples.body("lmdeploy/handmade/v1_models.json"),
    "/metrics": FIRST,
}
near: Any = pytest.approx
LOCKED = (401, {"error": "Unauthorized"})


async def test_what_is_shown() -> None:
    server = Scripted(KIND, ROUTES)
    first = (await server.look(at=0.0)).sample
    second = await server.look(at=3.0, metrics=SECOND)
    assert (first.name, first.model, first.running, first.waiting) == ("LMDeploy", "internlm3", 4, 3)
    assert first.waiting_reasons == {"queued": 2, "no free handle": 1}
    assert (first.kv_used_fraction, first.kv_pool_tokens, first.kv_layout) == (0.375, None, "paged")
    assert (first.decode_tok_s, first.prefill_tok_s, first.window_s) == (None, None, None)
    sample = second.sample
    assert (sample.decode_tok_s, sample.window_s) == (near(100.0), near(3.0))
    assert (sample.per_sequence_tok_s, sample.per_sequence_of) == (near(25.0), 4)
    assert sample.prefill_tok_s == near(1500 / 3)  # cached ones are not computed
    assert (sample.prompt_tokens_total, sample.output_tokens_total, sample.cached_tokens_total) == (
        6000,
        1500,
        1500,
    )
    assert (sample.finish_reasons, sample.finished_total) == ({"finish": 4}, 4)
    assert sample.prefix_hit_fraction == 0.25
    assert "no slots" in why(second)["slots_total"]
    assert "only the share" in why(second)["kv_pool_tokens"]
    assert set(server.asked) == {"/metrics", "/v1/models"}


async def test_latencies() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0)
    reading = await server.look(at=6.0, metrics=SECOND)
    found = {each.measure: each for each in reading.latencies}
    assert set(found) == {"ttft", "itl", "e2e", "queue"}
    assert (found["itl"].count, found["itl"].mean_s) == (300, near(0.02))
    assert (found["e2e"].count, found["e2e"].mean_s) == (2, near(3.0))


async def test_engines_are_added_up_and_shown_apart() -> None:
    def two(text: str) -> str:
        other = text.replace('engine="0"', 'engine="1"').replace(
            'usage_perc{engine="1",model_name="internlm3"} 0.5',
            'usage_perc{engine="1",model_name="internlm3"} 0.9',
        )
        return text + other

    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0, metrics=two(FIRST))
    reading = await server.look(at=3.0, metrics=two(SECOND))
    sample = reading.sample
    assert (sample.running, sample.data_parallel, sample.decode_tok_s) == (8, 2, near(200.0))
    assert (sample.kv_used_fraction, sample.kv_fullest_fraction) == (near(0.7), 0.9)
    assert [(part.part, part.running, part.decode_tok_s) for part in reading.parts] == [
        ("0", 4, near(100.0)),
        ("1", 4, near(100.0)),
    ]


async def test_speculation() -> None:
    def drafts(text: str, drafts: int, drafted: int, accepted: int) -> str:
        for name, count in (("drafts", drafts), ("draft_tokens", drafted), ("accepted_tokens", accepted)):
            line = f'lmdeploy:spec_decode_num_{name}_total{{engine="0",model_name="internlm3"}}'
            text = text.replace(f"{line} 0.0", f"{line} {count}.0")
        return text

    server = Scripted(KIND, ROUTES)
    assert "speculative decoding is off" in why(await server.look(at=0.0))["tokens_per_step"]
    await server.look(at=1.0, metrics=drafts(FIRST, 10, 30, 10))
    sample = (await server.look(at=2.0, metrics=drafts(SECOND, 110, 330, 160))).sample
    assert (sample.drafted_tokens_total, sample.accepted_tokens_total) == (330, 160)
    assert sample.draft_acceptance == near(160 / 330)
    assert sample.tokens_per_step == near(1 + 160 / 110)


async def test_a_prompt_in_progress_has_no_rate() -> None:
    """Nine requests run, and of one of them no token has come: its prefill is being computed."""
    label = '{engine="0",model_name="internlm3"}'
    more = FIRST.replace(f"num_requests_running{label} 4.0", f"num_requests_running{label} 5.0")
    server = Scripted(KIND, ROUTES)
    for second in range(6):
        reading = await server.look(at=float(second), metrics=more)
    assert reading.sample.prefill_tok_s is None
    assert "with its first token" in why(reading)["prefill_tok_s"]
    for second in range(6, 12):
        reading = await server.look(at=float(second), metrics=FIRST)
    assert reading.sample.prefill_tok_s == 0.0


@pytest.mark.parametrize("body", [(404, {"detail": "Not Found"}), "python_info 1\n"])
async def test_metrics_that_are_off(body: Any) -> None:
    server = Scripted(KIND, {**ROUTES, "/metrics": body})
    reading = await server.look()
    assert (reading.sample.state, reading.sample.model, reading.sample.running) == ("ok", "internlm3", None)
    assert any("without --disable-metrics" in fix for fix in fixes(reading))


async def test_keys() -> None:
    reading = await Scripted(KIND, {**ROUTES, "/metrics": LOCKED}).look()
    assert (reading.sample.state, reading.sample.running) == ("ok", None)
    assert "needs a key" in why(reading)["running"]
    server = Scripted(KIND, {**ROUTES, "/v1/models": LOCKED})
    reading = await server.look()
    assert (reading.sample.running, reading.sample.model) == (4, "internlm3")
    assert [event.event for event in reading.events] == ["engine.locked"]
    with pytest.raises(UnauthorisedError):
        await Scripted(KIND, {"/metrics": LOCKED, "/v1/models": LOCKED}).look()


async def test_another_engine_and_a_restart() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(metrics=SECOND)
    readings = [await server.look(metrics=FIRST) for _ in range(6)]
    assert [event.event for reading in readings for event in reading.events] == ["engine.restart"]
    assert readings[0].sample.decode_tok_s is None
    with pytest.raises(ChangedError):
        await server.look(metrics=(404, {}))
    with pytest.raises(ChangedError):
        await Scripted(KIND, {**ROUTES, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}).look()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        path = data.draw(st.sampled_from(["/metrics", "/metrics", "/v1/models"]))
        body = SECOND.encode() if path == "/metrics" else ROUTES["/v1/models"]
        server.routes[path] = data.draw(mutated(body))
        await server.survives()
