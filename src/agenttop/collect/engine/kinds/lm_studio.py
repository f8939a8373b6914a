"""LM Studio."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "LM Studio"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("organization_owner",),
    signs=(Sign("/api/v0/models", lambda reply: '"compatibility_type"' in reply.text()),),
    look=ProcessLook(programs=r"LM Studio.*|llmster", ports=(1234,)),
)
