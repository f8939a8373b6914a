"""Text Generation Inference."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.tgi.adapter import TgiAdapter


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return TgiAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=TgiAdapter.name,
    allowed_paths=TgiAdapter.allowed_paths,
    adapter=_adapter,
    signs=(Sign("/info", lambda reply: reply.has("max_total_tokens")),),
    look=ProcessLook(
        programs=r"text-generation-(launcher|router)",
        ports=(3000, 80),
        images=("huggingface/text-generation-inference",),
    ),
)
