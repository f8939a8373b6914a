"""Chats as OpenAI's API and fine-tuning take them: one line a conversation with `messages` and maybe `tools`.

Every beginning of the list that ends before a message of the assistant is one request.
https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agenttop.agents.imports.dialogue import Dialogue, conversations
from agenttop.agents.imports.source import (
    Recorded,
    Report,
    UnusableError,
    Values,
    compact_json,
    content_text,
    objects,
)


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a chat."""
    messages = value.get("messages")
    return (
        isinstance(messages, list)
        and bool(messages)
        and isinstance(messages[0], dict)
        and ("role" in messages[0])
    )


def read(values: Values, report: Report, with_text: bool = False) -> Iterator[Recorded]:
    """One conversation a line. Sizes are estimated: these files hold text and no counts."""
    return conversations(
        values,
        report,
        lambda value: _dialogue(value, with_text),
        lambda place: report.skip(place, "no message of the assistant, so no request"),
    )


def _dialogue(value: dict[str, Any], with_text: bool) -> Dialogue:
    dialogue = Dialogue(with_text)
    if value.get("tools"):
        dialogue.instruct(compact_json(value["tools"]))
    for message in objects(value, "messages"):
        text = content_text(message.get("content"))
        match message.get("role"):
            case "system" | "developer":
                dialogue.instruct(text)
            case "assistant":
                for key in ("reasoning_content", "reasoning"):
                    if isinstance(message.get(key), str):
                        text += message[key]
                calls = message.get("tool_calls") or message.get("function_call")
                dialogue.answer(text + (compact_json(calls) if calls else ""))
            case "tool" | "function":
                dialogue.add(text, "tool")
            case "user":
                dialogue.add(text, "human")
            case role:
                raise UnusableError(f"role: {role!r} is not one of a chat")
    return dialogue
