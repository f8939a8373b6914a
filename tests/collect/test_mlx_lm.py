"""mlx_lm.server as it is read, by replies of a real one (0.32.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.mlx_lm import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

MODELS = samples.body("mlx_lm/v1_models.json")
ROUTES: dict[str, Any] = {"/health": samples.body("mlx_lm/health.json"), "/v1/models": MODELS}
COMMAND = ["/venv/bin/python3.11", "/venv/bin/mlx_lm.server", "--model", "mlx-community/Qwen3-8B-4bit"]


def seen_as(server: Scripted, words: list[str]) -> None:
    process = ServerProcess(pid=7, command=Command(words))
    server.adapter = KIND.adapter(server._client, Circumstances(process=process))


async def test_what_it_tells() -> None:
    server = Scripted(KIND, ROUTES)
    reading = await server.look()
    sample = reading.sample
    assert (sample.name, sample.state, sample.model) == ("mlx_lm", "ok", "tiny-hf")
    assert (sample.running, sample.decode_tok_s, reading.parts) == (None, None, [])
    assert "its own agents' streams" in why(reading)["decode_tok_s"]
    assert any("vllm-mlx" in fix for fix in fixes(reading))
    seen_as(server, COMMAND)
    sample = (await server.look()).sample
    assert (sample.model, sample.pid) == ("mlx-community/Qwen3-8B-4bit", 7)


async def test_all_that_was_downloaded_is_not_what_is_served() -> None:
    listed = {"object": "list", "data": [{"id": "a/b", "object": "model"}, {"id": "c/d", "object": "model"}]}
    reading = await Scripted(KIND, ROUTES).look(v1__models=listed)
    assert reading.sample.model is None
    assert [part.part for part in reading.parts] == ["a/b", "c/d"]
    assert "not the one it serves" in why(reading)["model"]


async def test_a_list_that_is_empty_bytes() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__models=b"")
    assert (reading.sample.state, reading.sample.model) == ("ok", None)
    assert "lists no model" in why(reading)["model"]


async def test_the_folder_of_models_is_looked_through_once_a_minute() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(60):
        await server.look()
    assert (server.asked.count("/health"), server.asked.count("/v1/models")) == (20, 1)


async def test_a_server_whose_thread_has_ended() -> None:
    reading = await Scripted(KIND, ROUTES).look(health=(503, {"status": "unavailable"}))
    assert reading.sample.state == "down"
    assert "restart it" in (reading.sample.note or "")


@pytest.mark.parametrize("models", [MODELS, b"", {"object": "list", "data": []}])
async def test_it_is_known_by_its_process(models: Any) -> None:
    async def seen() -> Circumstances:
        return Circumstances(process=ServerProcess(pid=7, command=Command(COMMAND)))

    with imitate.serves(ROUTES | {"/v1/models": models}, server="BaseHTTP/0.6", kind="mlx_lm") as server:
        adapter = await recognise(server.url, process=seen)
        assert await adapter.alive()
        await adapter.client.close()
    assert adapter.name == "mlx_lm"


async def test_a_version_without_health() -> None:
    server = Scripted(KIND, ROUTES | {"/health": (404, b"Not Found")})
    assert (await server.look()).sample.state == "ok"
    server.routes.clear()
    with pytest.raises(ChangedError):
        await server.look(at=99.0)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/v1/models"] = data.draw(mutated(MODELS))
        server.routes["/health"] = data.draw(mutated(ROUTES["/health"]))
        server.now += 61
        await server.survives()
