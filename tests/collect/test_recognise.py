"""Which engine answers at an address, and what is said when none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agenttop.collect.engine import recognise as module
from agenttop.collect.engine.base import UnrecognisedError
from agenttop.collect.engine.harmless import PROBES as PATHS
from agenttop.collect.engine.http import CutError, RefusedError, TimedOutError
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.openai import OpenAIAdapter
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.engine.recognise import recognise
from tests import hostile
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.servers import LlamaServer, free_port


async def verdict(url: str, key: str | None = None) -> UnrecognisedError:
    with pytest.raises(UnrecognisedError) as caught:
        await recognise(url, api_key=key)
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
        assert isinstance(adapter, OpenAIAdapter)
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
        assert {line.split(" ")[1] for line in server.asked} <= PATHS


async def test_what_the_generic_adapter_tells() -> None:
    with imitate.serves(imitate.SGLANG) as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        await adapter.client.close()
        asked = [line.split(" ")[1] for line in server.asked]
    sample = reading.sample
    assert (sample.name, sample.model) == ("SGLang", "tiny")
    assert sample.state == "ok"
    figures = ("running", "waiting", "kv_used_tokens", "kv_pool_tokens", "decode_tok_s", "prefill_tok_s")
    assert [getattr(sample, name) for name in figures] == [None] * len(figures)
    told = {frame.what.removeprefix(f"{server.url}:"): frame.why for frame in reading.missing}
    assert set(figures) <= set(told)
    assert all(why and "SGLang" in why for why in told.values())
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


async def test_a_router_is_named_and_left_alone() -> None:
    with imitate.serves(imitate.ROUTER, server="llama.cpp") as server:
        adapter = await recognise(server.url)
        with pytest.raises(UnrecognisedError) as caught:
            await adapter.poll()
        await adapter.client.close()
        assert {line.split(" ")[1] for line in server.asked} == {"/props"}
    assert (caught.value.state, caught.value.name) == ("unsupported", "llama.cpp router")
    assert "other ports" in caught.value.note


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
