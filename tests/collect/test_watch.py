"""One watched address, whatever is there: no exception, no hang, and one sentence about what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from agenttop.collect.engine import http, recognise
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.harmless import PROBES
from agenttop.collect.engine.watch import EngineWatch
from agenttop.errors import UsageError
from tests import hostile
from tests.access import with_key
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.fronts import Clock
from tests.servers import free_port

Start = Callable[..., EngineWatch]


@pytest.fixture
async def watch() -> AsyncIterator[Start]:
    """Starts watches that end with the test."""
    started: list[EngineWatch] = []

    def start(url: str, **options: Any) -> EngineWatch:
        made = EngineWatch(url, **options)
        started.append(made)
        return made

    yield start
    for each in started:
        await each.close()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on an answer sooner than a user would."""
    monkeypatch.setattr(recognise, "_ANSWER_S", 0.5)
    monkeypatch.setattr(http, "ANSWER_S", 1.0)


async def until_state(watch: EngineWatch, *states: str, seconds: float = 20.0) -> list[EngineReading]:
    """Poll until one of the states is shown; returns all readings."""
    readings = [await watch.poll()]
    deadline = time.monotonic() + seconds
    while readings[-1].sample.state not in states:
        assert time.monotonic() < deadline, f"{readings[-1].sample.state}: {readings[-1].sample.note}"
        await asyncio.sleep(0.02)
        readings.append(await watch.poll())
    return readings


def test_an_address_is_checked_at_once() -> None:
    with pytest.raises(UsageError):
        EngineWatch("no address at all")
    assert EngineWatch("localhost:8080/v1").url == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("make", "state", "words"),
    [
        (hostile.html_page, "unsupported", "web page"),
        (hostile.not_http, "unsupported", "does not speak HTTP"),
        (hostile.huge_reply, "unsupported", "more than 1 MB"),
        (hostile.redirect, "unsupported", "sends GET"),
        (hostile.unauthorised, "unauthorised", "--api-key-env"),
        (hostile.loading, "loading", "loading"),
        (hostile.closes, "down", "hung up"),
        (hostile.stalls, "busy", "takes connections and answers nothing"),
        (hostile.slow_drip, "busy", "takes connections and answers nothing"),
    ],
)
async def test_what_is_no_engine_is_told_in_one_sentence(
    watch: Start, make: Callable[[], hostile.HostileServer], state: str, words: str
) -> None:
    with make() as server:
        readings = await until_state(watch(server.url), state)
        sample = readings[-1].sample
        assert words in (sample.note or "")
        assert "\n" not in (sample.note or "")
        assert (sample.running, sample.kv_used_tokens, sample.decode_tok_s) == (None, None, None)
        events = [event for reading in readings for event in reading.events]
        assert [event.event for event in events] == [f"engine.{state}"]
        assert events[0].subject == server.url
        assert {line.split(" ")[0] for line in server.asked} <= {"GET"}


async def test_nobody_listens(watch: Start) -> None:
    reading = (await until_state(watch(f"127.0.0.1:{free_port()}"), "down"))[-1]
    assert "nothing listens" in (reading.sample.note or "")
    assert (await watch("http://no-such-host.invalid:1").poll()).sample.state in ("down", "starting")


async def test_the_slot_table_may_have_256_rows(watch: Start) -> None:
    with hostile.many_slots() as server:
        reading = (await until_state(watch(server.url), "ok"))[-1]
    assert len(reading.slots) == 256
    assert (reading.sample.running, reading.sample.slots_total) == (128, 256)
    assert {slot.phase for slot in reading.slots} == {"idle", "prefill", "decode"}
    assert reading.sample.kv_used_tokens == 128 * 64


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"<html>", b'[{"id":0,"n_ctx":"big"}]', b"\xff" * 100])
async def test_a_slot_table_that_is_none(watch: Start, body: bytes) -> None:
    with hostile.llama_like(replies={"/slots": (200, body)}) as server:
        reading = (await until_state(watch(server.url), "unsupported"))[-1]
    assert "/slots" in (reading.sample.note or "")


async def test_50_megabytes_of_slots(watch: Start) -> None:
    """Whole prompts, in builds before August 2025: the rest is shown without them."""
    with hostile.huge_reply(path="/slots") as server:
        reading = (await until_state(watch(server.url), "ok"))[-1]
    assert (reading.slots, reading.sample.decode_tok_s) == ([], None)
    told = {frame.what: frame for frame in reading.missing}[f"{server.url}:decode_tok_s"]
    assert "larger than 8 MB" in (told.why or "")
    assert told.fix == "update llama.cpp"


