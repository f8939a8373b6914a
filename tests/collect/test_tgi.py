"""A TGI server as it is read, from hand-made replies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import UnauthorisedError
from agenttop.collect.engine.kinds.tgi import KIND
from tests.collect import samples
from tests.collect.canned import Scripted, why
from tests.collect.mutations import mutated

FIRST = samples.body("tgi/handmade/metrics-1.txt").decode()
SECOND = samples.body("tgi/handmade/metrics-2.txt").decode()
DRAFTS = samples.body("tgi/handmade/metrics-drafts.txt").decode()
ROUTES: dict[str, Any] = {"/info": samples.body("tgi/handmade/info.json"), "/metrics": FIRST}
near: Any = pytest.approx
LOCKED = (401, {"error": "Unauthorized"})


async def test_what_is_shown() -> None:
    server = Scripted(KIND, ROUTES)
    first = (await server.look(at=0.0)).sample
    reading = await server.look(at=3.0, metrics=SECOND)
    assert (first.name, first.version, first.model) == ("TGI", "3.3.4", "org/model")
    assert (first.running, first.waiting, first.context_limit_tokens) == (4, 2, 4096)
    assert first.decode_tok_s is None
    sample = reading.sample
    assert (sample.decode_tok_s, sample.window_s) == (near(200.0), near(3.0))
    assert (sample.per_sequence_tok_s, sample.per_sequence_of) == (near(50.0), 4)
    assert not sample.decode_is_floor
    assert (sample.prompt_tokens_total, sample.output_tokens_total, sample.finished_total) == (2400, 1600, 13)
    assert sample.finish_reasons == {"error: validation": 1}
    told = why(reading)
    assert "does not tell how much" in told["kv_used_fraction"]
    assert "only when a request ends" in told["prefill_tok_s"]
    assert set(server.asked) == {"/info", "/metrics"}  # and never /health, which may run a generation


async def test_drafts_that_were_taken_are_tokens_too() -> None:
    server = Scripted(KIND, {**ROUTES, "/metrics": SECOND})
    await server.look(at=0.0)
    sample = (await server.look(at=3.0, metrics=DRAFTS)).sample
    assert sample.decode_tok_s == near((600 + 300) / 3)
    assert sample.tokens_per_step == near(1.5)
    assert sample.accepted_tokens_total == 300


async def test_tokens_counted_at_the_end_are_no_live_rate() -> None:
    def without(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if "skipped" not in line)

    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0, metrics=without(FIRST))
    reading = await server.look(at=3.0, metrics=without(SECOND))
    assert (reading.sample.decode_tok_s, reading.sample.output_tokens_total) == (None, 1000)
    assert "only when a request ends" in why(reading)["decode_tok_s"]


async def test_latencies() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(at=0.0)
    found = {each.measure: each for each in (await server.look(at=6.0, metrics=SECOND)).latencies}
    assert set(found) == {"e2e", "queue"}
    assert (found["e2e"].count, found["e2e"].mean_s) == (2, near(2.5))


async def test_the_pool_of_older_versions() -> None:
    server = Scripted(KIND, {**ROUTES, "/info": samples.body("tgi/handmade/info-2.0.json")})
    sample = (await server.look()).sample
    assert (sample.kv_pool_tokens, sample.version, sample.sequences_max) == (65_536, "2.0.4", None)


async def test_before_the_first_request_and_without_figures() -> None:
    reading = await Scripted(KIND, {**ROUTES, "/metrics": ""}).look()
    assert (reading.sample.state, reading.sample.running) == ("ok", None)
    assert "with the first request" in why(reading)["running"]
    hidden = await Scripted(KIND, {"/info": ROUTES["/info"]}).look()
    assert "GET /metrics is not there" in why(hidden)["running"]


async def test_keys() -> None:
    reading = await Scripted(KIND, {**ROUTES, "/info": LOCKED}).look()
    assert reading.sample.running == 4
    assert [event.event for event in reading.events] == ["engine.locked"]
    with pytest.raises(UnauthorisedError):
        await Scripted(KIND, {"/info": LOCKED, "/metrics": LOCKED}).look()


async def test_another_engine_and_a_restart() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look(metrics=SECOND)
    readings = [await server.look(metrics=FIRST) for _ in range(6)]
    assert [event.event for reading in readings for event in reading.events] == ["engine.restart"]
    with pytest.raises(ChangedError):
        await Scripted(KIND, {}).look()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        path = data.draw(st.sampled_from(["/metrics", "/metrics", "/info"]))
        body = DRAFTS.encode() if path == "/metrics" else ROUTES["/info"]
        server.routes[path] = data.draw(mutated(body))
        server.now += 60.0 if path == "/info" else 0.0
        await server.survives()
