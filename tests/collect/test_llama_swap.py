"""llama-swap: golden cases over handmade `/running` and servers that answer like llama.cpp's and vLLM."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError
from agenttop.collect.engine.kinds.llama_swap import KIND
from tests.collect import fronts, samples
from tests.collect import imitations as imitate
from tests.collect.frames_check import assert_sane

PROGRAM = ["/usr/local/bin/llama-swap", "--listen", ":8080"]


def running(name: str, **ports: int) -> dict[str, Any]:
    """A handmade list, its servers at other ports."""
    told: dict[str, Any] = json.loads(samples.body(f"llama_swap/handmade/running_{name}.json"))
    for model in told["running"]:
        if "proxy" in model:
            model["proxy"] = f"http://localhost:{ports.get(model['model'], 1)}"
    return told


def swap(told: Any, **more: Any) -> imitate.Imitation:
    return imitate.serves({**imitate.LLAMA_SWAP, "/running": told, **more}, kind="llama-swap")


async def test_a_llama_cpp_and_a_vllm_behind_it() -> None:
    with (
        fronts.servers(fronts.llama(fronts.busy(10))) as (coder,),
        imitate.serves(imitate.VLLM, kind="vLLM") as chat,
        swap(running("two", coder=coder.port, chat=chat.port)) as front,
    ):
        host = fronts.Host(PROGRAM, [fronts.child(coder.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 3)
        await each.client.close()
    sample = reading.sample
    assert (sample.name, sample.front, sample.version, sample.model) == ("llama-swap", True, "v180", "chat")
    told = fronts.parts(reading)
    assert {name: part.state for name, part in told.items()} == {
        "chat": "ready",
        "coder": "ready",
        "writer": "stopped",
    }
    assert (told["coder"].running, told["coder"].url) == (1, coder.url)
    assert told["chat"].running is not None
    assert sample.running == 1 + told["chat"].running
    assert {slot.part for slot in reading.slots} == {"coder"}
    assert sample.kv_layout is None  # one is split, the other paged
    assert "swapped in" in (fronts.reasons(reading)["waiting"].why or "")
    assert "llama-swap's configuration" in (fronts.reasons(reading)["output_tokens_total"].fix or "")
    assert set(front.asked) == {"GET /running", "GET /v1/models", "GET /api/version"}
    assert "secret" not in str(reading)
    assert fronts.unexplained(reading) == []


async def test_an_older_one_that_does_not_tell_where_its_server_listens() -> None:
    with fronts.servers(fronts.llama()) as (server,), swap(running("old")) as front:
        host = fronts.Host(PROGRAM, [fronts.child(server.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert (reading.sample.model, reading.sample.slots_total) == ("coder", 2)


async def test_no_model() -> None:
    with swap(
        running("none"), **{"/v1/models": {"data": [{"id": "only", "owned_by": "llama-swap"}]}}
    ) as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM).seen())
        reading = await fronts.look(each)
        await each.client.close()
    assert (reading.sample.running, reading.sample.model, reading.sample.state) == (0, "only", "ok")
    assert fronts.unexplained(reading) == []
    assert fronts.reasons(reading)["decode_tok_s"].why == "no model is loaded"


@pytest.mark.parametrize("state", ["starting", "stopping", "shutdown", "stopped", ""])
async def test_a_server_that_is_not_ready_is_not_asked(state: str) -> None:
    with fronts.servers(fronts.llama()) as (server,):
        told = running("two", coder=server.port)
        told["running"] = [{**told["running"][0], "state": state}]
        with swap(told) as front:
            host = fronts.Host(PROGRAM, [fronts.child(server.port)])
            each = fronts.adapter(KIND, front.url, host.seen())
            reading = await fronts.look(each, 3)
            await each.client.close()
        assert server.asked == []
    assert reading.sample.state == "ok"
    assert fronts.parts(reading)["coder"].state == (state or None)


async def test_swapped_between_two_looks() -> None:
    told: list[Any] = [{}]
    with fronts.servers(fronts.llama(), fronts.llama()) as (coder, chat):
        both = running("two", coder=coder.port, chat=chat.port)["running"]
        told[0] = {"running": both[:1]}
        with swap(lambda: told[0]) as front:
            host = fronts.Host(PROGRAM, [fronts.child(coder.port), fronts.child(chat.port)])
            each = fronts.adapter(KIND, front.url, host.seen())
            before = await fronts.look(each, 2)
            told[0] = {"running": [{**both[0], "state": "stopping"}, {**both[1], "state": "starting"}]}
            between = await fronts.look(each)
            told[0] = {"running": both[1:]}
            after = await fronts.look(each)
            await each.client.close()
    assert fronts.texts(between.events) == ["unloaded coder"]
    assert fronts.texts(after.events) == ["loaded chat"]
    assert (before.sample.model, after.sample.model) == ("coder", "chat")


@pytest.mark.parametrize("seen", ["nowhere", "docker-proxy"])
async def test_elsewhere_loopback_is_not_this_hosts(seen: str) -> None:
    """Through a tunnel, or out of a container, `http://localhost:5801` is somebody else's server."""
    with fronts.servers(fronts.llama()) as (server,):
        with swap(running("two", coder=server.port, chat=server.port)) as front:
            host = fronts.Host(["/usr/bin/docker-proxy", "-container-port", "8080"])
            circumstances = fronts.NOWHERE if seen == "nowhere" else host.seen()
            each = fronts.adapter(KIND, front.url, circumstances)
            reading = await fronts.look(each, 2)
            await each.client.close()
        assert server.asked == []
    assert reading.sample.running is None
    assert fronts.reasons(reading)["running"].fix is not None


async def test_a_server_on_another_host_is_not_asked() -> None:
    told = running("two")
    told["running"] = [{**told["running"][0], "proxy": "http://10.0.0.5:9000"}]
    with swap(told) as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert "does not run on this host" in (fronts.reasons(reading)["decode_tok_s"].why or "")


@pytest.mark.parametrize("path", ["", "/v1", "/upstream/chat"])
async def test_one_that_names_itself_as_a_server_is_not_asked_as_one(path: str) -> None:
    told = running("two")
    with swap(told) as front:
        told["running"] = [{**told["running"][0], "proxy": front.url + path}]
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
        assert {*front.asked} == {"GET /running", "GET /v1/models", "GET /api/version"}
    assert reading.sample.running is None


async def test_nothing_is_asked_where_any_question_would_start_a_model() -> None:
    told = running("two")
    with imitate.serves({}) as other, swap(told) as front:
        told["running"] = [{**told["running"][0], "proxy": f"{other.url}/upstream/chat"}]
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
        assert other.asked == []
    (note,) = (part.note for part in reading.parts if part.note is not None)
    assert "may load a model" in note


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_it_lists(data: st.DataObject) -> None:
    body = bytearray(samples.body("llama_swap/handmade/running_two.json"))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(32, 126))

    async def run() -> None:
        with swap(bytes(body)) as front:
            each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
            try:
                assert_sane(await fronts.look(each, 2))
            except (EngineError, ChangedError):
                pass
            finally:
                await each.client.close()

    asyncio.run(run())
