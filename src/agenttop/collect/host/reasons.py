"""Why figures of the host are missing."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from agenttop.model.frames import Missing

T = TypeVar("T")


class Reason(NamedTuple):
    """Stands in the place of a value that cannot be had."""

    why: str
    fix: str | None = None


class Reasons:
    """Collects them over one look."""

    def __init__(self) -> None:
        self._of: dict[str, Reason] = {}

    def take(self, fields: str, told: T | Reason) -> T | None:
        """The value, or None and the reason kept for these fields, separated by blanks."""
        if isinstance(told, Reason):
            self.add(fields, told)
            return None
        return told

    def add(self, fields: str, reason: Reason) -> None:
        """The same reason for several fields, separated by blanks."""
        for field in fields.split():
            self._of[field] = reason

    def missing(self, t: float) -> list[Missing]:
        """As frames: `host:<field>`."""
        return [
            Missing(t=t, what=f"host:{field}", why=reason.why, fix=reason.fix)
            for field, reason in self._of.items()
        ]
