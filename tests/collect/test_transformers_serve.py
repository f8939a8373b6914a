"""`transformers serve` as it is read: its models, a list that fails, its command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.transformers_serve import KIND, model_in
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.canned import Scripted, why
from tests.collect.mutations import mutated

MODELS = samples.body("transformers_serve/handmade/v1_models.json")
ROUTES: dict[str, Any] = {"/health": {"status": "ok"}, "/v1/models": MODELS}


async def test_what_it_tells() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    assert (reading.sample.name, reading.sample.state, reading.sample.model) == (
        "transformers serve",
        "ok",
        None,
    )
    assert [part.part for part in reading.parts] == ["Qwen/Qwen3-0.6B", "HuggingFaceTB/SmolLM3-3B"]
    assert "not the one it serves" in why(reading)["model"]
    assert "its own agents' streams" in why(reading)["running"]


async def test_a_list_that_fails_without_a_network() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__models=(500, "Internal Server Error"))
    assert (reading.sample.state, reading.sample.model) == ("ok", None)
    assert "answered with 500" in why(reading)["model"]


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["transformers", "serve", "Qwen/Qwen3-0.6B", "--port", "8000"], "Qwen/Qwen3-0.6B"),
        (["transformers", "serve", "--force-model", "Qwen/Qwen3-0.6B"], "Qwen/Qwen3-0.6B"),
        (["transformers", "serve", "--port", "8000"], None),
        (["transformers"], None),
    ],
)
def test_the_model_of_a_command_line(words: list[str], model: str | None) -> None:
    assert model_in(Command(words)) == model


@pytest.mark.parametrize("models", [MODELS, (501, "Internal Server Error"), (401, {})])
async def test_it_is_known_by_its_process(models: Any) -> None:
    async def seen() -> Circumstances:
        words = ["/venv/bin/python", "/venv/bin/transformers", "serve", "Qwen/Qwen3-0.6B"]
        return Circumstances(process=ServerProcess(pid=7, command=Command(words)))

    routes = ROUTES | {"/v1/models": models, "/version": (200, {})}
    with imitate.serves(routes, kind="transformers serve") as server:
        adapter = await recognise(server.url, process=seen)
        sample = (await adapter.poll()).sample
        assert await adapter.alive()
        await adapter.client.close()
    assert (adapter.name, sample.state, sample.model) == ("transformers serve", "ok", "Qwen/Qwen3-0.6B")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/v1/models"] = data.draw(mutated(MODELS))
        server.now += 61
        await server.survives()
