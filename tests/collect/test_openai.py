"""Any other OpenAI-compatible server: who it is, and one sentence for what it cannot tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import CutError, UnexpectedError
from agenttop.collect.engine.kinds.openai import KIND
from tests.collect import imitations as imitate
from tests.collect.canned import Scripted, why
from tests.collect.mutations import mutated

ROUTES: dict[str, Any] = dict(imitate.GENERIC)
LISTED = json.dumps(ROUTES["/v1/models"]).encode()


async def test_what_it_tells() -> None:
    reading = await Scripted(KIND, ROUTES).look()
    sample = reading.sample
    assert (sample.name, sample.state, sample.model) == ("openai", "ok", "some-model")
    assert (sample.context_limit_tokens, sample.running, reading.parts) == (4096, None, [])
    assert len({why(reading)[field] for field in ("running", "decode_tok_s", "kv_used_tokens")}) == 1
    assert "its own agents' streams" in why(reading)["decode_tok_s"]


async def test_several_models_are_parts() -> None:
    listed = {"data": [{"id": "a", "max_model_len": 8192}, {"id": "b"}, {"id": "a"}, {"id": 3}, "x"]}
    reading = await Scripted(KIND, ROUTES).look(v1__models=listed)
    assert [part.part for part in reading.parts] == ["a", "b"]
    assert reading.sample.model == "a"


async def test_it_is_asked_every_three_seconds() -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(30):
        await server.look()
    assert server.asked == ["/v1/models"] * 10


@pytest.mark.parametrize(
    ("reply", "error"), [((404, {}), ChangedError), ((502, "x"), CutError), ((500, "x"), UnexpectedError)]
)
async def test_what_is_no_answer(reply: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        await Scripted(KIND, ROUTES).look(v1__models=reply)


async def test_a_path_of_the_server_is_not_its_models_name() -> None:
    reading = await Scripted(KIND, ROUTES).look(v1__models={"data": [{"id": "/srv/models/qwen.gguf"}]})
    assert reading.sample.model == "qwen.gguf"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_mutated_replies_neither_escape_nor_show(data: st.DataObject) -> None:
    server = Scripted(KIND, ROUTES)
    for _ in range(3):
        server.routes["/v1/models"] = data.draw(mutated(LISTED))
        server.now += 5
        await server.survives()
