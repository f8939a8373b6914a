"""vllm-mlx."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "vllm-mlx"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("vllm-mlx",),
    look=ProcessLook(programs=r"vllm-mlx", ports=(8000,)),
    imitates=frozenset({"vLLM"}),
)
