"""The server of llama-cpp-python, which is not llama.cpp's own: whether it lives, and which version it is.

Every route of its API waits for the lock of the running request, and unless it was started with
`--interrupt_requests false` a stream that sees somebody wait is cut off. That holds for GET `/v1/models`,
too, so it is never asked for here: `/openapi.json` is answered without that lock.
"""

from __future__ import annotations

import re

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.fields import fields_of
from agenttop.collect.engine.http import EngineClient, Reply
from agenttop.collect.engine.kind import Circumstances, EngineKind, Fragile, ProcessLook, Sign
from agenttop.collect.engine.stated import STREAMS, Stated, StatedAdapter

NAME = "llama-cpp-python"
PATH = "/openapi.json"
_CONTEXT = 2048
"""Where `--n_ctx` is not given."""


def is_description(reply: Reply) -> bool:
    """Whether `/openapi.json` describes this server."""
    return "llama.cpp Python API" in (fields_of(reply).object("info").text("title") or "")


def may_be(reply: Reply) -> bool:
    """Whether a 404 looks like this server's: it numbers its requests with 32 digits, which others do not."""
    number = reply.headers.get("x-request-id", "")
    return reply.status == 404 and re.fullmatch(r"[0-9a-f]{32}", number) is not None


def _version(reply: Reply) -> str | None:
    return fields_of(reply).object("info").text("version", 40)


ABOUT = Stated(
    name=NAME,
    health=PATH,
    lists=False,
    shows=is_description,
    version=_version,
    why=f"asking llama-cpp-python's server anything cuts off the stream in progress; {STREAMS}",
    fix="llama.cpp's own llama-server reads the same models, and tells",
)


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    if seen.process is None:
        return StatedAdapter(client, ABOUT)
    command = seen.process.command
    several = command.has("--config_file")
    return StatedAdapter(
        client,
        ABOUT,
        pid=seen.pid,
        model=command.value("--model_alias") or command.value("--model"),
        context_limit=None if several else command.number("--n_ctx") or _CONTEXT,
    )


KIND = EngineKind(
    name=NAME,
    allowed_paths=ABOUT.allowed,
    adapter=_adapter,
    fragile=Fragile(may_be=may_be, sign=Sign(PATH, is_description)),
    look=ProcessLook(modules=("llama_cpp.server",), ports=(8000,)),
)
