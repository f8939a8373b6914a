"""What adapters of servers with `/v1/models` share: who is served, what is running, what going back means."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from agenttop.collect.engine.base import ChangedError, Reasons
from agenttop.collect.engine.counters import LEAST_S, WINDOW_S
from agenttop.collect.engine.http import EngineClient, UnauthorisedError
from agenttop.collect.engine.kinds.openai import Models
from agenttop.model.frames import EngineSample, Missing
from agenttop.model.text import clean

EVERY_S = 60.0
PATH = "/v1/models"


class Served(msgspec.Struct, frozen=True):
    """What does not move while the server lives."""

    model: str | None = None
    context_limit: int | None = None
    locked: bool = False
    """The list needs a key that was not given, or is not accepted."""


class ModelList:
    """Asks `/v1/models` once a minute, and notices that another engine has come."""

    def __init__(self, client: EngineClient, owner: str) -> None:
        """`owner`: what this engine writes as `owned_by`, in lower case."""
        self._client = client
        self._owner = owner
        self._at = -math.inf
        self.served = Served()

    def doubt(self) -> None:
        """Ask again at the next look: something has changed, and this may tell what."""
        self._at = -math.inf

    async def look(self, *, sure: bool) -> Served:
        """`sure`: other replies have shown this engine, so that a missing list proves nothing.

        Raises:
            ChangedError: another engine answers.
            EngineError: nothing does.
        """
        if self._client.now() - self._at < EVERY_S:
            return self.served
        try:
            reply = await self._client.get(PATH)
        except UnauthorisedError:
            self.served, self._at = Served(locked=True), self._client.now()
            return self.served
        if reply.status == 404 and not sure:
            raise ChangedError
        listed = reply.json(Models) if reply.status == 200 else None
        models = listed.data if listed is not None else []
        owner = (models[0].owned_by or self._owner).lower() if models else self._owner
        if owner != self._owner or "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        limit = (models[0].max_model_len or 0) if models else 0
        self.served = Served(
            model=clean(models[0].id, 80) or None if models else None,
            context_limit=limit if 0 < limit < 10**9 else None,
        )
        self._at = reply.at
        return self.served


class Sequences:
    """How many sequences ran, mean over the window of the rates."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: deque[tuple[float, int]] = deque()

    def add(self, at: float, running: int | None) -> None:
        """Take in one look."""
        if running is None or (self._looks and at < self._looks[-1][0]):
            self._looks.clear()
        if running is None or (self._looks and at == self._looks[-1][0]):
            return
        self._looks.append((at, running))
        while len(self._looks) > 2 and self._looks[1][0] <= at - self._window_s:
            self._looks.popleft()

    def share(self, rate: float | None) -> tuple[float | None, float | None]:
        """(`rate` for each sequence, how many there were); None where fewer than one ran on the whole."""
        if rate is None or len(self._looks) < 2 or self._looks[-1][0] - self._looks[0][0] < LEAST_S:
            return None, None
        mean = sum(running for _, running in self._looks) / len(self._looks)
        return (rate / mean, mean) if mean >= 1 else (None, None)


class Prefilling:
    """How many requests are being prefilled, of an engine that counts first tokens and ends.

    A running request that has not had its first token is in prefill. Those that their clients gave up may be
    counted nowhere, so the account is settled whenever the server is idle; until then, and while preempted
    requests wait, it errs towards fewer.
    """

    def __init__(self) -> None:
        self._given_up = 0

    def update(
        self, running: int | None, waiting: int | None, first_tokens: int | None, finished: int | None
    ) -> bool:
        """Whether at least one request is being prefilled."""
        if first_tokens is None or finished is None:
            return False
        if not running:
            if waiting == 0:
                self._given_up = max(0, first_tokens - finished)
            return False
        return running > first_tokens - finished - self._given_up


BELIEVED_AFTER = 3
"""Looks without another setback, before counters that went back are called a restart."""
FORGOTTEN_AFTER = 60


class Setbacks:
    """Counters that go back. Once: the server was restarted. Again and again: several answer in turn."""

    def __init__(self) -> None:
        self._since: int | None = None
        """Looks since the newest one; None before the first, and when it is long ago."""
        self._told = True
        self.several = False
        """Several servers answer, so that no two looks belong together."""

    @property
    def in_doubt(self) -> bool:
        """A counter has gone back lately: rates would be of who knows which servers."""
        return self.several or (self._since is not None and self._since < BELIEVED_AFTER)

    def look(self, went_back: bool) -> bool:
        """Take in one look. True when a restart is certain now; it is told once."""
        if went_back:
            self.several = self.several or (self._since is not None and self._since < BELIEVED_AFTER)
            self._since, self._told = 0, False
            return False
        if self._since is None:
            return False
        self._since += 1
        if self._since >= FORGOTTEN_AFTER:
            self._since, self.several = None, False
            return False
        certain = self._since == BELIEVED_AFTER and not self._told and not self.several
        self._told = self._told or certain
        return certain


IN_TURN = "several servers answer at this address in turn, so that no two looks belong together"
WENT_BACK = "a counter has gone back: the server was restarted, or another one answers"
KEY_FIGURES = (
    "running waiting kv_used_fraction kv_used_tokens kv_pool_tokens decode_tok_s prefill_tok_s "
    "preemptions_total output_tokens_total"
)


def settled(sample: EngineSample, reasons: Reasons, otherwise: str, fix: str | None = None) -> list[Missing]:
    """The reasons for what is not shown, one for each figure: the first one given.

    `otherwise`: for those of the key figures that are neither shown nor explained.
    """
    reasons.add("quantisation version", "none of its replies tells it")
    reasons.add(KEY_FIGURES, otherwise, fix)
    told: dict[str, Missing] = {}
    for frame in reasons.frames:
        if getattr(sample, frame.what.rpartition(":")[2], None) is None:
            told.setdefault(frame.what, frame)
    return list(told.values())
