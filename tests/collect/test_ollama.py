"""Ollama: golden cases over handmade `/api/ps` and servers that answer like llama.cpp's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.children import children_of
from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import EngineError
from agenttop.collect.engine.kinds.ollama import KIND, Blobs, expires_in
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.process import Command, ServerProcess
from agenttop.demo.engine import demo_model
from agenttop.demo.gguf import TINY
from tests.collect import fronts, samples
from tests.collect import imitations as imitate
from tests.collect.frames_check import assert_sane
from tests.servers import free_port

PS = "ollama/handmade/ps_{}.json"
SERVE = ["/usr/local/bin/ollama", "serve"]
DATED = "Date: Tue, 01 Dec 2026 12:00:00 GMT\r\n"
ONE, OTHER = "llama3.2:latest", "qwen3:30b"


def ollama(models: str, **more: object) -> imitate.Imitation:
    routes = {**imitate.OLLAMA, "/api/ps": samples.body(PS.format(models)), **more}
    return imitate.serves(routes, headers=DATED, kind="Ollama")


def blobs(tmp_path: Path, **models: str) -> dict[str, Path]:
    """A folder of models: name (with _ for :) to the file of its weights."""
    files: dict[str, Path] = {}
    for name, digest in models.items():
        model, _, tag = name.partition("_")
        manifest = tmp_path / "manifests/registry.ollama.ai/library" / model / tag
        manifest.parent.mkdir(parents=True, exist_ok=True)
        layers = [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:ff"},
            {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
        ]
        manifest.write_text(json.dumps({"layers": layers}))
        files[name] = tmp_path / "blobs" / f"sha256-{digest}"
    return files


async def test_one_model_slot_by_slot() -> None:
    with fronts.servers(fronts.llama()) as (server,), ollama("one") as front:
        host = fronts.Host(SERVE, [fronts.child(server.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    sample = reading.sample
    assert (sample.name, sample.front, sample.engine, sample.pid) == ("Ollama", True, front.url, 4000)
    assert (sample.model, sample.version, sample.quantisation) == (ONE, "0.31.2", "Q4_K_M")
    assert (sample.running, sample.slots_total) == (0, 2)
    assert (sample.kv_layout, sample.kv_pool_tokens, sample.kv_used_tokens) == ("split", 1024, 43)
    assert sample.memory_bytes == sample.gpu_memory_bytes == 3_337_856_000
    assert [(slot.slot, slot.part, slot.engine) for slot in reading.slots] == [
        (0, ONE, front.url),
        (1, ONE, front.url),
    ]
    part = fronts.parts(reading)[ONE]
    assert (part.state, part.role, part.url) == ("loaded", "model", server.url)
    assert (part.context_limit_tokens, part.quantisation, part.kv_used_tokens) == (4096, "Q4_K_M", 43)
    assert part.expires_s == pytest.approx(300.123, abs=0.01)
    told = fronts.reasons(reading)
    assert "queues requests itself" in (told["waiting"].why or "")
    assert "LLAMA_ARG_ENDPOINT_METRICS=1" in (told["output_tokens_total"].fix or "")
    assert set(front.asked) == {"GET /api/ps", "GET /api/version"}
    assert fronts.unexplained(reading) == []


async def test_two_models_are_told_apart_by_the_file_of_their_weights(tmp_path: Path) -> None:
    files = blobs(tmp_path, **{"llama3.2_latest": "aa", "qwen3_30b": "bb"})
    with (
        fronts.servers(fronts.llama(slots=fronts.busy(10)), fronts.llama(slots=fronts.busy(50))) as (
            one,
            other,
        ),
        ollama("two") as front,
    ):
        children = [
            fronts.child(one.port, "--model", str(files["qwen3_30b"])),
            fronts.child(other.port, "--model", str(files["llama3.2_latest"])),
        ]
        each = fronts.adapter(KIND, front.url, fronts.Host(SERVE, children).seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert reading.sample.running == 2
    assert reading.sample.slots_total == 4
    assert reading.sample.kv_used_tokens == 110 + 150
    assert reading.sample.kv_fullest_fraction == pytest.approx(150 / 1024)
    assert {slot.slot: slot.part for slot in reading.slots} == {0: OTHER, 1: OTHER, 2: ONE, 3: ONE}
    told = fronts.parts(reading)
    assert (told[OTHER].kv_used_tokens, told[ONE].kv_used_tokens) == (110, 150)
    assert told[OTHER].expires_s is None
    assert "stays loaded" in (told[OTHER].note or "")
    assert reading.sample.gpu_memory_bytes == 3_337_856_000 + 15_000_000_000
    assert fronts.unexplained(reading) == []


async def test_two_models_without_manifests_are_added_up_under_no_name() -> None:
    with fronts.servers(fronts.llama(), fronts.llama()) as (one, other), ollama("two") as front:
        host = fronts.Host(SERVE, [fronts.child(one.port), fronts.child(other.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert reading.sample.running == 0
    assert {slot.part for slot in reading.slots} == {None}
    assert fronts.parts(reading)[ONE].kv_used_tokens is None


async def test_no_model() -> None:
    with imitate.serves(imitate.OLLAMA_EMPTY, kind="Ollama") as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(SERVE).seen())
        reading = await fronts.look(each)
        await each.client.close()
    sample = reading.sample
    assert (sample.state, sample.model, sample.running, sample.memory_bytes) == ("ok", None, 0, 0)
    assert sample.decode_tok_s is None
    assert fronts.reasons(reading)["decode_tok_s"].why == "no model is loaded"
    assert reading.parts == []
    assert fronts.unexplained(reading) == []


async def test_a_model_swapped_between_two_looks() -> None:
    models = ["one"]
    with fronts.servers(fronts.llama(), fronts.llama(slots=fronts.busy(5))) as (one, other):
        front = ollama("one", **{"/api/ps": lambda: samples.body(PS.format(models[0]))})
        with front:
            host = fronts.Host(SERVE, [fronts.child(one.port)])
            each = fronts.adapter(KIND, front.url, host.seen())
            first = await fronts.look(each, 2)
            models[0], host.children = "other", [fronts.child(other.port)]
            second = await fronts.look(each, 1)
            each.client.now.time += 1  # type: ignore[attr-defined]
            third = await each.poll()
            await each.client.close()
    assert first.events == [] == third.events
    assert [event.event for event in second.events] == ["engine.model"]
    assert fronts.texts(second.events) == [f"swapped {ONE} for {OTHER}"]
    assert (second.sample.model, second.sample.running) == (OTHER, 1)
    assert {slot.part for slot in second.slots} == {OTHER}


async def test_a_server_that_dies_does_not_fail_the_front() -> None:
    with ollama("one") as front:
        with fronts.servers(fronts.llama()) as (server,):
            host = fronts.Host(SERVE, [fronts.child(server.port)])
            each = fronts.adapter(KIND, front.url, host.seen())
            assert (await fronts.look(each, 2)).sample.slots_total == 2
        looks = host.looks
        each.client.now.time += 1  # type: ignore[attr-defined]
        reading = await each.poll()
        assert (reading.sample.state, reading.sample.running) == ("ok", 0)
        assert reading.slots == []
        assert "nothing listens" in (fronts.parts(reading)[ONE].note or "")
        assert host.looks > looks  # the processes are looked at again
        assert not [event for event in reading.events if event.event == "engine.restart"]
        await each.client.close()


async def test_a_server_that_loads_holds_nothing_up() -> None:
    loading = (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    with fronts.servers(dict.fromkeys(("/props", "/slots"), loading)) as (server,), ollama("one") as front:
        host = fronts.Host(SERVE, [fronts.child(server.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
    assert (reading.sample.state, reading.sample.running, reading.slots) == ("ok", 0, [])
    assert fronts.parts(reading)[ONE].note == "loading the model"


@pytest.mark.parametrize(
    ("runner", "why", "fix"),
    [
        (["ollama", "runner", "--model", "/x", "--port", "5000"], "own runner", "0.30 or newer"),
        (["ollama", "runner", "--mlx-engine", "--port", "5000"], "MLX runner", None),
        (None, "not seen among the children", None),
    ],
)
async def test_runners_without_figures(runner: list[str] | None, why: str, fix: str | None) -> None:
    children = [ServerProcess(pid=9, command=Command(runner))] if runner else []
    with ollama("old") as front:
        each = fronts.adapter(KIND, front.url, fronts.Host(SERVE, children).seen())
        reading = await fronts.look(each)
        await each.client.close()
    assert (reading.sample.running, reading.sample.decode_tok_s) == (None, None)
    told = fronts.reasons(reading)
    for field in ("running", "decode_tok_s", "slots", "kv_used_tokens"):
        assert why in (told[field].why or ""), field
        assert (fix or "") in (told[field].fix or ""), field
    assert fronts.parts(reading)[ONE].memory_bytes == 3_337_856_000


async def test_on_another_host_only_the_state_is_told() -> None:
    with ollama("one") as front:
        each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
        reading = await fronts.look(each)
        await each.client.close()
    assert reading.sample.running is None
    assert "on its own host" in (fronts.reasons(reading)["decode_tok_s"].why or "")
    assert fronts.parts(reading)[ONE].expires_s is not None
    assert fronts.unexplained(reading) == []


async def test_a_tunnel_is_not_the_front() -> None:
    """Its child would be somebody else's server."""
    with fronts.servers(fronts.llama()) as (server,), ollama("one") as front:
        host = fronts.Host(["ssh", "-L", "11434:localhost:11434", "box2"], [fronts.child(server.port)])
        each = fronts.adapter(KIND, front.url, host.seen())
        reading = await fronts.look(each, 2)
        await each.client.close()
        assert server.asked == []
    assert "cannot be seen" in (fronts.reasons(reading)["decode_tok_s"].why or "")


