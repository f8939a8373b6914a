"""SGLang."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.sglang.adapter import SglangAdapter
from agenttop.collect.engine.kinds.sglang.metrics import PREFIXES


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return SglangAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=SglangAdapter.name,
    allowed_paths=SglangAdapter.allowed_paths,
    adapter=_adapter,
    owners=("sglang",),
    signs=(Sign("/model_info", lambda reply: reply.has("model_path", "is_generation")),),
    look=ProcessLook(
        programs=r"sglang", modules=("sglang.launch_server",), ports=(30000,), images=("lmsysorg/sglang",)
    ),
    metrics_prefixes=PREFIXES,
)
