"""mlx_lm.server: whether it lives, and the model it was started with.

Its `/v1/models` walks through the folder of downloaded models, and lists all of them without an owner: it is
asked once a minute. Where that folder is missing the answer is 200 with nothing in it (0.32).
"""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.stated import STREAMS, Stated, StatedAdapter

NAME = "mlx_lm"
ABOUT = Stated(
    name=NAME,
    health="/health",
    why=f"mlx_lm.server tells nothing of its work; {STREAMS}",
    fix="vllm-mlx and oMLX serve the same models, and tell",
    unhealthy="the thread that generates has ended: restart it",
    first_is_served=False,
)


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    model = seen.process.command.value("--model") if seen.process is not None else None
    return StatedAdapter(client, ABOUT, pid=seen.pid, model=model)


KIND = EngineKind(
    name=NAME,
    allowed_paths=ABOUT.allowed,
    adapter=_adapter,
    look=ProcessLook(programs=r"mlx_lm(?:\.server)?", modules=("mlx_lm",), ports=(8080,)),
)
