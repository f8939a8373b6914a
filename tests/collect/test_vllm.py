"""A vLLM server as it is watched: what it tells, what it does not, restarts, keys, and odd answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from agenttop.collect.engine import http, recognise
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.harmless import PROBES
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.engine.watch import EngineWatch
from agenttop.model.frames import EngineSample
from tests.access import with_key
from tests.collect import imitations as imitate
from tests.collect import samples

Start = Callable[..., EngineWatch]
SERIES = samples.series("vllm/load10-preempt/metrics.jsonl.gz")


@pytest.fixture
async def watch() -> AsyncIterator[Start]:
    """Starts watches that end with the test."""
    started: list[EngineWatch] = []

    def start(url: str, **options: Any) -> EngineWatch:
        made = EngineWatch(url, **{"polls_host": False, **options})
        started.append(made)
        return made

    yield start
    for each in started:
        await each.close()


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognise, "_ANSWER_S", 1.0)
    monkeypatch.setattr(http, "ANSWER_S", 2.0)


class Scripted:
    """A vLLM server whose routes change between looks, on a clock that the test moves."""

    def __init__(self, watch: Start, **options: Any) -> None:
        self.routes: dict[str, Any] = dict(imitate.VLLM)
        self.now = 0.0
        self._server = imitate.serves(self.routes)
        self._start, self._options = watch, options

    def __enter__(self) -> Scripted:
        self._server.__enter__()
        self.url = self._server.url
        self.watch = self._start(self.url, now=lambda: self.now, patience_s=5.0, **self._options)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(*error)

    @property
    def asked(self) -> list[str]:
        return [line.split(" ")[1] for line in self._server.asked]

    async def look(self, at: float | None = None, **routes: Any) -> EngineReading:
        self.routes |= {f"/{name}": body for name, body in routes.items()}
        self.now = self.now + 1.0 if at is None else at
        return await self.watch.poll()

    async def looks(self, bodies: list[tuple[float, bytes]]) -> list[EngineReading]:
        return [await self.look(at, metrics=body.decode()) for at, body in bodies]


def why(reading: EngineReading, url: str) -> dict[str, str | None]:
    return {frame.what.removeprefix(f"{url}:"): frame.why for frame in reading.missing}


async def test_a_captured_run_as_it_is_shown(watch: Start) -> None:
    with Scripted(watch) as server:
        readings = await server.looks(SERIES)
        asked = server.asked
    first, last = readings[0].sample, readings[-1].sample
    assert (first.name, first.version, first.model, first.state) == ("vLLM", "0.32.0", "tiny", "ok")
    assert (first.context_limit_tokens, first.slots_total, first.kv_layout) == (2048, None, "paged")
    assert (first.decode_tok_s, first.prefill_tok_s, first.window_s) == (None, None, None)
    assert (last.running, last.waiting, last.preemptions_total) == (5, 0, 11)
    assert (last.kv_pool_tokens, last.kv_used_tokens, last.kv_active_tokens) == (992, 896, 896)
    assert (last.kv_idle_tokens, last.data_parallel, last.kv_fullest_fraction) == (None, None, None)
    assert (last.output_tokens_total, last.prompt_tokens_total, last.cached_tokens_total) == (1814, 967, 0)
    assert (last.prefix_hits_tokens_total, last.prefix_queries_tokens_total) == (0, 967)
    assert last.decode_tok_s == pytest.approx((1814 - 1038) / last.window_s)  # type: ignore[operator]
    assert all(reading.sample.decode_tok_s for reading in readings[1:])
    events = [event.event for reading in readings for event in reading.events]
    assert events == ["engine.up", "engine.preempting", "engine.preempted"]
    assert all(reading.slots == [] and reading.gpus == [] for reading in readings)
    assert set(asked) <= PROBES | VllmAdapter.allowed_paths
    assert asked.count("/version") <= 2  # to recognise it, and once for the version
    assert asked.count("/metrics") == len(SERIES)


async def test_two_data_parallel_engines(watch: Start) -> None:
    with Scripted(watch) as server:
        sample = (await server.looks(samples.series("vllm/dp2/load8/metrics.jsonl.gz")))[-1].sample
    assert (sample.data_parallel, sample.running, sample.kv_pool_tokens) == (2, 8, 4032)
    assert sample.kv_used_tokens == 1280
    assert sample.kv_fullest_fraction == pytest.approx(0.3175, abs=1e-4)
    assert sample.output_tokens_total == 185 + 142


async def test_what_cannot_be_known_says_why(watch: Start) -> None:
    with Scripted(watch) as server:
        told = why(await server.look(), server.url)
    speculation = {"drafted_tokens_total", "accepted_tokens_total", "draft_acceptance", "tokens_per_step"}
    assert set(told) == {"slots_total", "kv_idle_tokens", "sequences_max", "quantisation", *speculation}
    assert all(told.values())


async def test_statistics_switched_off(watch: Start) -> None:
    off = "\n".join(
        line for line in str(imitate.VLLM["/metrics"], "utf-8").splitlines() if "vllm" not in line
    )
    with Scripted(watch) as server:
        reading = await server.look(metrics=off)
        told = why(reading, server.url)
        fixes = {frame.fix for frame in reading.missing}
    sample = reading.sample
    assert (sample.state, sample.model, sample.context_limit_tokens) == ("ok", "tiny", 2048)
    assert (sample.running, sample.kv_used_fraction, sample.decode_tok_s) == (None, None, None)
    assert "statistics are off" in (told["running"] or "")
    assert "start vLLM without --disable-log-stats" in fixes


async def test_metrics_that_a_proxy_does_not_pass_on(watch: Start) -> None:
    with Scripted(watch) as server:
        reading = await server.look(metrics=(404, {"detail": "Not Found"}))
        assert "GET /metrics is not there" in (why(reading, server.url)["running"] or "")
        assert (reading.sample.state, reading.sample.running) == ("ok", None)


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_figures_need_no_key_and_it_is_said_that_requests_do(watch: Start, key: str | None) -> None:
    with Scripted(watch, access=with_key(key)) as server:
        server.routes["/v1/models"] = (401, {"error": "Unauthorized"})
        first, second = await server.look(), await server.look()
        told = why(first, server.url)
    assert (first.sample.state, first.sample.running, first.sample.model) == ("ok", 0, "tiny")
    assert first.sample.context_limit_tokens is None
    assert "key" in (told["context_limit_tokens"] or "")
    locked = [event for event in first.events if event.event == "engine.locked"]
    assert len(locked) == 1
    assert "--api-key-env" in locked[0].text
    assert ("does not accept" if key else "needs a key") in locked[0].text
    assert "wrong" not in locked[0].text
    assert second.events == []


async def test_metrics_behind_a_key(watch: Start) -> None:
    with Scripted(watch) as server:
        sample = (await server.look(metrics=(401, {"error": "Unauthorized"}))).sample
    assert (sample.state, sample.running) == ("unauthorised", None)
    assert "--api-key-env" in (sample.note or "")


def with_start(body: bytes, start: float) -> str:
    return body.decode().replace(
        "process_start_time_seconds 1.79606059899e+09", f"process_start_time_seconds {start!r}"
    )


async def test_a_restart_between_two_looks_is_told_once_it_is_sure(watch: Start) -> None:
    before, after = SERIES[-1][1], SERIES[1][1]
    with Scripted(watch) as server:
        await server.look(metrics=with_start(before, 1.7e9))
        await server.look(metrics=with_start(before, 1.7e9))
        readings = [await server.look(metrics=with_start(after, 1.8e9)) for _ in range(5)]
        events = [event.event for reading in readings for event in reading.events]
    assert events == ["engine.restart"]
    assert readings[0].sample.decode_tok_s is None
    assert readings[-1].sample.restarts == 1


async def test_counters_that_go_back_are_a_restart_where_no_start_time_is_told(watch: Start) -> None:
    def without_start(body: bytes) -> str:
        return with_start(body, 0).replace("process_start_time_seconds", "no_start")

    with Scripted(watch) as server:
        await server.look(metrics=without_start(SERIES[-1][1]))
        reading = await server.look(metrics=without_start(SERIES[1][1]))
        assert [event.event for event in reading.events] == ["engine.restart"]
        assert reading.sample.decode_tok_s is None
        assert (await server.look()).events == []


async def test_several_servers_behind_one_address_are_no_restarts(watch: Start) -> None:
    with Scripted(watch) as server:
        readings = []
        for number in range(8):
            body = with_start(SERIES[number % 2 * 3][1], 1.7e9 + number % 2)
            readings.append(await server.look(metrics=body))
        events = [event.event for reading in readings for event in reading.events]
        whys = {frame.what: frame.why for reading in readings for frame in reading.missing}
    assert events == ["engine.up"]
    assert {reading.sample.decode_tok_s for reading in readings} == {None}
    assert "in turn" in (whys[f"{server.url}:decode_tok_s"] or "")


async def test_a_prefill_in_progress_has_no_rate_until_it_lands(watch: Start) -> None:
    """One request of 64,000 tokens, counted when its prefill has ended after ten seconds."""
    idle = str(imitate.VLLM["/metrics"], "utf-8")
    label = '{engine="0",model_name="tiny"}'

    def at_work(prompt: int, running: int) -> str:
        text = idle.replace(f"num_requests_running{label} 0.0", f"num_requests_running{label} {running}.0")
        if prompt:
            text = text.replace('source="local_compute"} 0.0', f'source="local_compute"}} {prompt}.0')
            text = text.replace(
                f"time_to_first_token_seconds_count{label} 0.0",
                f"time_to_first_token_seconds_count{label} 1.0",
            )
        return text

    with Scripted(watch) as server:
        for _ in range(4):
            idle_reading = await server.look(metrics=idle)
        readings = [await server.look(metrics=at_work(0, 1)) for _ in range(9)]
        landed = await server.look(metrics=at_work(64_000, 1))
        whys = {frame.what: frame.why for reading in readings for frame in reading.missing}
    assert idle_reading.sample.prefill_tok_s == 0.0
    assert [reading.sample.prefill_tok_s for reading in readings] == [None] * 9
    assert "when its prefill has ended" in (whys[f"{server.url}:prefill_tok_s"] or "")
    assert landed.sample.prefill_tok_s == pytest.approx(6400.0)


async def test_another_engine_on_the_same_port_is_noticed(watch: Start) -> None:
    with Scripted(watch) as server:
        assert (await server.look()).sample.name == "vLLM"
        server.routes.clear()
        server.routes |= imitate.SGLANG
        reading = await server.look()
        assert (reading.sample.name, reading.sample.running) == ("SGLang", None)
        assert any(event.event == "engine.changed" for event in reading.events)


async def test_a_vllm_that_sleeps(watch: Start) -> None:
    text = str(imitate.VLLM["/metrics"], "utf-8")
    with Scripted(watch) as server:
        sample = (await server.look(metrics=text.replace('"awake"} 1.0', '"awake"} 0.0'))).sample
    assert sample.state == "asleep"
    assert "wake_up" in (sample.note or "")


@pytest.mark.parametrize(
    "routes",
    [
        {"/metrics": b"\xff\xfe\x00" * 5000},
        {"/metrics": 'vllm:num_requests_running{engine="0"} NaN\n' * 50},
        {"/metrics": "vllm:num_requests_running{" + "a" * 100_000},
        {"/metrics": 'vllm:cache_config_info{num_gpu_blocks="' + "9" * 5000 + '"} 1\n'},
        {"/metrics": 'vllm:generation_tokens_total{model_name="\x1b[2Jx"} 3\n'},
        {
            "/v1/models": {
                "data": [{"id": "\x1b]0;own\x07" + "x" * 5000, "owned_by": "vllm", "max_model_len": -1}]
            }
        },
        {"/v1/models": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 10**40}]}},
        {"/v1/models": {"data": []}, "/version": {"version": "1"}},
        {"/version": "<html>"},
        {"/metrics": (503, "boom")},
        {"/v1/models": (503, "boom"), "/version": {"version": "\x1b[31m1"}},
    ],
    ids=str,
)
async def test_odd_answers_neither_crash_nor_write_to_the_terminal(
    watch: Start, routes: Mapping[str, Any]
) -> None:
    with Scripted(watch) as server:
        server.routes |= routes
        for _ in range(3):
            sample = (await server.look()).sample
            texts = f"{sample.model}{sample.version}{sample.note}{sample.name}"
            assert texts.isprintable()
            assert len(texts) < 500
            for figure in (
                "running",
                "decode_tok_s",
                "kv_used_fraction",
                "kv_pool_tokens",
                "context_limit_tokens",
            ):
                value = getattr(sample, figure)
                assert value is None or 0 <= value < 1e13


async def test_a_vllm_that_dies_and_comes_back(watch: Start) -> None:
    routes = dict(imitate.VLLM)
    with imitate.serves(routes) as server:
        watched = watch(server.url)
        assert (await watched.poll()).sample.state == "ok"
    sample: EngineSample | None = None
    for _ in range(100):
        sample = (await watched.poll()).sample
        if sample.state == "down":
            break
        await asyncio.sleep(0.02)
    assert sample is not None
    assert (sample.state, sample.name, sample.running) == ("down", "vLLM", None)


async def test_a_proxy_that_has_lost_its_vllm(watch: Start) -> None:
    with Scripted(watch) as server:
        assert (await server.look()).sample.state == "ok"
        sample = (await server.look(metrics=(503, "upstream is gone"))).sample
        assert (sample.state, sample.name) == ("down", "vLLM")
        assert "503" in (sample.note or "")
        server.now += 10
        assert (await server.look(metrics=samples.body("vllm/metrics.txt").decode())).sample.state == "ok"


async def test_fifty_megabytes_of_metrics_are_refused(watch: Start) -> None:
    with Scripted(watch) as server:
        sample = (await server.look(metrics="vllm:x 1\n" * 2_000_000)).sample
    assert sample.state == "unsupported"
    assert "more than 8 MB" in (sample.note or "")
