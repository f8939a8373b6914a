"""Ollama: its loaded models, and the servers it starts for them."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "Ollama"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("library",),
    signs=(Sign("/", lambda reply: reply.text().strip() == "Ollama is running"),),
    look=ProcessLook(programs=r"ollama(\.exe)?", ports=(11434,), images=("ollama/ollama",)),
)
