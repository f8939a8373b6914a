"""Other inference engines as they answer from outside, by captured replies where there are some.

What is not listed is a 404. Every request is kept: see `HostileServer.asked`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from tests import hostile
from tests.collect import samples


def serves(routes: Mapping[str, Any], server: str = "uvicorn", headers: str = "") -> hostile.HostileServer:
    """`routes`: path to (status, body) or to a body of status 200. `headers`: further ones, whole lines."""

    def answer(host: hostile.HostileServer, connection: socket.socket) -> None:
        while line := hostile._read_request(host, connection):
            reply = routes.get(line.split(" ")[1], (404, {"detail": "Not Found"}))
            reply = reply if isinstance(reply, tuple) else (200, reply)
            kind = "text/plain" if isinstance(reply[1], str) else "application/json"
            hostile._send(connection, reply, kind, f"Server: {server}\r\n{headers}")

    return hostile.HostileServer(answer)


VLLM = {
    "/version": samples.body("vllm/version.txt"),
    "/v1/models": samples.body("vllm/v1_models.txt"),
    "/metrics": samples.body("vllm/metrics.txt"),
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
    "/v1/models": {"object": "list", "data": [{"id": "llama3:8b", "object": "model", "owned_by": "library"}]},
}
OLLAMA_EMPTY = {**OLLAMA, "/v1/models": {"object": "list", "data": None}}
LLAMA_SWAP = {
    "/running": {"running": [{"model": "m", "state": "ready"}]},
    "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "llama-swap"}]},
}
KOBOLD = {
    # imitates llama.cpp's and others' replies
    "/props": {"chat_template": "", "total_slots": 1, "default_generation_settings": {"n_ctx": 4096}},
    "/v1/models": {"object": "list", "data": [{"id": "koboldcpp/m", "owned_by": "koboldcpp"}]},
    "/api/extra/version": {"result": "KoboldCpp", "version": "1.99"},
}
TGI = {"/info": {"model_id": "m", "max_total_tokens": 4096, "version": "3.3"}}
LM_STUDIO = {
    "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "organization_owner"}]},
    "/api/v0/models": {"data": [{"id": "m", "compatibility_type": "gguf"}]},
}
GENERIC = {"/v1/models": {"object": "list", "data": [{"id": "some-model", "max_model_len": 4096}]}}
ROUTER = {"/props": {"role": "router", "build_info": "b11549-abc", "default_generation_settings": {}}}
