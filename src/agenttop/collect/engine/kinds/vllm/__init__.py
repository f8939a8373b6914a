"""vLLM, also behind Ray Serve and Dynamo."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.engine.kinds.vllm.metrics import PREFIXES


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return VllmAdapter(client, pid=seen.pid)


_SIGN = Sign(
    "/version",
    lambda reply: reply.fields() == {"version"},
    Sign("/load", lambda reply: reply.fields() == {"server_load"}),
)
"""For a server that keeps its list of models to itself. TensorRT-LLM answers the first one in the same words,
and its `/metrics` empties a queue, so that the version alone is no proof."""

KIND = EngineKind(
    name=VllmAdapter.name,
    allowed_paths=VllmAdapter.allowed_paths,
    adapter=_adapter,
    owners=("vllm",),
    signs=(_SIGN,),
    look=ProcessLook(
        programs=r"vllm|vllm-rs|VLLM::APIServer.*",
        modules=("vllm.entrypoints",),
        ports=(8000,),
        images=("vllm/vllm-openai",),
    ),
    rank=10,
    metrics_prefixes=PREFIXES,
)