async def test_switched_off_endpoints_say_which_flag_is_missing(watch: Start) -> None:
    off = (501, {"error": {"code": 501, "message": "This server does not support this endpoint."}})
    with hostile.llama_like(replies={"/slots": off, "/metrics": off}) as server:
        reading = (await until_state(watch(server.url), "ok"))[-1]
        sample = reading.sample
        fixes = {frame.what.removeprefix(f"{server.url}:"): frame.fix or "" for frame in reading.missing}
        assert "--slots" in fixes["decode_tok_s"]
        assert "--metrics" in fixes["waiting"]
        assert (sample.running, sample.waiting, sample.kv_used_tokens) == (None, None, None)
        assert (sample.decode_tok_s, sample.prefill_tok_s, reading.slots) == (None, None, [])
        assert (sample.slots_total, sample.context_limit_tokens) == (4, 2048)  # /props knows


async def test_without_slots_the_metrics_still_tell_who_runs(watch: Start) -> None:
    off = (501, {"error": {"code": 501, "message": "no"}})
    text = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\nllamacpp:prompt_tokens_total 7\n"
    with hostile.llama_like(replies={"/slots": off, "/metrics": (200, text)}) as server:
        sample = (await until_state(watch(server.url), "ok"))[-1].sample
    assert (sample.running, sample.waiting, sample.prompt_tokens_total) == (3, 2, 7)


async def test_metrics_can_be_left_out(watch: Start) -> None:
    with hostile.llama_like() as server:
        reading = (await until_state(watch(server.url, metrics=False), "ok"))[-1]
        assert reading.sample.waiting is None
        assert any("switched off" in (frame.why or "") for frame in reading.missing)
        assert not any("/metrics" in line for line in server.asked)


async def test_metrics_are_asked_rarely_and_slots_first(watch: Start) -> None:
    with hostile.llama_like(slots=[hostile.slot(0, busy=True), hostile.slot(1)]) as server:
        watched = watch(server.url)
        for _ in range(20):
            await watched.poll()
        paths = [line.split(" ")[1] for line in server.asked]
    # once more after each scrape, to see that slots and totals belong together
    assert paths.count("/slots") == 20 + paths.count("/metrics")
    assert paths.count("/metrics") == 1
    assert paths.index("/slots") < paths.index("/metrics")
    assert paths.count("/props") == 2  # to recognise it, and to read it


async def test_an_idle_server_that_may_sleep_is_left_its_timer(watch: Start) -> None:
    """`/slots` starts the idle timer anew: it is asked again only when the metrics have moved."""
    counters = "llamacpp:requests_processing {}\nllamacpp:n_decode_total {}\n"
    counters += "llamacpp:prompt_tokens_cached_total 0\n"  # a build whose scrapes do not start it either
    replies: dict[str, Any] = {"/metrics": (200, counters.format(0, 5))}
    replies["/props"] = (200, {"build_info": "b1-x", "total_slots": 1, "is_sleeping": False})
    replies["/slots"] = (200, [hostile.slot(0)])
    with imitate.serves(replies, server="llama.cpp") as server:
        watched = watch(server.url)
        for _ in range(10):
            reading = await watched.poll()
            assert (reading.sample.state, reading.sample.running, len(reading.slots)) == ("ok", 0, 1)
        assert server.asked.count("GET /slots") == 2
        replies["/metrics"] = (200, counters.format(1, 6))
        replies["/slots"] = (200, [hostile.slot(0, busy=True)])
        assert (await watched.poll()).sample.running == 1
        assert server.asked.count("GET /slots") == 3


async def test_a_proxy_that_hides_the_slots(watch: Start) -> None:
    with hostile.llama_like(replies={"/slots": (404, {}), "/metrics": (404, {})}) as server:
        reading = (await until_state(watch(server.url), "ok"))[-1]
        assert any(frame.what.endswith(":slots") for frame in reading.missing)


