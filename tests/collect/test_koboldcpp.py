"""A KoboldCpp server as it is read: its last request, its queue, older builds, passwords, and odd answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import CutError
from agenttop.collect.engine.kinds.koboldcpp import KIND
from agenttop.collect.engine.recognise import recognise
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

PERF = samples.body("koboldcpp/handmade/perf.json")
OLD = samples.body("koboldcpp/handmade/perf-2023.json")
ROUTES = imitate.KOBOLD


async def test_figures_that_a_reply_lacks_have_a_reason_and_others_none() -> None:
    perf = {**json.loads(PERF), "queue": None, "last_eval_speed": None}
    reading = await Scripted(KIND, ROUTES).look(api__extra__perf=perf)
    assert reading.sample.last_prefill_tok_s is not None
    assert "GET /api/extra/perf does not tell it" in why(reading)["waiting"]
    assert "last_prefill_tok_s" not in why(reading)


async def test_what_it_tells() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    sample = reading.sample
    assert (sample.name, sample.version, sample.state) == ("KoboldCpp", "1.122.1", "ok")
    assert (sample.model, sample.context_limit_tokens) == ("koboldcpp/Qwen3-8B-Q4_K_M", 8192)
    assert (sample.last_decode_tok_s, sample.last_prefill_tok_s) == (250.0, pytest.approx(8333.3, abs=0.1))
    assert (sample.waiting, sample.running, sample.finished_total) == (2, None, 42)
    assert (sample.decode_tok_s, sample.prefill_tok_s) == (None, None)
    assert "when it has ended" in why(reading)["decode_tok_s"]
    assert "not on how many requests" in why(reading)["running"]


async def test_older_builds_tell_milliseconds_for_each_token() -> None:
    sample = (await Scripted(KIND, ROUTES).look(api__extra__perf=OLD)).sample
    assert (sample.last_decode_tok_s, sample.last_prefill_tok_s) == (25.0, 80.0)
    assert (sample.running, sample.waiting, sample.finished_total) == (0, 0, None)


async def test_before_the_first_request_there_is_no_speed() -> None:
    idle = {"last_process_speed": 0, "last_eval_speed": 0, "last_eval": 0.0, "queue": 0, "idle": 1}
    reading = await Scripted(KIND, ROUTES).look(api__extra__perf=idle)
    assert (reading.sample.last_decode_tok_s, reading.sample.running) == (None, 0)
    assert why(reading)["last_decode_tok_s"] == "no request has ended yet"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("koboldcpp/protected-model", "holders of its password"), ("inactive", "no text model is loaded")],
)
async def test_a_model_that_is_not_shown(name: str, reason: str) -> None:
    reading = await Scripted(KIND, ROUTES).look(api__v1__model={"result": name})
    assert reading.sample.model is None
    assert reason in why(reading)["model"]
    assert bool(fixes(reading)) == ("password" in reason)


async def test_identity_is_asked_once_a_minute_and_after_a_restart() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(30):
        await server.look()
    assert server.asked.count("/api/extra/perf") == 30
    assert server.asked.count("/api/v1/model") == 1
    assert "/api/extra/generate/check" not in server.asked
    reading = await server.look(api__extra__perf=PERF.replace(b"3600.5", b"2.5"))
    assert [event.event for event in reading.events] == ["engine.restart"]
    assert server.asked.count("/api/v1/model") == 2


async def test_a_router_that_loads_a_model_is_away() -> None:
    server = Scripted(KIND, ROUTES)
    with pytest.raises(CutError):
        await server.look(api__extra__perf=(502, "<html>"))


@pytest.mark.parametrize(
    "routes",
    [
        {"api__extra__perf": (404, {})},
        {"api__extra__version": {"result": "somebody"}},
    ],
)
async def test_another_engine_at_its_address_is_noticed(routes: dict[str, Any]) -> None:
    with pytest.raises(ChangedError):
        await Scripted(KIND, ROUTES).look(**routes)


@pytest.mark.parametrize("without", ["/v1/models", "/props", None])
async def test_it_is_not_taken_for_those_it_imitates(without: str | None) -> None:
    routes = {path: body for path, body in ROUTES.items() if path != without}
    with imitate.serves(routes, server="ConcedoLlamaForKoboldServer/1", kind="KoboldCpp") as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        assert await adapter.alive()
        await adapter.client.close()
    assert (adapter.name, reading.sample.waiting) == ("KoboldCpp", 2)


async def test_a_password_does_not_hide_it() -> None:
    """`/v1/models` may be locked by a proxy in between; the rest is open."""
    with imitate.serves(ROUTES | {"/v1/models": (401, {})}, kind="KoboldCpp") as server:
        adapter = await recognise(server.url)
        await adapter.client.close()
    assert adapter.name == "KoboldCpp"


BODIES = [
    ("/api/extra/perf", PERF),
    ("/api/extra/perf", OLD),
    ("/api/v1/model", b'{"result": "koboldcpp/m"}'),
]
BODIES += [("/api/extra/true_max_context_length", b'{"value": 8192}')]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        path, body = data.draw(st.sampled_from(BODIES))
        server.routes[path] = data.draw(mutated(body))
        server.now += 61
        await server.survives()
