"""vLLM; behind Ray and Dynamo its figures are read by their own kinds."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.vllm.adapter import VllmAdapter
from agenttop.collect.hints import kind_of


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    command = seen.process.command if seen.process is not None else None
    # What listens may be a tunnel or a container's port; a title may have taken the place of the words.
    own = command is not None and kind_of(command) is KIND and not command.program.startswith("VLLM::")
    return VllmAdapter(client, pid=seen.pid, command=command if own else None)


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
    metrics_prefixes=("vllm:", "vllm_num_requests_"),
)
