"""Other inference engines as they answer from outside, by captured replies where there are some.

What is not listed is a 404. Every request is kept: see `HostileServer.asked`. When the `with` ends, a request
that agenttop must not make of this engine fails the test, whatever else the test is about.
"""

from __future__ import annotations

import gzip
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from agenttop.collect.engine.harmless import CONFIRMATIONS, PROBES
from agenttop.collect.engine.registry import registry
from tests import hostile
from tests.collect import samples


class Imitation(hostile.HostileServer):
    """Fails the test at its end when it was asked what it must not be asked."""

    kind: str | None = None

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        beyond = beyond_the_list(self.asked, self.kind)
        if beyond and error[0] is None:
            pytest.fail(f"asked what must not be asked of {self.kind or 'any engine'}: {beyond}")


def beyond_the_list(asked: list[str], kind: str | None) -> list[str]:
    """Requests that are neither probes nor on the list of the engine of this name (None: of any engine)."""
    kinds = [each for each in registry().kinds if kind in (None, each.name)]
    assert kinds, f"no engine is called {kind}"
    allowed = {*PROBES, *CONFIRMATIONS, *(("/metrics", "/sim") if kind is None else ())}
    allowed |= {path for each in kinds for path in each.allowed_paths}
    return [line for line in asked if not _is_on(line, allowed)]


def _is_on(line: str, allowed: set[str]) -> bool:
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    for each in allowed:
        bare, _, wanted = each.partition("?")
        # A redirect may add or drop the slash at the end.
        if method == "GET" and bare.rstrip("/") == path.rstrip("/") and bool(wanted) == bool(query):
            names = {part.partition("=")[0] for part in query.split("&")}
            fixed = {part for part in wanted.split("&") if part and not part.endswith("=*")}
            if not query or (
                names == {part.partition("=")[0] for part in wanted.split("&")}
                and fixed <= set(query.split("&"))
            ):
                return True
    return False


def serves(
    routes: Mapping[str, Any], server: str = "uvicorn", headers: str = "", kind: str | None = None
) -> Imitation:
    """`routes`: path (with its query, if any) to (status, body) or to a body of status 200; a callable is
    called for it, for replies that change. `headers`: further ones, whole lines. `kind`: the engine's name:
    then only its own list counts."""

    def answer(host: hostile.HostileServer, connection: socket.socket) -> None:
        while line := hostile._read_request(host, connection):
            reply = routes.get(line.split(" ")[1], (404, {"detail": "Not Found"}))
            reply = reply() if callable(reply) else reply
            reply = reply if isinstance(reply, tuple) else (200, reply)
            kind = "text/plain" if isinstance(reply[1], str) else "application/json"
            hostile._send(connection, reply, kind, f"Server: {server}\r\n{headers}")

    made = Imitation(answer)
    made.kind = kind
    return made


VLLM = {
    "/version": samples.body("vllm/version.txt"),
    "/v1/models": samples.body("vllm/v1_models.txt"),
    "/metrics": samples.body("vllm/metrics.txt"),
    "/load": samples.body("vllm/load.txt"),
    "/health": b"",
}
VLLM_LOCKED = {**VLLM, "/v1/models": (401, {"error": "Unauthorized"})}
SGLANG = {
    "/v1/models": samples.body("sglang/v1_models.txt"),
    "/model_info": samples.body("sglang/model_info.txt"),
    "/health": b"",
}
OLLAMA = {
    "/": "Ollama is running",
    "/api/version": {"version": "0.31.2"},
    "/api/ps": samples.body("ollama/handmade/ps_one.json"),
    "/v1/models": {"object": "list", "data": [{"id": "llama3:8b", "object": "model", "owned_by": "library"}]},
}
OLLAMA_EMPTY = {
    **OLLAMA,
    "/api/ps": samples.body("ollama/handmade/ps_none.json"),
    "/v1/models": {"object": "list", "data": None},
}
LLAMA_SWAP = {
    "/running": samples.body("llama_swap/handmade/running_two.json"),
    "/v1/models": samples.body("llama_swap/handmade/v1_models.json"),
    "/api/version": {"version": "v180", "commit": "abc1234", "build_date": "2026-10-01"},
}
KOBOLD = {
    # imitates llama.cpp's and others' replies
    "/props": {"chat_template": "", "total_slots": 1, "default_generation_settings": {"n_ctx": 4096}},
    "/v1/models": {"object": "list", "data": [{"id": "koboldcpp/m", "owned_by": "koboldcpp"}]},
    "/api/extra/version": samples.body("koboldcpp/handmade/version.json"),
    "/api/version": {"version": "0.7.0"},  # Ollama's, it says
    "/api/extra/perf": samples.body("koboldcpp/handmade/perf.json"),
    "/api/v1/model": {"result": "koboldcpp/Qwen3-8B-Q4_K_M"},
    "/api/extra/true_max_context_length": {"value": 8192},
}
TGI = {"/info": {"model_id": "m", "max_total_tokens": 4096, "version": "3.3"}}
TENSORRT_LLM = {
    "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "tensorrt_llm"}]},
    "/version": {"version": "1.1.0"},
    "/health": "",
}
LM_STUDIO = {
    # answers what it does not know with 200
    **{path: {"error": f"Unexpected endpoint or method. (GET {path})"} for path in PROBES},
    "/v1/models": samples.body("lm_studio/handmade/v1_models.json"),
    "/api/v0/models": samples.body("lm_studio/handmade/v0.json"),
    "/api/v1/models": samples.body("lm_studio/handmade/v1.json"),
}
GENERIC = {"/v1/models": {"object": "list", "data": [{"id": "some-model", "max_model_len": 4096}]}}
ROUTER = {
    "/props": samples.body("llamacpp/router/props.json"),
    "/v1/models": samples.body("llamacpp/router/models_two.json"),
}
LITELLM = {
    "/": b'"LiteLLM: RUNNING"',
    "/health/readiness": samples.body("litellm/health_readiness.json"),
    "/metrics/": gzip.decompress(samples.body("litellm/metrics_busy.txt.gz")).decode(),
    "/v1/models": (401, {"error": {"message": "Authentication Error, No api key passed in."}}),
}
