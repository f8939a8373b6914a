"""The probes of one agent along its conversation: when facts are planted, when asked for, what came back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from agenttop.agents.probe import ROOM, TRUNCATED, Book, Probe, Probes, Question, judge
from agenttop.agents.reply import Reply
from agenttop.model.frames import Turn

BROKEN_OFF = ("cut", "stall")
"""Failures in which part of an answer may have come."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the next input holds beside generated text, and how long the answer may be."""

    planted: list[tuple[float, str]] = []
    question: str | None = None
    output: int


class Measure(Protocol):
    """Tells how many characters some tokens have."""

    def chars(self, tokens: float) -> int:
        """Characters of generated text."""
        ...


class Asker:
    """Follows one conversation. Without probes in the profile it leaves everything as it is."""

    def __init__(
        self,
        probes: Probes | None,
        book: Book,
        ratio: Measure,
        number: int | str,
        seed: int,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Sub-agents, whose number is not whole, are not asked. `note` is told why nothing can be planted."""
        self._settings = probes
        self._probe = (
            Probe(probes, book, number, seed) if probes is not None and isinstance(number, int) else None
        )
        self._book = book
        self._ratio = ratio
        self._note = note
        self._has_looked = False
        self._pending: Question | None = None

    def words(self, input_tokens: int, output_tokens: int, may_ask: bool = True) -> Words:
        """For the next input: facts when a document is due and this one is long enough; a question."""
        probe, settings = self._probe, self._settings
        self._pending = None
        if probe is None or settings is None:
            return Words(output=output_tokens)
        planted = []
        if probe.wants_document:
            chars, needed = self._ratio.chars(input_tokens), ROOM * probe.size_chars
            if chars < needed and not self._has_looked:  # the first input of all; later ones may be short
                self._note(f"probes wait for a longer input: {chars} characters of {needed}")
            self._has_looked = True
            if chars < needed:
                return Words(output=output_tokens)
            planted = probe.plant()
        if not (may_ask and probe.due()):
            return Words(planted=planted, output=output_tokens)
        self._pending = probe.ask()
        return Words(planted=planted, question=self._pending.text, output=settings.output)

    def lost(self) -> None:
        """What was planted has left the context: it was shortened, or began anew."""
        self._pending = None
        if self._probe is not None:
            self._probe.lose()

    def judged(self, turn: Turn, reply: Reply) -> Turn:
        """The turn with its verdict, where it was asked for a fact and something came back."""
        asked = self._pending
        if asked is None or (reply.failed and reply.error_kind not in BROKEN_OFF):
            return turn
        verdict, detail = judge(
            asked, self._book, reply.text, reply.finish_reason, reasoned=reply.reasoning_chars > 0
        )
        if not reply.failed:
            self._pending = None
        elif verdict == "no-answer":
            if not reply.text.strip():
                return turn
            verdict, detail = TRUNCATED, f"depth {asked.depth:.0%}: {reply.error_kind}"
        return msgspec.structs.replace(turn, probe=verdict, probe_detail=detail)
