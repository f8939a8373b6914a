"""Why figures of one card are missing: the first reason given for a figure stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenttop.collect.gpu.base import Reasons
from agenttop.model.frames import Missing


class Lacks:
    """Takes reasons for those figures alone that are None."""

    def __init__(self, gpu: str, t: float, figures: Mapping[str, Any]) -> None:
        self._reasons = Reasons(gpu, t)
        self._figures = figures
        self._told: set[str] = set()

    @property
    def frames(self) -> list[Missing]:
        """What is missing, in the order in which it was told."""
        return self._reasons.frames

    def add(self, fields: str, why: str, fix: str | None = None) -> None:
        """A reason for each of the fields that is None and has none yet."""
        for field in fields.split():
            if self._figures.get(field) is None and field not in self._told:
                self._told.add(field)
                self._reasons.add(field, why, fix)
