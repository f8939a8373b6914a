"""Ray Serve LLM: vLLM behind Ray."""

from __future__ import annotations

from typing import Any

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient, Reply
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.ray_serve.adapter import RayServeAdapter
from agenttop.collect.engine.kinds.ray_serve.pages import TEMPORARY, is_page
from agenttop.collect.engine.kinds.vllm.metrics import RAY_PREFIXES


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return RayServeAdapter(client, seen)


def _is_a_list_of_its_models(reply: Reply) -> bool:
    """The owner it names stands in OpenAI's own example, so what it tells of a model decides."""
    found = reply.json(dict[str, Any]) or {}
    data = found.get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    about = first.get("metadata")
    return isinstance(about, dict) and {"model_id", "max_request_context_length"} <= about.keys()


KIND = EngineKind(
    name=RayServeAdapter.name,
    allowed_paths=RayServeAdapter.allowed_paths,
    adapter=_adapter,
    signs=(
        Sign("/v1/models", _is_a_list_of_its_models),
        # Ray's metrics port answers every path with its page.
        Sign("/v1/models", is_page),
    ),
    look=ProcessLook(
        programs=r"ray::(?:Serve)?(?:HTTP)?ProxyActor\S*",
        ports=(8000,),
        images=("rayproject/ray-llm",),
        environment=frozenset({TEMPORARY}),
    ),
    rank=5,
    imitates=frozenset({"vLLM"}),
    metrics_prefixes=RAY_PREFIXES,
)
