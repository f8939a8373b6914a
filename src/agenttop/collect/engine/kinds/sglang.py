"""SGLang."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import OpenAIAdapter, allowed_paths

NAME = "SGLang"


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OpenAIAdapter(client, NAME, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=allowed_paths(NAME),
    adapter=_adapter,
    owners=("sglang",),
    signs=(Sign("/model_info", lambda reply: reply.has("model_path", "is_generation")),),
    look=ProcessLook(
        programs=r"sglang", modules=("sglang.launch_server",), ports=(30000,), images=("lmsysorg/sglang",)
    ),
)
