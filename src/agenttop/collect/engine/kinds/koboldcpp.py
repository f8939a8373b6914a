"""KoboldCpp."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "KoboldCpp"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("koboldcpp",),
    signs=(Sign("/api/extra/version", lambda reply: "KoboldCpp" in reply.text()),),
    look=ProcessLook(programs=r"koboldcpp[\w.-]*", ports=(5001,), images=("koboldai/koboldcpp",)),
    rank=40,
)
