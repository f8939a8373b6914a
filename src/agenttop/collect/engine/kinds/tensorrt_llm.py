"""TensorRT-LLM: `trtllm-serve`."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "TensorRT-LLM"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("tensorrt_llm",),
    imitates=frozenset({"vLLM"}),
    look=ProcessLook(programs=r"trtllm-serve", ports=(8000,), images=("nvidia/tensorrt-llm",)),
)
