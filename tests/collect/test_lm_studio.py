"""An LM Studio server as it is read: both lists, several models, a token, and odd answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError, UnauthorisedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.lm_studio import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

NEWER, OLDER = samples.body("lm_studio/handmade/v1.json"), samples.body("lm_studio/handmade/v0.json")
ROUTES = imitate.LM_STUDIO
UNKNOWN = {"error": "Unexpected endpoint or method. (GET /api/v1/models)"}
LOCKED = (401, {"error": {"message": "An LM Studio API token is required"}})


async def test_the_newer_list() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    sample = reading.sample
    assert (sample.name, sample.state, sample.model) == ("LM Studio", "ok", "qwen/qwen3-30b-a3b")
    assert (sample.context_limit_tokens, sample.quantisation, sample.sequences_max) == (32768, "Q4_K_M", 4)
    assert [(part.part, part.state, part.context_limit_tokens) for part in reading.parts] == [
        ("qwen/qwen3-30b-a3b", "loaded", 32768),
        ("text-embedding-nomic-embed-text-v1.5", "not-loaded", 2048),
    ]
    assert "not what they do" in why(reading)["decode_tok_s"]
    assert any("lms ps --json" in fix for fix in fixes(reading))


async def test_the_older_list() -> None:
    server = Scripted(KIND, ROUTES | {"/api/v1/models": UNKNOWN})
    reading = await server.look()
    for _ in range(20):
        await server.look()
    sample = reading.sample
    assert (sample.model, sample.context_limit_tokens) == ("meta-llama-3.1-8b-instruct", 4096)
    assert (sample.quantisation, sample.sequences_max) == ("Q4_K_M", None)
    assert [part.state for part in reading.parts] == ["loaded", "not-loaded"]
    assert server.asked.count("/api/v1/models") == 1  # it writes a line of its log for what it does not know
    assert 7 <= server.asked.count("/api/v0/models") <= 8


async def test_several_loaded_models_have_no_figures_in_common() -> None:
    listed = json.loads(NEWER)
    listed["models"][0]["loaded_instances"].append({"id": "qwen/qwen3-30b-a3b:2", "config": {}})
    reading = await Scripted(KIND, ROUTES).look(api__v1__models=listed)
    assert (reading.sample.model, reading.sample.context_limit_tokens) == (None, None)
    assert [part.part for part in reading.parts if part.state == "loaded"] == [
        "qwen/qwen3-30b-a3b",
        "qwen/qwen3-30b-a3b:2",
    ]
    assert "several models" in why(reading)["model"]


async def test_nothing_loaded() -> None:
    reading = await Scripted(KIND, ROUTES).look(api__v1__models={"models": []})
    assert (reading.sample.state, reading.sample.model, reading.parts) == ("ok", None, [])
    assert "no model is loaded" in why(reading)["model"]


@pytest.mark.parametrize("models", [ROUTES["/v1/models"], {"object": "list", "data": []}])
async def test_it_is_recognised_with_one_odd_question(models: Any) -> None:
    with imitate.serves(ROUTES | {"/v1/models": models}, kind="LM Studio") as server:
        adapter = await recognise(server.url)
        asked = [line.split(" ")[1] for line in server.asked]
        assert await adapter.alive()
        await adapter.client.close()
    assert adapter.name == "LM Studio"
    assert len(set(asked) - {"/v1/models", "/props"}) <= (0 if models is ROUTES["/v1/models"] else 4)


async def test_a_token_is_told() -> None:
    async def seen() -> Circumstances:
        return Circumstances(process=ServerProcess(pid=7, command=Command(["/opt/lmstudio/llmster"])))

    routes = dict.fromkeys({*ROUTES, "/props"}, LOCKED)
    with imitate.serves(routes, kind="LM Studio") as server:
        adapter = await recognise(server.url, process=seen)
        assert adapter.name == "LM Studio"
        with pytest.raises(UnauthorisedError):
            await adapter.poll()
        await adapter.client.close()


async def test_another_engine_at_its_address_is_noticed() -> None:
    server = Scripted(KIND, ROUTES)
    await server.look()
    server.routes.clear()
    with pytest.raises(ChangedError):
        await server.look(at=60.0)
    with pytest.raises(EngineError):
        await Scripted(KIND, dict.fromkeys(ROUTES, UNKNOWN)).look()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/api/v1/models"] = data.draw(mutated(NEWER))
        server.routes["/api/v0/models"] = data.draw(mutated(OLDER))
        server.now += 5
        await server.survives()