async def test_something_else_has_come() -> None:
    with imitate.serves({}, kind="Ollama") as front:
        each = fronts.adapter(KIND, front.url, fronts.NOWHERE)
        with pytest.raises(ChangedError):
            await each.poll()
        await each.client.close()


def test_blobs_does_not_leave_its_folder(tmp_path: Path) -> None:
    files = blobs(tmp_path, **{"llama3.2_latest": "aa"})
    server = fronts.child(1, "--model", str(files["llama3.2_latest"]))
    wanted = {server.pid: "llama3.2:latest"}
    assert Blobs().names([server], ["../../llama3.2:latest", "llama3.2:latest", "", "a/../b:c"]) == wanted
    assert Blobs().names([server], ["llama3.2"]) == {server.pid: "llama3.2"}
    assert Blobs().names([fronts.child(1)], ["llama3.2:latest"]) == {}


@pytest.mark.parametrize(
    ("at", "date", "expected"),
    [
        ("2026-12-01T12:05:00.5Z", "Tue, 01 Dec 2026 12:00:00 GMT", 300.5),
        ("2026-12-01T13:05:00.125000001+01:00", "Tue, 01 Dec 2026 12:00:00 GMT", 300.125),
        ("2026-12-01T11:00:00Z", "Tue, 01 Dec 2026 12:00:00 GMT", 0.0),
        ("0001-01-01T00:00:00Z", "Tue, 01 Dec 2026 12:00:00 GMT", None),
        ("soon", "Tue, 01 Dec 2026 12:00:00 GMT", None),
        (None, None, None),
    ],
)  # fmt: skip
def test_expiry_by_the_servers_own_clock(at: str | None, date: str | None, expected: float | None) -> None:
    assert expires_in(at, date) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_it_answers(data: st.DataObject) -> None:
    """No other exception, no NaN, no negative figure."""
    body = bytearray(samples.body(PS.format("two")))
    for _ in range(data.draw(st.integers(0, 6))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(32, 126))
    value = data.draw(
        st.sampled_from([b"-5", b"1e400", b"99999999999999999999", b"null", b'"x"', b"3337856000"])
    )
    mutated = bytes(body).replace(b"3337856000", value)

    async def run() -> None:
        with ollama("two", **{"/api/ps": mutated}) as front:
            each = fronts.adapter(KIND, front.url, fronts.Host(SERVE).seen())
            try:
                assert_sane(await fronts.look(each, 2))
            except (EngineError, ChangedError):
                pass
            finally:
                await each.client.close()

    asyncio.run(run())


