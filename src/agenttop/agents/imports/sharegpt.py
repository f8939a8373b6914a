"""ShareGPT: an array (or lines) of conversations with `from` and `value`.

https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agenttop.agents.imports.dialogue import Dialogue, conversations
from agenttop.agents.imports.source import Recorded, Report, UnusableError, Values, content_text, objects

PEOPLE = ("human", "user")
MODELS = ("gpt", "assistant", "chatgpt", "bing", "bard", "model", "function_call")
TOOLS = ("tool", "observation", "function_response")


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a conversation."""
    turns = value.get("conversations", value.get("conversation"))
    return isinstance(turns, list) and (not turns or (isinstance(turns[0], dict) and "from" in turns[0]))


def read(values: Values, report: Report, with_text: bool = False) -> Iterator[Recorded]:
    """One conversation for each object. Sizes are estimated: these files hold text and no counts."""
    return conversations(
        values,
        report,
        lambda value: _dialogue(value, with_text),
        lambda _: report.leave_out("conversations without a reply"),
    )


def _dialogue(value: dict[str, Any], with_text: bool) -> Dialogue:
    dialogue = Dialogue(with_text)
    for turn in objects(value, "conversations" if "conversations" in value else "conversation"):
        who, text = turn.get("from"), content_text(turn.get("value"))
        if who == "system":
            dialogue.instruct(text)
        elif who in PEOPLE:
            dialogue.add(text, "human")
        elif who in MODELS:
            dialogue.answer(text)
        elif who in TOOLS:
            dialogue.add(text, "tool")
        else:
            raise UnusableError(f"from: {who!r} is nobody in a conversation")
    return dialogue
