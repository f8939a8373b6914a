"""A question that is put again every few seconds; in between the last answer stands."""

from __future__ import annotations

import math

from agenttop.collect.engine.http import BODY_LIMIT, EngineClient, EngineError, Reply, UnauthorisedError

_EARLY_S = 0.3
"""A tick may come a little before its time."""


class Asked:
    """One path of one server."""

    def __init__(
        self, client: EngineClient, path: str, every_s: float = 0.0, *, limit: int = BODY_LIMIT
    ) -> None:
        """`every_s`: session seconds between two questions; 0 for one at every look."""
        self.path = path
        self._client = client
        self._every_s = every_s
        self._limit = limit
        self._at = -math.inf
        self.reply: Reply | None = None
        """The newest answer, of any status."""
        self.locked = False
        """The newest question was refused: it needs a key that was not given, or is not accepted."""

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self._client.now() - self._at >= self._every_s - _EARLY_S

    def doubt(self) -> None:
        """Ask again at the next look."""
        self._at = -math.inf

    def put_off(self, seconds: float) -> None:
        """Ask again only in so many seconds."""
        self._at = self._client.now() - self._every_s + seconds

    async def answer(self) -> Reply:
        """The answer that stands, a new one if it is time. Raises EngineError."""
        if self.reply is None or self.due:
            self.reply = await self._client.get(self.path, limit=self._limit)
            self._at = self.reply.at
        return self.reply

    async def answer_if_any(self) -> Reply | None:
        """The same for what is not needed to go on: None where the question fails, until it is time again."""
        if not self.due:
            return self.reply
        self._at = self._client.now()
        try:
            self.reply = await self._client.get(self.path, limit=self._limit)
            self.locked = False
        except EngineError as error:
            self.reply, self.locked = None, isinstance(error, UnauthorisedError)
        return self.reply
