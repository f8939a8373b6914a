"""AIPerf's multi-turn files: one line a session, with `turns` that hold text, a delay and an output length.

https://docs.nvidia.com/aiperf/tutorials/datasets-inputs/custom-dataset-guide
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agenttop.agents.imports.dialogue import Dialogue
from agenttop.agents.imports.source import (
    Recorded,
    Report,
    UnusableError,
    Values,
    content_text,
    objects,
    pause,
    seconds,
    tokens,
)


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a session."""
    turns = value.get("turns")
    return isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict)


def read(values: Values, report: Report, with_text: bool = False) -> Iterator[Recorded]:
    """One conversation for each session; lines of one session id are joined.

    A turn holds what the user adds; the reply is the engine's, as long as `output_length` says.
    """
    waiting: dict[str, tuple[Dialogue, list[float | None]]] = {}
    for place, value in values:
        name = str(value.get("session_id") or place)
        dialogue, last = waiting.setdefault(name, (Dialogue(with_text), [None]))
        try:
            for turn in objects(value, "turns"):
                last[0] = _turn(turn, dialogue, last[0], report)
        except (UnusableError, RecursionError) as error:
            report.skip(place, str(error))
    for name, (dialogue, _) in waiting.items():
        if dialogue.requests:
            report.estimated = True
            yield Recorded(name, dialogue.requests, dialogue.system or None)


def _turn(turn: dict[str, Any], dialogue: Dialogue, before: float | None, report: Report) -> float | None:
    """Adds one turn; returns its time stamp."""
    text = turn.get("text", turn.get("content"))
    if text is None:
        text = turn.get("texts")
        if isinstance(text, list) and text and isinstance(text[0], dict):
            text = [one for item in text for one in (item.get("contents") or [])]
    if text is None and not any(
        key in turn for key in ("image", "images", "audio", "audios", "output_length")
    ):
        raise UnusableError("a turn without text")
    words = content_text(text)
    at, gap = seconds(turn, "timestamp", 1e-3), pause(turn, "delay", 1e-3)
    role = turn.get("role") or "user"
    if role == "system":
        dialogue.instruct(words)
        return at
    if role == "assistant":
        dialogue.answer(words)
        return at
    if gap is None and before is not None and at is not None and at >= before:
        gap = at - before
        report.note("pauses include the time of the reply where a trace tells only when requests came")
    dialogue.add(words, "tool" if role == "tool" else "human", gap)
    output = turn.get("output_length", turn.get("max_tokens"))
    if output is None:
        report.note(f"the file tells no output length: {DEFAULT_OUTPUT} tokens are taken")
    dialogue.reply(
        DEFAULT_OUTPUT if output is None else max(1, tokens({"output_length": output}, "output_length"))
    )
    return at


DEFAULT_OUTPUT = 216
"""The median of recorded coding agents (kv-cache-tester), where a file does not tell."""