async def test_only_listed_paths_and_only_get(watch: Start) -> None:
    """A recording server: whatever is asked beyond the adapter's list fails this test."""
    allowed = {f"GET {path}" for path in ("/props", "/slots", "/metrics", "/health")}
    sleeping = {"/props": (200, {"total_slots": 4, "build_info": "b1-x", "is_sleeping": True})}
    for replies in (
        {},
        {"/slots": (501, {})},
        {"/metrics": (501, {})},
        {"/slots": (503, {})},
        {"/slots": (404, {})},
        sleeping,
    ):
        with hostile.llama_like(replies=replies) as server:
            watched = watch(server.url)
            for _ in range(6):
                await watched.poll()
            assert set(server.asked) <= allowed, replies
    for routes in (imitate.VLLM, imitate.SGLANG, imitate.OLLAMA, imitate.GENERIC, imitate.TGI):
        with imitate.serves(routes) as server:
            watched = watch(server.url)
            for _ in range(6):
                assert (await watched.poll()).sample.state == "ok"


async def test_a_sleeping_server_is_asked_for_its_properties_only(watch: Start) -> None:
    sleeping = {"total_slots": 4, "build_info": "b1-x", "is_sleeping": True, "model_alias": "m"}
    with hostile.llama_like(replies={"/props": (200, sleeping)}) as server:
        watched = watch(server.url)
        readings = [await watched.poll() for _ in range(5)]
        assert {line.split(" ")[1] for line in server.asked} == {"/props"}
    assert {reading.sample.state for reading in readings} == {"asleep"}
    assert [slot.phase for slot in readings[0].slots] == ["idle"] * 4
    assert [event.event for event in readings[0].events] == ["engine.asleep"]


async def test_waking_up_is_no_restart(watch: Start) -> None:
    """The slots of a model that is loaded again look as if they had never served."""
    props = {"total_slots": 1, "build_info": "b1-x", "is_sleeping": False}
    used = [{**hostile.slot(0), "id_task": 7, "next_token": [{"n_decoded": 0}]}]
    routes: dict[str, Any] = {"/props": props, "/slots": used, "/metrics": (501, {})}
    with imitate.serves(routes, server="llama.cpp") as server:
        watched = watch(server.url)
        await until_state(watched, "ok")
        routes["/props"] = {**props, "is_sleeping": True}
        await until_state(watched, "asleep")
        routes.update({"/props": props, "/slots": [hostile.slot(0)]})
        reading = (await until_state(watched, "ok"))[-1]
        assert (reading.sample.restarts, [event.event for event in reading.events]) == (0, ["engine.up"])
        # The same without sleep in between is one.
        routes["/slots"] = used
        await watched.poll()
        routes["/slots"] = [hostile.slot(0)]
        assert (await watched.poll()).sample.restarts == 1


async def test_another_kind_of_engine_takes_the_port(watch: Start) -> None:
    props = {"build_info": "b1-x", "total_slots": 1, "default_generation_settings": {"n_ctx": 512}}
    routes: dict[str, Any] = {"/props": (200, props), "/slots": (200, [])}
    with imitate.serves(routes) as server:
        watched = watch(server.url)
        assert (await until_state(watched, "ok"))[-1].sample.name == "llama.cpp"
        routes.clear()
        routes.update(imitate.VLLM)
        reading = await watched.poll()
        assert (reading.sample.state, reading.sample.name, reading.sample.model) == ("ok", "vLLM", "tiny")
        assert [event.event for event in reading.events] == ["engine.changed"]
        assert reading.sample.restarts == 0


SGLANG = {**imitate.SGLANG, "/v1/loads": b"{}", "/metrics": samples.body("sglang/metrics.txt")}
LMDEPLOY = {
    "/v1/models": samples.body("lmdeploy/handmade/v1_models.json"),
    "/metrics": samples.body("lmdeploy/handmade/metrics-1.txt"),
}
TGI = {**imitate.TGI, "/metrics": "tgi_queue_size 0\n"}
DYNAMO = {
    "/v1/models": samples.body("dynamo/v1_models.json"),
    "/metrics": samples.body("dynamo/frontend-idle.txt"),
}


def _hang_up() -> None:
    raise ConnectionResetError


