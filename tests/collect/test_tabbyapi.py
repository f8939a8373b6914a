"""A TabbyAPI server as it is read: its model, with and without a key, and odd answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.access.ways import PLAIN
from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.tabbyapi import KIND
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.hints import kind_of
from agenttop.collect.process import Command, ServerProcess
from tests.access import with_key
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, fixes, why
from tests.collect.mutations import mutated

MODEL = samples.body("tabbyapi/handmade/model.json")
ROUTES: dict[str, Any] = {
    "/health": {"status": "healthy", "issues": []},
    "/v1/model": MODEL,
    "/v1/models": samples.body("tabbyapi/handmade/v1_models.json"),
}
LOCKED = (401, {"detail": "Please provide an API key"})
PROCESS = ["/home/me/tabbyAPI/venv/bin/python", "/home/me/tabbyAPI/main.py"]


async def test_what_it_tells() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    sample = reading.sample
    assert (sample.name, sample.state, sample.model) == ("TabbyAPI", "ok", "Qwen3-32B-exl3-4bpw")
    assert (sample.context_limit_tokens, sample.kv_pool_tokens, sample.kv_layout) == (32768, 65536, "paged")
    assert (sample.kv_dtype, sample.sequences_max) == ("Q6", 16)
    assert (sample.running, sample.decode_tok_s) == (None, None)
    assert "its replies and its log alone" in why(reading)["decode_tok_s"]


async def test_no_model_is_loaded() -> None:
    server = Scripted(KIND, ROUTES | {"/v1/model": (503, {"detail": "No models are currently loaded."})})
    reading = await server.look()
    assert (reading.sample.state, reading.sample.model) == ("ok", None)
    assert why(reading)["model"] == "no model is loaded"
    assert any("model_name" in fix for fix in fixes(reading))


async def test_an_unhealthy_server_says_so() -> None:
    reading = await Scripted(KIND, ROUTES).look(health=(503, {"status": "unhealthy", "issues": [{}]}))
    assert reading.sample.state == "busy"
    assert "its log says why" in (reading.sample.note or "")


@pytest.mark.parametrize("key", [None, "wrong-key-1234"])
async def test_without_a_key_it_is_known_by_its_process_and_lives(key: str | None) -> None:
    async def seen() -> Circumstances:
        return Circumstances(process=ServerProcess(pid=7, command=Command(PROCESS)))

    routes = ROUTES | dict.fromkeys(("/v1/model", "/v1/models"), LOCKED)
    with imitate.serves(routes, kind="TabbyAPI") as server:
        adapter = await recognise(server.url, access=with_key(key) if key else PLAIN, process=seen)
        reading = await adapter.poll()
        assert await adapter.alive()
        await adapter.client.close()
    assert (adapter.name, reading.sample.state, reading.sample.pid) == ("TabbyAPI", "unauthorised", 7)
    note = reading.sample.note or ""
    assert ("does not accept" if key else "--api-key-env") in note
    assert "api_tokens.yml" in note
    assert "wrong" not in note


async def test_it_is_recognised_with_a_key() -> None:
    with imitate.serves(ROUTES, kind="TabbyAPI") as server:
        adapter = await recognise(server.url)
        await adapter.client.close()
    assert adapter.name == "TabbyAPI"


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (PROCESS, True),
        (["python3", "/srv/tabby-api/start.py", "--gpu-lib", "cu12"], True),
        (["python3", "main.py"], False),
        (["python3", "/srv/comfyui/main.py"], False),
    ],
)
def test_only_a_folder_of_that_name_tells(words: list[str], known: bool) -> None:
    assert (kind_of(Command(words)) is KIND) == known


async def test_it_is_asked_every_three_seconds() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(30):
        await server.look()
    assert server.asked.count("/health") == server.asked.count("/v1/model") == 10


async def test_another_engine_at_its_address_is_noticed() -> None:
    with pytest.raises(ChangedError):
        await Scripted(KIND, ROUTES).look(health=(404, {}))
    with pytest.raises(ChangedError):
        await Scripted(KIND, ROUTES).look(v1__model=(404, {}))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/v1/model"] = data.draw(mutated(MODEL))
        server.routes["/health"] = data.draw(mutated(b'{"status": "healthy", "issues": []}'))
        server.now += 5
        await server.survives()
