"""Rates from counters that only grow, with what real ones do besides: they wrap, are reset, come and go."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Counters(Generic[K]):
    """Single counters by name."""

    def __init__(self, first: Mapping[K, int]) -> None:
        self._before = first

    def rates(self, after: Mapping[K, int], window: float) -> dict[K, float]:
        """Per second, of those that were there before and have not gone back."""
        before, self._before = self._before, after
        if window <= 0:
            return {}
        return {
            name: (value - before[name]) / window
            for name, value in after.items()
            if name in before and value >= before[name]
        }


class Flows:
    """Pairs of byte counters by device: (read, written) or (received, sent)."""

    def __init__(self, first: Mapping[str, tuple[int, int]]) -> None:
        self._before = first

    def rates(self, after: Mapping[str, tuple[int, int]], window: float) -> tuple[float | None, float | None]:
        """Sum over the devices that were there before; None where one of them went back, or there is none."""
        before, self._before = self._before, after
        shared = before.keys() & after.keys()
        if window <= 0 or not shared:
            return None, None
        sums: list[float | None] = []
        for index in (0, 1):
            steps = [after[name][index] - before[name][index] for name in shared]
            sums.append(sum(steps) / window if min(steps) >= 0 else None)
        return sums[0], sums[1]
