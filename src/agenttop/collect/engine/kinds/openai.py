"""Any server with an OpenAI-compatible API: who it is, which models it serves, whether it lives.

What runs inside cannot be told from that API.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import GENERIC, Circumstances, EngineKind
from agenttop.collect.engine.stated import STREAMS, Stated, StatedAdapter

ABOUT = Stated(
    name=GENERIC,
    why=f"an OpenAI-compatible API tells which models it serves and nothing of its work; {STREAMS}",
)


class Model(msgspec.Struct):
    """One entry of `/v1/models`."""

    id: str = ""
    owned_by: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: list[Model] = []


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return StatedAdapter(client, ABOUT, pid=seen.pid)


KIND = EngineKind(name=GENERIC, allowed_paths=ABOUT.allowed, adapter=_adapter, rank=1000)
"""For what is no other kind; it is not in the entry-point group."""
