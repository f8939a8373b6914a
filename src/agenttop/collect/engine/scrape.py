"""One page of figures that is asked at every look, and why there is nothing on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

from agenttop.collect.engine.base import ChangedError
from agenttop.collect.engine.http import CutError, EngineClient, UnauthorisedError, UnexpectedError

F = TypeVar("F")

LIMIT = 8_000_000
AGAIN_S = 60.0
"""Between questions for a page that was not there."""
_GATEWAY = (502, 503, 504)

HIDDEN, EMPTY, LOCKED = "hidden", "empty", "locked"
"""Not there; there without the engine's own figures; wants a key."""


class Page(Generic[F]):
    """A page of an engine's own figures."""

    def __init__(self, client: EngineClient, path: str, read: Callable[[str, float], F | None]) -> None:
        """`read` gets the text and when it arrived, and gives None where it holds nothing of the engine's."""
        self._client, self._path, self._read = client, path, read
        self._again = -math.inf
        self.absent: str | None = None
        """HIDDEN, EMPTY or LOCKED; None where there are figures."""
        self.seen = False
        """There have been figures."""

    async def look(self) -> F | None:
        """Raises ChangedError, EngineError."""
        if self.absent in (HIDDEN, LOCKED) and self._client.now() < self._again:
            return None
        try:
            reply = await self._client.get(self._path, limit=LIMIT)
        except UnauthorisedError:
            return self._nothing(LOCKED)
        if "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        if reply.status in _GATEWAY:
            raise CutError(f"answers GET {self._path} with {reply.status}: what serves it is gone, or starts")
        if reply.status in (404, 501):
            return self._nothing(HIDDEN)
        if reply.status != 200:
            raise UnexpectedError(f"answers GET {self._path} with {reply.status}")
        found = self._read(reply.text(), reply.at)
        if found is None:
            return self._nothing(EMPTY)
        self.seen, self.absent = True, None
        return found

    def _nothing(self, absent: str) -> F | None:
        if self.seen and absent == HIDDEN:
            raise ChangedError  # a server that lives does not lose its figures
        self.absent, self._again = absent, self._client.now() + AGAIN_S
        return None
