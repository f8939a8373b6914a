"""A dialogue in words to requests with estimated sizes: what the formats that hold text have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agenttop.agents.imports.source import (
    MESSAGE_TOKENS,
    Recorded,
    Report,
    Request,
    UnusableError,
    Values,
    text_tokens,
)


@dataclass
class Dialogue:
    """Gathers messages; each reply of the model makes a request of all that stood before it."""

    with_text: bool = False
    requests: list[Request] = field(default_factory=list)
    system: int = 0
    """Tokens of what stands before the first message of a user: system prompt and tools."""
    _context: int = 0
    _added: list[str] = field(default_factory=list)
    _kind: str = "human"
    _pause_s: float | None = None

    def instruct(self, text: str) -> None:
        """System prompt or tool schemas."""
        size = text_tokens(text) + MESSAGE_TOKENS
        self._context += size
        if not self.requests:
            self.system += size

    def add(self, text: str, kind: str, pause_s: float | None = None) -> None:
        """A message of a person (`human`) or the result of a tool (`tool`)."""
        self._context += text_tokens(text) + MESSAGE_TOKENS
        self._kind = "human" if kind == "human" or (self._added and self._kind == "human") else "tool"
        self._added.append(text)
        self._pause_s = pause_s if pause_s is not None else self._pause_s

    def answer(self, text: str) -> None:
        """The reply to all before it; a reply to nothing (two in a row) belongs to the one before."""
        self.reply(max(1, text_tokens(text)))

    def reply(self, size: int) -> None:
        """The same, where only its size is known."""
        if not self._added:
            if self.requests:
                self.requests[-1].output += size
            self._context += size
            return
        self.requests.append(
            Request(
                prompt=self._context,
                output=size,
                kind=self._kind,
                pause_s=self._pause_s if self.requests else None,
                text="\n".join(self._added) if self.with_text else None,
            )
        )
        self._context += size + MESSAGE_TOKENS
        self._added, self._pause_s, self._kind = [], None, "tool"


def conversations(
    values: Values,
    report: Report,
    dialogue_of: Callable[[dict[str, Any]], Dialogue],
    unanswered: Callable[[str], None],
) -> Iterator[Recorded]:
    """One conversation for each object. Sizes are estimated: these files hold text and no counts.

    `unanswered` is told where one without a reply stands.
    """
    for place, value in values:
        try:
            dialogue = dialogue_of(value)
        except (UnusableError, RecursionError) as error:
            report.skip(place, str(error))
            continue
        if not dialogue.requests:
            unanswered(place)
            continue
        report.estimated = True
        yield Recorded(place, dialogue.requests, dialogue.system or None)
