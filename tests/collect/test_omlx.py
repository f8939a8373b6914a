"""An oMLX server as it is read: its totals, its models, keys, and odd answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.access.ways import PLAIN
from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.omlx import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.access import with_key
from tests.collect import fronts, samples
from tests.collect import imitations as imitate
from tests.collect.canned import Scripted, why
from tests.collect.mutations import mutated

STATUS, MODELS = samples.body("omlx/handmade/status.json"), samples.body("omlx/handmade/models_status.json")
ROUTES: dict[str, Any] = {
    "/api/status": STATUS,
    "/v1/models/status": MODELS,
    "/health": samples.body("omlx/handmade/health.json"),
    "/v1/models": {"object": "list", "data": [{"id": "Qwen3.6-35B-A3B-4bit", "owned_by": "omlx"}]},
}
LOCKED = (401, {"detail": "Invalid API key"})


async def test_what_it_tells() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    sample = reading.sample
    assert (sample.name, sample.version, sample.state) == ("oMLX", "0.6.4", "ok")
    assert (sample.model, sample.context_limit_tokens) == ("Qwen3.6-35B-A3B-4bit", 262144)
    assert (sample.running, sample.waiting) == (2, 1)  # of three active ones, one waits
    assert (sample.prompt_tokens_total, sample.output_tokens_total) == (218000, 92500)
    assert (sample.cached_tokens_total, sample.finished_total) == (138000, 142)
    assert sample.prefix_hit_fraction == pytest.approx(0.633)
    assert sample.memory_bytes == 18_400_000_000
    assert [(part.part, part.state, part.memory_bytes) for part in reading.parts] == [
        ("Qwen3.6-35B-A3B-4bit", "loaded", 18_400_000_000),
        ("bge-m3", "loading", None),
        ("Qwen3.8-27B-4bit", "unloaded", None),
    ]
    assert reading.parts[0].note == "pinned"
    assert fronts.unexplained(reading) == []


async def test_totals_that_move_when_a_request_ends_are_no_rate() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    found = json.loads(STATUS)
    for _ in range(5):
        found["total_completion_tokens"] += 4000
        reading = await server.look(api__status=found)
        assert (reading.sample.decode_tok_s, reading.sample.last_decode_tok_s) == (None, None)
    assert "averages over the session" in why(reading)["decode_tok_s"]


async def test_the_model_used_last_stands_for_several() -> None:
    listed = json.loads(MODELS)
    listed["models"][2] |= {"loaded": True, "last_access": 1791119999.0, "max_context_window": 40960}
    reading = await Scripted(KIND, ROUTES).look(v1__models__status=listed)
    assert (reading.sample.model, reading.sample.context_limit_tokens) == ("Qwen3.8-27B-4bit", 40960)


async def test_a_version_without_the_states_of_models() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__models__status=(404, {}))
    assert (reading.sample.model, reading.sample.context_limit_tokens) == ("Qwen3.6-35B-A3B-4bit", None)
    assert [(part.part, part.state) for part in reading.parts] == [("Qwen3.6-35B-A3B-4bit", "loaded")]
    assert "GET /v1/models/status" in why(reading)["models"]


async def test_models_are_asked_again_when_one_was_loaded() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(9):
        await server.look()
    assert server.asked.count("/v1/models/status") == 1
    found = json.loads(STATUS) | {"loaded_models": ["bge-m3"]}
    await server.look(api__status=found)
    assert server.asked.count("/v1/models/status") == 2


async def test_nothing_loaded() -> None:
    found = json.loads(STATUS) | {"loaded_models": [], "active_requests": 0, "waiting_requests": 0}
    reading = await Scripted(KIND, ROUTES).look(api__status=found, v1__models__status={"models": []})
    assert (reading.sample.model, reading.sample.running, reading.parts) == (None, 0, [])
    assert "no model is loaded" in why(reading)["model"]


@pytest.mark.parametrize("key", [None, "wrong-key-1234"])
async def test_what_is_open_without_a_key_is_shown(key: str | None) -> None:
    async def seen() -> Circumstances:
        return Circumstances(process=ServerProcess(pid=7, command=Command(["/opt/bin/omlx", "serve"])))

    routes = ROUTES | dict.fromkeys(("/api/status", "/v1/models", "/v1/models/status"), LOCKED)
    with imitate.serves(routes, kind="oMLX") as server:
        adapter = await recognise(server.url, access=with_key(key) if key else PLAIN, process=seen)
        sample = (await adapter.poll()).sample
        assert await adapter.alive()
        await adapter.client.close()
    assert (adapter.name, sample.state, sample.memory_bytes) == ("oMLX", "unauthorised", 18_400_000_000)
    assert ("does not accept" if key else "--api-key-env") in (sample.note or "")


@pytest.mark.parametrize("models", [ROUTES["/v1/models"], {"object": "list", "data": []}])
async def test_it_is_recognised_also_with_no_models(models: Any) -> None:
    with imitate.serves(ROUTES | {"/v1/models": models}, kind="oMLX") as server:
        adapter = await recognise(server.url)
        await adapter.client.close()
    assert adapter.name == "oMLX"


async def test_another_engine_at_its_address_is_noticed() -> None:
    with pytest.raises(ChangedError):
        await Scripted(KIND, ROUTES).look(api__status=(404, {}))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/api/status"] = data.draw(mutated(STATUS))
        server.routes["/v1/models/status"] = data.draw(mutated(MODELS))
        server.now += 11
        await server.survives()
