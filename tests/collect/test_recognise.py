"""Which engine answers at an address, and what is said when none does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agenttop.collect.engine import recognise as module
from agenttop.collect.engine.base import ChangedError, UnrecognisedError
from agenttop.collect.engine.harmless import CONFIRMATIONS
from agenttop.collect.engine.harmless import PROBES as PATHS
from agenttop.collect.engine.http import CutError, EngineError, RefusedError, TimedOutError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests import hostile
from tests.access import with_key
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.servers import LlamaServer, free_port


async def verdict(url: str, key: str | None = None) -> UnrecognisedError:
    with pytest.raises(UnrecognisedError) as caught:
        await recognise(url, access=with_key(key))
    assert "\n" not in caught.value.note
    return caught.value


@pytest.mark.parametrize(
    ("routes", "name"),
    [
        (imitate.SGLANG, "SGLang"),
        (imitate.OLLAMA, "Ollama"),
        (imitate.OLLAMA_EMPTY, "Ollama"),
        (imitate.LLAMA_SWAP, "llama-swap"),
        (imitate.KOBOLD, "KoboldCpp"),
        (imitate.TGI, "TGI"),
        (imitate.LM_STUDIO, "LM Studio"),
        (imitate.GENERIC, "openai"),
    ],
)
async def test_other_engines_are_named(routes: Mapping[str, Any], name: str) -> None:
    with imitate.serves(routes) as server:
        adapter = await recognise(server.url)
        assert adapter.name == name
        await adapter.client.close()
        asked = {line.split(" ")[1] for line in server.asked}
    assert asked <= PATHS
    assert "/health" not in asked  # on SGLang it runs inference


@pytest.mark.parametrize("routes", [imitate.VLLM, imitate.VLLM_LOCKED])
async def test_vllm_is_read_by_its_own_adapter(routes: Mapping[str, Any]) -> None:
    with imitate.serves(routes) as server:
        adapter = await recognise(server.url)
        assert isinstance(adapter, VllmAdapter)
        await adapter.client.close()
        assert {line.split(" ")[1] for line in server.asked} <= PATHS | CONFIRMATIONS


LOCKED = (401, {"error": "Unauthorized"})


class Draining:
    """TensorRT-LLM's `/metrics`: who reads it takes the figures away from everybody else."""

    def __init__(self, **routes: Any) -> None:
        self.drained = 0
        self.routes = {**imitate.TENSORRT_LLM, **{f"/{name}": body for name, body in routes.items()}}
        self.routes["/metrics"] = self._drain

    def _drain(self) -> Any:
        self.drained += 1
        return []


async def as_process(*words: str) -> Circumstances:
    return Circumstances(process=ServerProcess(pid=1, command=Command(words)))


@pytest.mark.parametrize(
    ("routes", "words", "name"),
    [
        ({}, (), "TensorRT-LLM"),
        ({"v1/models": LOCKED}, (), None),
        ({"v1/models": (404, {"detail": "Not Found"})}, (), None),
        ({"v1/models": {"object": "list", "data": []}}, (), "openai"),
        ({"v1/models": {"data": [{"id": "m", "owned_by": "somebody"}]}}, (), "openai"),
        ({"v1/models": (503, "broken")}, (), None),
        ({"v1/models": LOCKED}, ("trtllm-serve", "m"), "TensorRT-LLM"),
        ({"v1/models": (404, {})}, ("/usr/bin/python3", "/opt/bin/trtllm-serve", "serve"), "TensorRT-LLM"),
        ({"v1/models": {"data": []}}, ("trtllm-serve",), "TensorRT-LLM"),
        ({"load": {"server_load": 0}, "v1/models": LOCKED}, ("trtllm-serve",), "TensorRT-LLM"),
    ],
)
async def test_the_figures_of_tensorrt_llm_are_never_drained(
    routes: Mapping[str, Any], words: tuple[str, ...], name: str | None
) -> None:
    """It answers `/version` in vLLM's words, and its `/metrics` must not be asked even once."""
    draining = Draining(**routes)
    with imitate.serves(draining.routes, kind="TensorRT-LLM") as server:
        process = (lambda: as_process(*words)) if words else None
        if name is None:
            with pytest.raises(UnrecognisedError):
                await recognise(server.url, process=process)
        else:
            adapter = await recognise(server.url, process=process)
            assert adapter.name == name
            for _ in range(3):
                with contextlib.suppress(EngineError, ChangedError):
                    await adapter.poll()
            await adapter.alive()
            await adapter.client.close()
        assert draining.drained == 0
        assert "GET /metrics" not in server.asked


async def test_a_locked_vllm_is_told_by_a_second_sign() -> None:
    with imitate.serves({**imitate.VLLM_LOCKED, "/load": (404, {})}) as server:
        assert (await verdict(server.url)).state == "unauthorised"
        assert "GET /metrics" not in server.asked
    with imitate.serves({"/v1/models": LOCKED, "/load": {"server_load": 0}}) as server:
        await verdict(server.url)
        assert "GET /load" not in server.asked  # elsewhere it may load something


