"""TensorRT-LLM: `trtllm-serve`."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.tensorrt_llm.adapter import TensorrtLlmAdapter


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return TensorrtLlmAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=TensorrtLlmAdapter.name,
    allowed_paths=TensorrtLlmAdapter.allowed_paths,
    adapter=_adapter,
    owners=("tensorrt_llm",),
    # It answers /version in vLLM's words, and vLLM's adapter would empty its queue of figures.
    imitates=frozenset({"vLLM"}),
    look=ProcessLook(
        programs=r"trtllm-serve",
        modules=("tensorrt_llm.commands.serve",),
        ports=(8000,),
        images=("nvidia/tensorrt-llm",),
    ),
)
