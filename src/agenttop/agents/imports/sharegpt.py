"""ShareGPT: an array (or lines) of conversations with `from` and `value`.

https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agenttop.agents.imports.dialogue import Dialogue
from agenttop.agents.imports.source import Recorded, Report, UnusableError, content_text, objects

Values = Iterator[tuple[str, dict[str, Any]]]

PEOPLE = ("human", "user")
MODELS = ("gpt", "assistant", "chatgpt", "bing", "bard", "model", "function_call")
TOOLS = ("tool", "observation", "function_response")


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a conversation."""
    turns = value.get("conversations", value.get("conversation"))
    return isinstance(turns, list) and (not turns or (isinstance(turns[0], dict) and "from" in turns[0]))


def read(values: Values, report: Report, with_text: bool = False) -> Iterator[Recorded]:
    """One conversation for each object. Sizes are estimated: these files hold text and no counts."""
    for place, value in values:
        try:
            dialogue = _dialogue(value, with_text)
        except (UnusableError, RecursionError) as error:
            report.skip(place, str(error))
            continue
        if not dialogue.requests:
            report.leave_out("conversations without a reply")
            continue
        report.estimated = True
        yield Recorded(place, dialogue.requests, dialogue.system or None)


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