async def test_what_the_generic_adapter_tells() -> None:
    with imitate.serves(imitate.GENERIC) as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        await adapter.client.close()
        asked = [line.split(" ")[1] for line in server.asked]
    sample = reading.sample
    assert (sample.name, sample.model, sample.context_limit_tokens) == ("openai", "some-model", 4096)
    assert sample.state == "ok"
    figures = ("running", "waiting", "kv_used_tokens", "kv_pool_tokens", "decode_tok_s", "prefill_tok_s")
    assert [getattr(sample, name) for name in figures] == [None] * len(figures)
    told = {frame.what.removeprefix(f"{server.url}:"): frame.why for frame in reading.missing}
    assert set(figures) <= set(told)
    assert all("its own agents' streams" in (told[name] or "") for name in figures)
    assert "/metrics" not in asked


async def test_an_engine_without_a_list_of_models() -> None:
    with imitate.serves(imitate.TGI) as server:
        adapter = await recognise(server.url)
        sample = (await adapter.poll()).sample
        assert (sample.name, sample.model, sample.version) == ("TGI", "m", "3.3")
        assert sample.context_limit_tokens == 4096
        assert await adapter.alive()
        await adapter.client.close()


@pytest.mark.engine
async def test_a_real_llama_cpp_server(llama_server: LlamaServer) -> None:
    adapter = await recognise(llama_server.url)
    assert isinstance(adapter, LlamaCppAdapter)
    await adapter.client.close()


@pytest.mark.parametrize("build", ["b8672/idle-props.txt", "b11063/idle-props.txt", "b11434/idle/props.txt"])
async def test_llama_cpp_behind_a_proxy_that_hides_its_header(build: str) -> None:
    with imitate.serves({"/props": samples.body(f"llamacpp/{build}")}, server="nginx") as server:
        adapter = await recognise(server.url)
        assert adapter.name == "llama.cpp"
        await adapter.client.close()
        assert server.asked == ["GET /props"]


async def test_llama_cpp_that_loads_or_wants_a_key() -> None:
    with hostile.loading() as server:
        found = await verdict(server.url)
        assert (found.state, found.name) == ("loading", "llama.cpp")
    with hostile.unauthorised() as server:
        found = await verdict(server.url)
        assert (found.state, found.name) == ("unauthorised", "llama.cpp")
        assert "--api-key-env" in found.note
        found = await verdict(server.url, key="wrong")
        assert "does not accept the key" in found.note
        assert "wrong" not in found.note


async def test_an_unknown_server_that_wants_a_key() -> None:
    with imitate.serves(dict.fromkeys(PATHS, (401, {}))) as server:
        found = await verdict(server.url)
    assert (found.state, found.name) == ("unauthorised", "unknown")


async def test_llama_cpp_under_another_path() -> None:
    with hostile.llama_like() as server:
        found = await verdict(server.url + "/engines/a")
    assert (found.state, found.name) == ("unsupported", "llama.cpp")
    assert f"use {server.url}" in found.note


async def test_a_router_is_found_out_by_its_properties() -> None:
    with imitate.serves(imitate.ROUTER, server="llama.cpp", kind="llama.cpp") as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        await adapter.client.close()
        assert "GET /slots" not in server.asked
    assert (reading.sample.name, reading.sample.front) == ("llama.cpp router", True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (hostile.html_page, "serves a web page (“Router login”)"),
        (hostile.not_http, "does not speak HTTP"),
        (hostile.huge_reply, "more than 1 MB"),
        (hostile.redirect, "/elsewhere"),
        (lambda: imitate.serves({}), "GET /v1/models: 404"),
        (lambda: imitate.serves({"/v1/models": b""}), "no inference API"),
    ],
)
async def test_no_engine(
    make: Callable[[], hostile.HostileServer], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.5)
    with make() as server:
        found = await verdict(server.url)
        assert {line.split(" ")[0] for line in server.asked} <= {"GET"}
    assert (found.state, found.name) == ("unsupported", "unknown")
    assert words in found.note
    assert server.url in found.note


async def test_a_title_cannot_write_to_the_terminal() -> None:
    page = "<html><title>\x1b[2J\x07own</title></html>"
    with hostile.HostileServer(hostile._always((200, page), "text/html")) as server:
        assert "\x1b" not in (await verdict(server.url)).note


async def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.3)
    with pytest.raises(RefusedError):
        await recognise(f"http://127.0.0.1:{free_port()}")
    with hostile.stalls() as server, pytest.raises(TimedOutError):
        await recognise(server.url)
    with hostile.closes() as server, pytest.raises(CutError):
        await recognise(server.url)
