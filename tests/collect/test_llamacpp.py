"""A llama.cpp server as it is watched: builds of every age, slow replies, keys, a pool that runs full."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from agenttop.collect.engine import http, recognise
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.kinds.llamacpp.arguments import read_arguments
from agenttop.collect.engine.kinds.llamacpp.exhaustion import ExhaustionWatch
from agenttop.collect.engine.kinds.llamacpp.metrics import parse_metrics, speculation
from agenttop.collect.engine.kinds.llamacpp.pool import by_gauges, pool_of
from agenttop.collect.engine.kinds.llamacpp.quantisation import quantisation
from agenttop.collect.engine.kinds.llamacpp.slots import parse_slots
from agenttop.collect.engine.watch import EngineWatch
from tests import hostile
from tests.collect import imitations as imitate
from tests.collect import samples

PROPS = {
    "build_info": "b3900-abc",
    "total_slots": 2,
    "model_path": "/models/phi-3-mini-Q4_K_M.gguf",
    "default_generation_settings": {"n_ctx": 2048},
}
OFF = (501, {"error": {"code": 501, "message": "This server does not support this endpoint."}})


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognise, "_ANSWER_S", 1.0)


class Scripted:
    """A llama.cpp server whose routes change between looks, on a clock that the test moves."""

    def __init__(self, **routes: Any) -> None:
        self.routes: dict[str, Any] = {"/props": PROPS, "/health": {"status": "ok"}}
        self.routes |= {f"/{name}": body for name, body in routes.items()}
        self.now = 100.0
        self._server = imitate.serves(self.routes, server="llama.cpp", kind="llama.cpp")

    async def __aenter__(self) -> Scripted:
        self._server.__enter__()
        self.url = self._server.url
        self.watch = EngineWatch(self.url, now=lambda: self.now, patience_s=5.0, polls_host=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.watch.close()
        self._server.__exit__(*error)

    def count(self, path: str) -> int:
        return self._server.asked.count(f"GET {path}")

    async def look(self, after_s: float = 1.0, **routes: Any) -> EngineReading:
        self.routes |= {f"/{name}": body for name, body in routes.items()}
        self.now += after_s
        return await self.watch.poll()


def why(reading: EngineReading) -> dict[str, str | None]:
    return {frame.what.rpartition(":")[2]: frame.why for frame in reading.missing}


def fix(reading: EngineReading) -> dict[str, str | None]:
    return {frame.what.rpartition(":")[2]: frame.fix for frame in reading.missing}


# Builds of every age


@pytest.mark.parametrize("name", ["slots-2024.json", "slots-early-2025.json"])
async def test_old_tables_of_slots_are_read_and_their_prompts_are_not_kept(name: str) -> None:
    body = samples.body(f"llamacpp/handmade/{name}")
    metrics = samples.body("llamacpp/b5353/after-metrics.txt").decode()
    async with Scripted(slots=body, metrics=metrics) as server:
        reading = await server.look()
        again = await server.look(slots=body.replace(b'"n_decoded":', b'"n_decoded":1', 1))
    sample = reading.sample
    assert (sample.state, sample.running, sample.slots_total) == ("ok", 1, 2)
    assert (sample.quantisation, sample.model, sample.version) == (
        "Q4_K_M",
        "phi-3-mini-Q4_K_M.gguf",
        "b3900-abc",
    )
    assert [slot.phase for slot in reading.slots] == ["decode", "idle"]
    assert again.sample.decode_tok_s == 100.0  # 156 after 56, or 128 after 28
    # The gauges of the cache stand in for what such slots do not tell.
    assert (sample.kv_used_tokens, sample.kv_used_fraction) == (118, pytest.approx(118 / 1024, rel=1e-4))
    assert sample.kv_pool_tokens == 1024
    assert (sample.kv_active_tokens, sample.kv_layout) == (None, None)
    assert "kv_used_tokens" not in why(reading)
    assert "secret" not in repr(reading) + repr(again)


async def test_what_neither_the_build_nor_the_name_of_the_file_tells_has_a_reason() -> None:
    async with Scripted(slots=OFF) as server:
        server.routes["/props"] = {**PROPS, "model_path": "/models/phi-3-mini.gguf"}
        reading = await server.look()
    assert reading.sample.quantisation is None
    assert "name of the model's file" in why(reading)["quantisation"]


async def test_the_gauges_of_the_cache_alone() -> None:
    """The slots are switched off, as they were by default until August 2025."""
    metrics = samples.body("llamacpp/b5353/after-metrics.txt").decode()
    async with Scripted(slots=OFF, metrics=metrics) as server:
        reading = await server.look()
    assert (reading.sample.kv_used_tokens, reading.sample.kv_pool_tokens) == (118, 1024)
    assert "--slots" in (fix(reading)["decode_tok_s"] or "")
    assert "kv_used_tokens" not in why(reading)
    assert (reading.sample.running, reading.sample.waiting) == (0, 0)


def test_gauges_never_take_the_place_of_the_slots() -> None:
    slots = parse_slots(samples.body("llamacpp/b11434/after/slots.txt"))
    pool = pool_of(slots, "split", 8192)
    assert by_gauges(pool, 5, 0.5) == pool
    unknown = pool_of(parse_slots(samples.body("llamacpp/b8672/after-slots.txt")), "split", 8192)
    assert by_gauges(unknown, None, None) == unknown
    assert by_gauges(unknown, 10, 0.0012).used == 10
    assert by_gauges(unknown, 0, 0.0).fraction == 0.0
    assert by_gauges(unknown, None, 0.25).fraction == 0.25


async def test_health_of_2024_tells_who_runs_where_nothing_else_does() -> None:
    health = {"status": "ok", "slots_idle": 3, "slots_processing": 5}
    async with Scripted(slots=OFF, metrics=OFF, health=health) as server:
        sample = (await server.look()).sample
        assert (sample.running, sample.slots_total) == (5, 8)
        sample = (await server.look(health={"status": "ok", "slots_idle": -3, "slots_processing": 5})).sample
        assert (sample.running, sample.slots_total) == (None, 2)


async def test_a_server_without_the_route_is_one_without_slots() -> None:
    """`--slots-endpoint-disable` of ik_llama.cpp: 404 instead of 501."""
    missing = (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})
    metrics = samples.body("llamacpp/b11434/idle/metrics.txt").decode()
    async with Scripted(slots=missing, metrics=metrics) as server:
        reading = await server.look()
        await server.look()
        assert (reading.sample.state, reading.sample.running) == ("ok", 0)
        assert "--slots" in (fix(reading)["slots"] or "")
        assert server.count("/slots") == 1


@pytest.mark.parametrize(
    ("ftype", "name", "expected"),
    [
        ("Q4_K - Medium", "x-Q8_0.gguf", "Q4_K - Medium"),
        ("unknown, may not work", "Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        (None, "/models/Llama-3.1-8B-Instruct-IQ3_XXS.gguf", "IQ3_XXS"),
        (None, r"C:\models\gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        (None, "model.Q5_K_M-00001-of-00003.gguf", "Q5_K_M"),
        (None, "ggml-model-f16.gguf", "F16"),
        (None, "Qwen3-Q.gguf", None),
        (None, "model-Q99.gguf", None),
        ("", None, None),
        ("\x1b[2J" * 50, "x", None),
    ],
)
def test_quantisation(ftype: str | None, name: str | None, expected: str | None) -> None:
    found = quantisation(ftype, name)
    assert found == expected or (expected is None and "\x1b" not in (found or ""))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("llama-server -m x", "f16"),
        ("llama-server -m x -ctk q8_0 -ctv q8_0", "q8_0"),
        ("llama-server --cache-type-k q8_0 --cache-type-v=q4_0", "K q8_0, V q4_0"),
        ("llama-server -ctk q8_0", "K q8_0, V f16"),
        ("llama-server -ctk ../../etc/passwd", "f16"),
        ("python -m agenttop.demo.server", None),
    ],
)
def test_type_of_the_kv_cache(command: str, expected: str | None) -> None:
    assert read_arguments(command.split()).kv_dtype == expected


def test_type_of_the_kv_cache_by_variables() -> None:
    variables = {"LLAMA_ARG_CACHE_TYPE_K": "Q8_0", "LLAMA_ARG_CACHE_TYPE_V": "q8_0"}
    assert read_arguments(["llama-server"], variables).kv_dtype == "q8_0"


# Counters


def scrape(at: float, drafted: int, accepted: int, drafts: int) -> Any:
    names = ("draft_tokens", "accepted_tokens", "drafts")
    values = zip(names, (drafted, accepted, drafts), strict=True)
    text = "".join(f"llamacpp:spec_decode_num_{name}_total {value}\n" for name, value in values)
    return parse_metrics(text, at, None)


def test_acceptance_of_drafted_tokens() -> None:
    found = speculation([scrape(0, 100, 50, 40), scrape(10, 100, 50, 40), scrape(20, 180, 110, 60)])
    assert found.acceptance == pytest.approx(60 / 80)
    assert found.tokens_per_step == pytest.approx(1 + 60 / 20)
    # Nobody drafted; a counter went back; more was taken than drafted.
    for last in (scrape(20, 100, 50, 40), scrape(20, 90, 60, 45), scrape(20, 110, 80, 45)):
        assert speculation([scrape(0, 100, 50, 40), last]).acceptance is None
    assert speculation([scrape(0, 1, 1, 1)]).acceptance is None


async def test_prefix_hits_are_of_all_prompt_tokens() -> None:
    text = "llamacpp:prompt_tokens_total 300\nllamacpp:prompt_tokens_cached_total 900\n"
    async with Scripted(slots=[hostile.slot(0)], metrics=text) as server:
        sample = (await server.look()).sample
    assert (sample.prefix_hits_tokens_total, sample.prefix_queries_tokens_total) == (900, 1200)
    assert sample.prefix_hit_fraction is None


# A pool that runs full


def test_the_captured_end_of_eight_requests_in_one_pool() -> None:
    watch = ExhaustionWatch("http://127.0.0.1:1")
    told = []
    for at, body in samples.series("llamacpp/b11434/kvu-exhaust/slots.jsonl"):
        slots = parse_slots(body)
        told += watch.look(at, slots, pool_of(slots, "unified", 1024))
    assert [(event.event, event.severity) for event in told] == [("engine.kv-exhausted", "bad")]
    assert "8 requests" in told[0].text


def table(*rows: tuple[bool, int]) -> list[Any]:
    return parse_slots(
        msgspec.json.encode(
            [
                {"id": n, "n_ctx": 1000, "is_processing": busy, "id_task": n, "n_prompt_tokens": held}
                for n, (busy, held) in enumerate(rows)
            ]
        )
    )


def test_a_shared_pool_nearly_full_is_a_warning_once() -> None:
    watch = ExhaustionWatch("http://127.0.0.1:1")
    told: list[str] = []

    def look(*rows: tuple[bool, int], layout: str = "unified") -> None:
        slots = table(*rows)
        told.extend(event.event for event in watch.look(0.0, slots, pool_of(slots, layout, 1000)))

    look((True, 500), (True, 440))
    assert told == []
    look((True, 500), (True, 460))
    look((True, 520), (True, 470))
    assert told == ["engine.kv-nearly-full"]
    look((True, 400), (True, 400))
    look((True, 500), (True, 460))
    assert told == ["engine.kv-nearly-full"] * 2
    look((True, 400), (False, 0))
    told.clear()
    look((True, 960), (False, 0))  # one alone comes to the end of its context, in order
    look((True, 100), (False, 880))  # what finished requests left is dropped when it is needed
    look((True, 500), (True, 490), layout="split")
    assert told == []


def test_requests_that_end_in_order_leave_their_tokens() -> None:
    watch = ExhaustionWatch("http://127.0.0.1:1")
    for rows in ([(True, 400), (True, 400)], [(False, 401), (False, 401)]):
        slots = table(*rows)
        assert watch.look(0.0, slots, pool_of(slots, "unified", 1000)) == []


# Keys


async def test_slots_that_alone_ask_for_a_key() -> None:
    async with Scripted(slots=(401, {}), metrics=(401, {})) as server:
        reading = await server.look()
        assert reading.sample.state == "ok"
        assert "--api-key-env" in (fix(reading)["decode_tok_s"] or "")
        assert "--api-key-env" in (fix(reading)["waiting"] or "")


async def test_a_key_that_is_not_accepted_any_more() -> None:
    async with Scripted(slots=[hostile.slot(0)], metrics=OFF) as server:
        assert (await server.look()).sample.state == "ok"
        reading = await server.look(slots=(401, {}), props=(401, {}))
        assert (reading.sample.state, [e.event for e in reading.events]) == (
            "unauthorised",
            ["engine.unauthorised"],
        )


# Slow replies


async def test_an_engine_whose_replies_are_slow_is_asked_less_often_and_is_busy() -> None:
    rows = [hostile.slot(0, busy=True)]
    async with Scripted(slots=rows, metrics=OFF) as server:
        await server.look()
        assert (await server.look()).sample.poll_every_s == 1.0
        waited = 0.0

        def slowly() -> list[dict[str, Any]]:
            nonlocal waited
            waited += 2.0
            server.now += 2.0
            return rows

        begun, asked = server.now, server.count("/slots")
        readings = [await server.look(slots=slowly) for _ in range(80)]
        passed = server.now - begun
        assert server.count("/slots") - asked > 5
        assert waited / passed == pytest.approx(0.2, rel=0.1)
        busy = readings[1:]
        assert {reading.sample.state for reading in busy} == {"busy"}
        assert {reading.sample.poll_every_s for reading in busy} == {10.0}
        assert [event.event for reading in readings for event in reading.events] == ["engine.busy"]
        ages = [reading.sample.age_s or 0.0 for reading in busy]
        assert max(ages) > 5.0
        assert min(ages) == 0.0
        assert all(reading.sample.running == 1 for reading in busy)
        assert all(
            reading.sample.decode_tok_s is None for reading in busy if (reading.sample.age_s or 0) > 3.0
        )
        # Replies are fast again: so are the looks, from the next one on.
        back = [await server.look(slots=rows) for _ in range(15)]
        told = [event.event for reading in back for event in reading.events]
        assert told == ["engine.up"]
        assert (back[-1].sample.state, back[-1].sample.poll_every_s) == ("ok", 1.0)
        before = server.count("/slots")
        await server.look()
        assert server.count("/slots") == before + 1


async def test_alive_is_who_answers_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/slots` waits behind a prompt for longer than an answer is waited for."""
    monkeypatch.setattr(http, "ANSWER_S", 0.3)
    over = threading.Event()
    async with Scripted(slots=[hostile.slot(0)], metrics=OFF) as server:
        await server.look()

        def never() -> list[Any]:
            over.wait(20)
            return []

        try:
            reading = await server.look(slots=never)
            asked = server.count("/slots")
            assert reading.sample.state == "busy"
            assert "it is alive, and busy" in (reading.sample.note or "")
            assert reading.sample.slots_total == 1
            assert server.count("/health") == 1
            assert asked == server.count("/slots")
        finally:
            over.set()


# Its life


async def test_another_model_in_the_same_server() -> None:
    async with Scripted(slots=[hostile.slot(0)], metrics=OFF) as server:
        await server.look()
        swapped = {**PROPS, "model_path": "/models/other-Q8_0.gguf"}
        reading = await server.look(31.0, props=swapped)  # when its properties are read again
        assert [event.event for event in reading.events] == ["engine.model"]
        assert (reading.sample.model, reading.sample.quantisation) == ("other-Q8_0.gguf", "Q8_0")


async def test_loading_in_between_is_a_restart() -> None:
    loading = (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    async with Scripted(slots=[hostile.slot(0)], metrics=OFF) as server:
        await server.look()
        reading = await server.look(slots=loading, props=loading)
        assert (reading.sample.state, reading.sample.model) == ("loading", None)
        reading = await server.look(slots=[hostile.slot(0)], props=PROPS)
        assert [event.event for event in reading.events] == ["engine.restart"]
