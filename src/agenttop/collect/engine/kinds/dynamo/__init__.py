"""NVIDIA Dynamo: its front end, and the metrics ports of its workers."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.dynamo.adapter import DynamoAdapter


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return DynamoAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=DynamoAdapter.name,
    allowed_paths=DynamoAdapter.allowed_paths,
    adapter=_adapter,
    owners=("nvidia",),
    look=ProcessLook(
        modules=("dynamo.frontend",),
        ports=(8000, 8081),
        port_options=("--http-port",),
        images=("nvidia/ai-dynamo",),
    ),
    rank=6,
    imitates=frozenset({"vLLM", "SGLang", "TensorRT-LLM"}),
    metrics_prefixes=("dynamo_component_", "dynamo_frontend_", "nv_llm_http_service_"),
)
