"""A server that reads its prompts: it counts four characters a token and answers what a test wants."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.agents import scripted as s

PLANTED = re.compile(
    r"# station (\w+): (access code|spare code|old code|access spare code|access old code) (\d{9})"
)
ASKED = re.compile(r"access code of station (\w+)\?")

Answer = Callable[[dict[str, Any]], "tuple[str, str] | None"]
"""From a request to (text, finish reason); None for an answer of the planned length."""


def said(body: dict[str, Any]) -> str:
    """All that stands in the messages."""
    return "\n".join(message["content"] for message in body["messages"])


def asked_for(body: dict[str, Any]) -> str | None:
    """The station whose code the last message asks for."""
    found = ASKED.findall(body["messages"][-1]["content"])
    return found[-1] if found else None


def facts(body: dict[str, Any]) -> dict[str, str]:
    """Code by station, of the newest document."""
    return {place: code for place, what, code in PLANTED.findall(said(body)) if what == "access code"}


def decoys(body: dict[str, Any]) -> list[str]:
    """Codes that are none."""
    return [code for _, what, code in PLANTED.findall(said(body)) if what != "access code"]


def reader(answer: Answer, cut: bool = False) -> s.Script:
    """`cut`: replies to questions end without a finish reason, as when the engine dies."""

    async def script(request: s.Request, wire: s.Wire) -> None:
        if not request.line.startswith("POST /v1/"):
            await wire.send(s.plain(404, b"{}"))
            return
        body = request.json
        made = answer(body)
        prompt = len(said(body)) // 4
        if made is None:
            count = body["max_tokens"]
            await wire.send(
                s.HEAD, s.token("word " * count), s.finish("length"), s.usage(prompt, count), s.DONE, s.END
            )
        elif cut:
            await wire.send(s.HEAD, s.token(made[0]))
            wire.writer.close()
        else:
            text, reason = made
            pieces = [s.token(text)] if text else []
            await wire.send(
                s.HEAD, *pieces, s.finish(reason), s.usage(prompt, max(1, len(text) // 4)), s.DONE, s.END
            )

    return script