_PARENT = """
    import http.server, json, sys
    from pathlib import Path
    from agenttop.demo.engine import DemoEngine
    engine = DemoEngine.start(Path(sys.argv[2]), slots=2, context=1024, port=int(sys.argv[3]), threads=1)
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do_GET(self):
            told = {"/": "Ollama is running", "/api/version": '{"version":"0.31.2"}',
                    "/v1/models": '{"data":[{"id":"m","owned_by":"library"}]}',
                    "/api/ps": json.dumps({"models":[{"name":"m:latest","size":5,"size_vram":0}]})}
            body = told.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_real_process_tree(tmp_path: Path, engine_needed: None, model_cache: Path) -> None:
    """A front of that name that starts a real llama.cpp server: found by itself, read slot by slot."""
    program = tmp_path / "ollama"
    program.write_text(textwrap.dedent(_PARENT))
    port, model = free_port(), str(demo_model(model_cache, TINY))
    front = subprocess.Popen(
        [sys.executable, str(program), "serve", model, str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert front.stdout is not None
        url = f"http://127.0.0.1:{int(front.stdout.readline())}"
        watch = EngineWatch(url)
        for _ in range(100):
            reading = await watch.poll()
            if reading.slots:
                break
            await asyncio.sleep(0.1)
        await watch.close()
        assert (reading.sample.name, reading.sample.pid) == ("Ollama", front.pid)
        assert [slot.part for slot in reading.slots] == ["m:latest"] * 2
        assert fronts.parts(reading)["m:latest"].url == f"http://127.0.0.1:{port}"
        assert [each.command.number("--port") for each in children_of(front.pid)] == [port]
    finally:
        for each in children_of(front.pid):
            os.kill(each.pid, signal.SIGKILL)
        front.kill()
        front.wait()
        if front.stdout is not None:
            front.stdout.close()
