"""A JSON object of a server, field by field: what is of another type or out of range counts as missing. Pure.

For replies whose shape is nobody's promise: one odd field must not cost the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from agenttop.collect.engine.http import Reply
from agenttop.model.text import clean

MOST = 1 << 40
"""No engine counts this far: a figure beyond it is a mistake of the server, and unknown to us."""
MOST_BYTES = 1 << 52
MOST_ROWS = 512
"""Of a list, as many are read."""


class Fields:
    """One object; empty where there is none."""

    __slots__ = ("_found",)

    def __init__(self, found: object = None) -> None:
        self._found: Mapping[str, Any] = found if isinstance(found, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def has(self, *names: str) -> bool:
        """Whether all of them are there, whatever they hold."""
        return all(name in self._found for name in names)

    def text(self, name: str, limit: int = 80) -> str | None:
        """Fit for a terminal; None for an empty one."""
        value = self._found.get(name)
        return clean(value, limit) or None if isinstance(value, str) else None

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self._found.get(name)
        return value if isinstance(value, bool) else None

    def number(self, *names: str) -> float | None:
        """The first of them that is a finite number and not below zero."""
        for name in names:
            value = self._found.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18:
                return float(value) if math.isfinite(value) else None
        return None

    def count(self, *names: str, most: int = MOST) -> int | None:
        """The same as a whole number, where it is below `most`."""
        value = self.number(*names)
        return int(value) if value is not None and value < most else None

    def positive(self, *names: str) -> int | None:
        """A count that is none of zero: sizes and limits, where 0 stands for not known."""
        return self.count(*names) or None

    def size(self, *names: str) -> int | None:
        """Bytes."""
        return self.count(*names, most=MOST_BYTES)

    def object(self, name: str) -> Fields:
        """An object in it."""
        return Fields(self._found.get(name))

    def objects(self, name: str) -> list[Fields]:
        """The objects of a list in it, the first `MOST_ROWS`."""
        value = self._found.get(name)
        return (
            [Fields(row) for row in value[:MOST_ROWS] if isinstance(row, dict)]
            if isinstance(value, list)
            else []
        )

    def texts(self, name: str, limit: int = 80) -> list[str]:
        """The texts of a list in it, fit for a terminal."""
        value = self._found.get(name)
        rows = value[:MOST_ROWS] if isinstance(value, list) else []
        return [text for row in rows if isinstance(row, str) and (text := clean(row, limit))]


def fields_of(reply: Reply | None) -> Fields:
    """The object in a reply of status 200; an empty one for everything else."""
    return Fields(reply.json(dict[str, Any])) if reply is not None and reply.status == 200 else Fields()


def model_name(name: str | None, limit: int = 80) -> str | None:
    """A model's name, without the folders where it is a path on the server's disk."""
    if name is None:
        return None
    if re.match(r"(?:[/\\~.]|[A-Za-z]:[/\\])", name):
        name = re.split(r"[/\\]", name.rstrip("/\\"))[-1] or name
    return clean(name, limit) or None