@pytest.mark.parametrize("meanwhile", ["nothing", "hangs up", "gateway"])
@pytest.mark.parametrize("first", [imitate.VLLM, SGLANG, LMDEPLOY, TGI, DYNAMO, imitate.LITELLM])
async def test_metrics_that_a_look_would_take_away_are_not_asked_where_another_engine_took_the_port(
    watch: Start, first: dict[str, Any], meanwhile: str
) -> None:
    routes = dict(first)
    with imitate.serves(routes) as server:
        watched = watch(server.url, now=(clock := Clock()))
        before = (await until_state(watched, "ok"))[-1].sample.name
        routes.clear()
        if meanwhile != "nothing":
            down = _hang_up if meanwhile == "hangs up" else (502, "Bad Gateway")
            routes.update(dict.fromkeys([*PROBES, *first, "/get_load"], down))
            clock.time += 5.0
            assert (await watched.poll()).sample.state != "ok"
        for connection in list(server._open) if meanwhile != "gateway" else ():
            with contextlib.suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        routes.clear()
        routes.update(imitate.TENSORRT_LLM)
        asked = len(server.asked)
        clock.time += 15.0
        reading = await watched.poll()
        assert (reading.sample.state, reading.sample.name) == ("ok", "TensorRT-LLM"), (before, reading.sample)
        assert not [line for line in server.asked[asked:] if line.split("/")[1] == "metrics"]


async def test_a_server_that_keeps_no_connection_open_is_read_all_the_same(watch: Start) -> None:
    with imitate.serves(imitate.VLLM, headers="Connection: close\r\n") as server:
        watched = watch(server.url, now=(clock := Clock()))
        await until_state(watched, "ok")
        clock.time += 1.0
        assert (await watched.poll()).sample.window_s == pytest.approx(1.0)


async def test_counters_that_go_back_are_a_restart(watch: Start) -> None:
    """Without a look in between at which it was away, and without a marker of the process."""
    replies: dict[str, Any] = {"/metrics": (200, "llamacpp:prompt_tokens_total 500\n")}
    rows = [{**hostile.slot(0), "id_task": 7, "n_prompt_tokens": 9, "next_token": [{"n_decoded": 0}]}]
    replies["/slots"] = (200, rows)
    routes: dict[str, Any] = {"/props": (200, {"build_info": "b1-x", "total_slots": 1}), **replies}
    with imitate.serves(routes, server="llama.cpp") as server:
        watched = watch(server.url)
        await until_state(watched, "ok")
        routes["/metrics"] = (200, "llamacpp:prompt_tokens_total 0\n")
        routes["/slots"] = (200, [hostile.slot(0)])
        reading = await watched.poll()
        assert [event.event for event in reading.events] == ["engine.restart"]
        assert reading.sample.restarts == 1
        reading = await watched.poll()
        assert (reading.events, reading.sample.restarts) == ([], 1)


async def test_load_is_allowed_when_the_user_says_so(watch: Start) -> None:
    with hostile.llama_like() as server:
        watched = watch(server.url)
        assert not (await until_state(watched, "ok"))[-1].sample.load_allowed
        watched.load_allowed = True
        assert (await watched.poll()).sample.load_allowed


async def test_a_key_reaches_the_engine_and_no_frame(watch: Start) -> None:
    with hostile.unauthorised() as server:
        reading = (await until_state(watch(server.url, access=with_key("sk-secret")), "unauthorised"))[-1]
    assert "does not accept the key" in (reading.sample.note or "")
    assert "sk-secret" not in repr(reading)


async def test_a_fault_of_ours_ends_no_session(watch: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> Awaitable[None]:
        raise ZeroDivisionError("oh\x1b[2J no")

    monkeypatch.setattr("agenttop.collect.engine.watch.recognise", broken)
    with hostile.llama_like() as server:
        sample = (await watch(server.url).poll()).sample
    assert sample.state == "unsupported"
    assert "ZeroDivisionError" in (sample.note or "")
    assert "\x1b" not in (sample.note or "")


async def test_a_late_answer_is_waited_for_and_not_asked_for_again(watch: Start) -> None:
    with hostile.llama_like() as server:
        watched = watch(server.url, patience_s=0.05, now=lambda: 10 * time.monotonic())
        await until_state(watched, "ok")
    with hostile.stalls() as server:
        watched = watch(server.url, patience_s=0.02)
        readings = [await watched.poll() for _ in range(10)]
        assert {reading.sample.state for reading in readings} == {"starting"}
        assert server.asked == ["GET /props"]


async def test_closing_gives_up_an_answer_that_is_due(watch: Start) -> None:
    with hostile.stalls() as server:
        watched = watch(server.url, patience_s=0.01)
        await watched.poll()
        begun = time.monotonic()
        await watched.close()
        assert time.monotonic() - begun < 5
