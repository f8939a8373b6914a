"""llama.cpp's HTTP server."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.llamacpp.arguments import ENVIRONMENT, read_arguments
from agenttop.collect.engine.kinds.llamacpp.router import ALLOWED_PATHS, ServerOrRouter


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    process = seen.process
    arguments = read_arguments(process.command.words, process.environment) if process is not None else None
    return ServerOrRouter(client, seen, arguments=arguments)


KIND = EngineKind(
    name=LlamaCppAdapter.name,
    allowed_paths=LlamaCppAdapter.allowed_paths | ALLOWED_PATHS,
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
    reads_children=True,
)
