"""`transformers serve`: whether it lives, and the model it was started for.

It loads models as they are asked for. Its `/v1/models` walks through the folder of downloaded models, which
fails where there is no network (500 in 5.19): it is asked once a minute.
"""

from __future__ import annotations

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.stated import STREAMS, Stated, StatedAdapter
from agenttop.collect.process import Command

NAME = "transformers serve"
ABOUT = Stated(
    name=NAME,
    health="/health",
    why=f"transformers serve tells nothing of its work; {STREAMS}",
    first_is_served=False,
)


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    model = model_in(seen.process.command) if seen.process is not None else None
    return StatedAdapter(client, ABOUT, pid=seen.pid, model=model)


def model_in(command: Command) -> str | None:
    """The model that it serves whatever is asked for: `--force-model`, or the word after `serve`."""
    forced = command.value("--force-model", "--force_model")
    words = command.words
    after = words[words.index("serve") + 1 :][:1] if "serve" in words else ()
    return forced or next((word for word in after if not word.startswith("-")), None)


KIND = EngineKind(
    name=NAME,
    allowed_paths=ABOUT.allowed,
    adapter=_adapter,
    look=ProcessLook(programs=r"transformers(?:-cli)?", ports=(8000,)),
)
