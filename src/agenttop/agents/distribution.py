"""Random quantities of a profile: sizes in tokens, pauses in seconds, numbers of turns."""

from __future__ import annotations

import math
import random

import msgspec

KINDS = {
    "constant": ("value",),
    "uniform": ("min", "max"),
    "log-normal": ("mu", "sigma"),
    "exponential": ("mean",),
    "geometric": ("mean",),
    "empirical": (),
}
"""Every kind, with the figures it needs. All but `constant` may be bounded by `min` and `max`. `empirical`
takes `values`, with `weights` or without, or `quantiles`."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is drawn. Values beyond `min` or `max` are moved to the bound, as real caps do."""

    kind: str
    value: float | None = None
    mu: float | None = None
    """Of the logarithm; the median is e to the power of mu."""
    sigma: float | None = None
    mean: float | None = None
    """Before bounding. geometric: 0, 1, 2, ... with this mean."""
    min: float | None = None
    max: float | None = None
    values: tuple[float, ...] | None = None
    """empirical: what was seen. One of them is drawn."""
    weights: tuple[float, ...] | None = None
    """How often each of `values` comes, in any unit; absent: all alike."""
    quantiles: tuple[float, ...] | None = None
    """empirical: values at evenly spaced shares, lowest and highest included (five: 0, 25, 50, 75, 100 %); in
    between it is interpolated."""

    def draw(self, rng: random.Random) -> float:
        """One value. Takes the same amount of randomness whatever the outcome."""
        uniform = rng.random()
        if self.kind == "constant":
            return self.value or 0.0
        return self._bounded(self._at(uniform))

    def draw_whole(self, rng: random.Random) -> int:
        """One value, rounded."""
        return round(self.draw(rng))

    @property
    def median(self) -> float:
        """The value half of the draws lie below."""
        return self.value or 0.0 if self.kind == "constant" else self._bounded(self._at(0.5))

    @property
    def lowest(self) -> float:
        """No draw is below this."""
        if self.kind == "constant":
            return self.value or 0.0
        if self.kind == "empirical":
            return self._bounded(min(self.values or self.quantiles or (0.0,)))
        return self.min or 0.0

    @property
    def mean_value(self) -> float:
        """The mean of what is drawn, bounds included: over 400 evenly spaced quantiles."""
        if self.kind == "constant":
            return self.value or 0.0
        return sum(self._bounded(self._at((step + 0.5) / 400)) for step in range(400)) / 400

    def scaled(self, factor: float, least: float = 0.0) -> Distribution:
        """The same shape with every value times `factor`; its median not below `least`."""
        if self.median > 0 and self.median * factor < least:
            factor = least / self.median
        mu = None if self.mu is None else self.mu + math.log(factor)
        return msgspec.structs.replace(
            self,
            mu=mu,
            value=_times(self.value, factor),
            mean=_times(self.mean, factor),
            min=_times(self.min, factor),
            max=_times(self.max, factor),
            values=_all_times(self.values, factor),
            quantiles=_all_times(self.quantiles, factor),
        )

    def with_median(self, median: float) -> Distribution:
        """The same shape about another median; one whose median is 0 becomes constant."""
        factor = median / self.median if self.median > 0 else 0.0
        if self.kind == "constant" or factor <= 0:  # a median next to 0 makes the factor 0, too
            return Distribution(kind="constant", value=median)
        return self.scaled(factor)

    def describe(self) -> str:
        """In words, e.g. `log-normal, median 651, 90 % within 107 to 3973`."""
        if self.kind == "constant":
            return f"always {_short(self.value or 0.0)}"
        low, high = (self._bounded(self._at(share)) for share in (0.05, 0.95))
        return f"{self.kind}, median {_short(self.median)}, 90 % within {_short(low)} to {_short(high)}"

    def _at(self, share: float) -> float:
        """The quantile at `share`, unbounded (for draws: by inversion, so that seeds carry over)."""
        share = min(max(share, 1e-12), 1 - 1e-12)
        if self.kind == "empirical":
            return self._seen(share)
        if self.kind == "uniform":
            low, high = self.min or 0.0, self.max or 0.0
            return low + (high - low) * share
        if self.kind == "log-normal":
            return math.exp((self.mu or 0.0) + (self.sigma or 0.0) * _normal(share))
        mean = self.mean or 0.0
        if mean <= 0:
            return 0.0
        if self.kind == "exponential":
            return -mean * math.log1p(-share)
        return float(math.floor(math.log1p(-share) / math.log1p(-1 / (1 + mean))))

    def _seen(self, share: float) -> float:
        """The quantile of an empirical distribution."""
        if self.quantiles is not None:
            place = share * (len(self.quantiles) - 1)
            below = min(int(place), len(self.quantiles) - 2)
            low, high = self.quantiles[below : below + 2]
            return low + (high - low) * (place - below)
        values = self.values or (0.0,)
        ranked = sorted(zip(values, self.weights or [1.0] * len(values), strict=True))
        left = share * sum(weight for _, weight in ranked)
        for value, weight in ranked:
            left -= weight
            if left <= 0:
                return value
        return ranked[-1][0]

    def _bounded(self, value: float) -> float:
        if self.max is not None:
            value = min(value, self.max)
        return max(value, self.min or 0.0)


def _normal(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _all_times(values: tuple[float, ...] | None, factor: float) -> tuple[float, ...] | None:
    return None if values is None else tuple(value * factor for value in values)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 or value == int(value) else f"{value:.3g}"
