"""llama.cpp's router: golden cases over captures, and what looking at it must never do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError
from agenttop.collect.engine.kinds.llamacpp import KIND
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.process import ServerProcess
from tests.collect import fronts, samples
from tests.collect import imitations as imitate
from tests.collect.frames_check import assert_sane

PROGRAM = ["llama-server", "--models-dir", "models", "--port", "8080"]


def models(name: str, **ports: int) -> dict[str, Any]:
    """A captured list, its servers at other ports."""
    listed: dict[str, Any] = json.loads(samples.body(f"llamacpp/router/models_{name}.json"))
    for model in listed["data"]:
        arguments = model["status"]["args"]
        port = ports.get(model["id"].replace("-", "_"), 1)
        arguments[arguments.index("--port") + 1] = str(port)
    return listed


def router(listed: Any, **slots: Any) -> imitate.Imitation:
    """`slots`: replies through the router, by model."""
    routes: dict[str, Any] = {**imitate.ROUTER, "/v1/models": listed, "/health": {"status": "ok"}}
    for name, reply in slots.items():
        query = f"autoload=false&model={name.replace('_', '-')}"
        routes[f"/slots?{query}"] = reply
        routes[f"/props?{query}"] = samples.body("llamacpp/router/props_tiny_a.json")
    return imitate.serves(routes, server="llama.cpp", kind="llama.cpp")


def children(**ports: int) -> list[ServerProcess]:
    return [fronts.child(port, "--alias", name.replace("_", "-")) for name, port in ports.items()]


async def test_two_models_are_read_at_their_own_ports() -> None:
    with fronts.servers(fronts.llama(), fronts.llama(fronts.busy(10))) as (one, other):
        ports = {"tiny_a": one.port, "tiny_b": other.port}
        with router(models("two", **ports)) as front:
            host = fronts.Host(PROGRAM, children(**ports))
            each = fronts.adapter(KIND, front.url, host.seen())
            reading = await fronts.look(each, 2)
            await each.client.close()
    sample = reading.sample
    assert (sample.name, sample.front, sample.model, sample.pid) == ("llama.cpp router", True, "tiny-a", 4000)
    assert (sample.running, sample.slots_total, sample.kv_pool_tokens) == (1, 4, 2048)
    assert sample.kv_used_tokens == 43 + 110
    assert {slot.slot: slot.part for slot in reading.slots} == {
        0: "tiny-a",
        1: "tiny-a",
        2: "tiny-b",
        3: "tiny-b",
    }
    told = fronts.parts(reading)
    assert {name: part.state for name, part in told.items()} == {"tiny-a": "loaded", "tiny-b": "loaded"}
    assert (told["tiny-b"].running, told["tiny-b"].quantisation) == (1, "F16")
    assert set(front.asked) == {"GET /props", "GET /v1/models"}
    assert fronts.unexplained(reading) == []


async def test_no_model_and_one_model() -> None:
    with router(models("none")) as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert (reading.sample.state, reading.sample.running, reading.sample.model) == ("ok", 0, None)
    assert {part.state for part in reading.parts} == {"unloaded"}
    assert fronts.reasons(reading)["slots"].why == "no model is loaded"
    assert fronts.unexplained(reading) == []
    with fronts.servers(fronts.llama()) as (server,), router(models("one", tiny_a=server.port)) as front:
        host = fronts.Host(PROGRAM, children(tiny_a=server.port))
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert (reading.sample.model, reading.sample.slots_total) == ("tiny-a", 2)
    assert reading.sample.context_limit_tokens == 512
    assert reading.sample.kv_fullest_fraction is None


async def test_elsewhere_loaded_models_are_asked_through_the_router() -> None:
    with router(models("one"), tiny_a=samples.body("llamacpp/router/slots_tiny_a.json")) as front:
        each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
        reading = await fronts.look(each, 3)
        await each.client.close()
    assert (reading.sample.running, reading.sample.slots_total, reading.sample.kv_used_tokens) == (0, 2, 43)
    assert {slot.part for slot in reading.slots} == {"tiny-a"}
    assert fronts.parts(reading)["tiny-a"].url is None
    asked = {line for line in front.asked if "?" in line}
    assert asked == {f"GET /{name}?autoload=false&model=tiny-a" for name in ("slots", "props")}


async def test_a_model_unloaded_within_a_look() -> None:
    refused = (400, samples.body("llamacpp/router/slots_unloaded.json"))
    with router(models("one"), tiny_a=refused) as front:
        each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
        reading = await fronts.look(each, 3)
        await each.client.close()
    assert (reading.sample.state, reading.sample.running, reading.slots) == ("ok", 0, [])


@pytest.mark.parametrize("value", ["sleeping", "unloaded", "loading", "downloading"])
async def test_only_loaded_models_are_asked(value: str) -> None:
    """The imitation answers anything else with 404, and would have it in its list."""
    listed = models("one")
    listed["data"][0]["status"]["value"] = value
    for seen in (fronts.NOWHERE, fronts.Host(PROGRAM, children(tiny_a=1)).seen()):
        with router(listed) as front:
            each = fronts.adapter(KIND, front.url, seen)
            reading = await fronts.look(each, 4)
            await each.client.close()
            assert set(front.asked) == {"GET /props", "GET /v1/models"}
        assert (reading.sample.state, reading.sample.running) == ("ok", 0)
        assert fronts.parts(reading)["tiny-a"].state == value
        if value == "loading":
            assert reading.sample.waiting is None
            assert "being loaded" in (fronts.reasons(reading)["waiting"].why or "")


async def test_a_model_that_may_sleep_is_not_asked_through_the_router() -> None:
    listed = models("one")
    for arguments, why in (
        ([*listed["data"][0]["status"]["args"], "--sleep-idle-seconds", "60"], "may fall asleep"),
        ([], "may fall asleep"),
    ):
        listed["data"][0]["status"]["args"] = arguments
        with router(listed) as front:
            each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
            reading = await fronts.look(each, 3)
            await each.client.close()
            assert set(front.asked) == {"GET /props", "GET /v1/models"}
        assert reading.sample.running is None
        assert why in (fronts.reasons(reading)["decode_tok_s"].why or "")


async def test_the_captured_sleeper() -> None:
    with router(models("sleeping")) as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(PROGRAM, children(tiny_a=1)).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert fronts.parts(reading)["tiny-a"].state == "sleeping"
    assert "does not wake" in (fronts.reasons(reading)["slots"].why or "")
    assert fronts.unexplained(reading) == []


async def test_swapped_between_two_looks_and_followed_by_the_watch() -> None:
    now = fronts.Clock()
    listed: list[Any] = []
    with fronts.servers(fronts.llama(), fronts.llama()) as (one, other):
        ports = {"tiny_a": one.port, "tiny_b": other.port}
        first, second = models("one", **ports), models("two", **ports)
        second["data"][0]["status"]["value"] = "unloaded"
        listed.append(first)
        with router(lambda: listed[0]) as front:
            host = fronts.Host(PROGRAM, children(**ports))
            each = fronts.adapter(KIND, front.url, host.seen(), now)
            await fronts.look(each, 2)
            listed[0] = second
            reading = await fronts.look(each)
            await each.client.close()
    assert fronts.texts(reading.events) == ["swapped tiny-a for tiny-b"]
    assert reading.sample.model == "tiny-b"


async def test_a_server_of_its_own_is_a_server_again() -> None:
    """A router that is replaced by a plain server at the same address is noticed."""
    routes: dict[str, Any] = dict(imitate.ROUTER)
    with imitate.serves(routes, server="llama.cpp", kind="llama.cpp") as front:
        each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
        await each.poll()
        routes["/v1/models"] = {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]}
        with pytest.raises(ChangedError):
            await each.poll()
        await each.client.close()


async def test_the_watch_follows() -> None:
    with router(models("none")) as front:
        watch = EngineWatch(front.url, polls_host=False)
        reading = await watch.poll()
        await watch.close()
    assert (reading.sample.name, reading.sample.state) == ("llama.cpp router", "ok")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_it_lists(data: st.DataObject) -> None:
    body = bytearray(samples.body("llamacpp/router/models_one.json"))
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(32, 126))

    async def run() -> None:
        slots = samples.body("llamacpp/router/slots_tiny_a.json")
        with router(bytes(body), tiny_a=slots) as front:
            each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
            try:
                assert_sane(await fronts.look(each, 2))
            except (EngineError, ChangedError):
                pass
            finally:
                await each.client.close()

    asyncio.run(run())
