"""vllm-mlx: an engine of its own for Apple silicon, with vLLM's flags."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.fields import fields_of
from agenttop.collect.engine.http import EngineClient, Reply
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.vllm_mlx.adapter import ALLOWED, NAME, VllmMlxAdapter

_BATCHED = "--continuous-batching"
_USUAL_MOST = 256


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    command = seen.process.command if seen.process is not None else None
    most = None
    if command is not None and command.has(_BATCHED):
        most = command.number("--max-num-seqs") or _USUAL_MOST
    return VllmMlxAdapter(client, pid=seen.pid, sequences_max=most)


def _is_status(reply: Reply) -> bool:
    """Both shapes: one model, or several that are loaded as they are asked for."""
    found = fields_of(reply)
    one = found.has("status", "requests", "residency")
    return one or (found.object("model_manager").has("memory_budget_gb", "models"))


KIND = EngineKind(
    name=NAME,
    allowed_paths=ALLOWED,
    adapter=_adapter,
    owners=("vllm-mlx", "vllm-mlx-embedding", "vllm-mlx-reranker"),
    signs=(Sign("/v1/status", _is_status),),
    look=ProcessLook(programs=r"vllm-mlx", modules=("vllm_mlx",), ports=(8000,)),
    imitates=frozenset({"vLLM"}),
)
