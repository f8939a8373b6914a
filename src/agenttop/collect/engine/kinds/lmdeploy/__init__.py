"""LMDeploy."""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.kinds.lmdeploy.adapter import LmdeployAdapter
from agenttop.collect.engine.kinds.lmdeploy.metrics import PREFIXES


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return LmdeployAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=LmdeployAdapter.name,
    allowed_paths=LmdeployAdapter.allowed_paths,
    adapter=_adapter,
    owners=("lmdeploy",),
    look=ProcessLook(programs=r"lmdeploy", ports=(23333,), images=("openmmlab/lmdeploy",)),
    metrics_prefixes=PREFIXES,
)
