"""llama.cpp's HTTP server."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.llamacpp.arguments import ENVIRONMENT, read_arguments


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    process = seen.process
    arguments = read_arguments(process.command.words, process.environment) if process is not None else None
    return LlamaCppAdapter(client, metrics=seen.metrics, arguments=arguments, pid=seen.pid)


KIND = EngineKind(
    name=LlamaCppAdapter.name,
    allowed_paths=LlamaCppAdapter.allowed_paths,
    adapter=_adapter,
    owners=("llamacpp",),
    look=ProcessLook(
        programs=r"llama-server[\w.-]*",
        modules=("agenttop.demo.server",),
        ports=(8080,),
        images=("ggml-org/llama.cpp",),
        environment=ENVIRONMENT,
    ),
    rank=0,
)
