"""llama-cpp-python's server: what would cut off a stream is not asked, not even to recognise it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.llama_cpp_python import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

DESCRIPTION = samples.body("llama_cpp_python/handmade/openapi.json")
ROUTES: dict[str, Any] = {
    "/openapi.json": DESCRIPTION,
    "/v1/models": {
        "object": "list",
        "data": [{"id": "m", "object": "model", "owned_by": "me", "permissions": []}],
    },
}
NUMBERED = "X-Request-ID: 0123456789abcdef0123456789abcdef\r\n"
COMMAND = ["python3", "-m", "llama_cpp.server", "--model", "/models/qwen.gguf", "--n_ctx", "8192"]


def running(words: list[str]) -> Callable[[], Awaitable[Circumstances]]:
    async def seen() -> Circumstances:
        return Circumstances(process=ServerProcess(pid=7, command=Command(words)))

    return seen


@pytest.mark.parametrize(
    ("process", "headers"),
    [(None, NUMBERED), (running(COMMAND), NUMBERED), (running(COMMAND), "")],
    ids=["by its replies", "by both", "by its process"],
)
async def test_its_list_of_models_is_never_asked_for(process: Any, headers: str) -> None:
    with imitate.serves(ROUTES, headers=headers, kind="llama-cpp-python") as server:
        adapter = await recognise(server.url, process=process)
        for _ in range(3):
            sample = (await adapter.poll()).sample
        assert await adapter.alive()
        await adapter.client.close()
        asked = {line.split(" ")[1] for line in server.asked}
    assert (adapter.name, sample.state, sample.version) == ("llama-cpp-python", "ok", "0.3.16")
    assert asked == {"/props", "/openapi.json"}


async def test_what_its_command_line_tells() -> None:
    server = Scripted(KIND, ROUTES)
    reading = await server.look()
    assert (reading.sample.model, reading.sample.context_limit_tokens) == (None, None)
    assert "would disturb the server" in why(reading)["model"]
    assert "cuts off the stream" in why(reading)["decode_tok_s"]
    assert any("llama-server" in fix for fix in fixes(reading))
    for words, model, context in [
        (COMMAND, "qwen.gguf", 8192),
        ([*COMMAND, "--model_alias", "qwen"], "qwen", 8192),
        (COMMAND[:-2], "qwen.gguf", 2048),
        (["python3", "-m", "llama_cpp.server", "--config_file", "c.json"], None, None),
    ]:
        seen = await running(words)()
        server.adapter = KIND.adapter(server._client, seen)
        sample = (await server.look()).sample
        assert (sample.model, sample.context_limit_tokens, sample.pid) == (model, context, 7)


@pytest.mark.parametrize("headers", ["", "X-Request-ID: 6b3f1f5e-6a51-4a0e-8d6e-111111111111\r\n", NUMBERED])
async def test_other_servers_are_not_taken_for_it(headers: str) -> None:
    routes = {"/v1/models": imitate.GENERIC["/v1/models"], "/openapi.json": {"info": {"title": "FastAPI"}}}
    with imitate.serves(routes, headers=headers) as server:
        adapter = await recognise(server.url)
        await adapter.client.close()
        asked = [line.split(" ")[1] for line in server.asked]
    assert adapter.name == "openai"
    assert ("/openapi.json" in asked) == (headers == NUMBERED)


async def test_another_engine_at_its_address_is_noticed() -> None:
    for reply in [(404, {}), {"info": {"title": "FastAPI", "version": "1"}}]:
        with pytest.raises(ChangedError):
            await Scripted(KIND, ROUTES).look(**{"openapi.json": reply})


@settings(max_examples=40, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/openapi.json"] = data.draw(mutated(DESCRIPTION))
        server.now += 5
        await server.survives()
