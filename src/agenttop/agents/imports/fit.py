"""Distributions for what recorded agents did, and how well they fit. Plain Python, from raw values.

Each quantity gets the simpler of two descriptions unless the other one is plainly better:

- log-normal (geometric for numbers of turns), its figures from the moments of the logarithms (the mean);
- empirical: 41 quantiles, in between interpolated.

Both are fitted to half of the values and judged on the other half, by the Kolmogorov-Smirnov distance: the
largest difference between the shares of values below any point, 0 to 1. The empirical one is taken when its
distance is smaller by more than `PLAINLY`.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agenttop.agents.distribution import Distribution
from agenttop.agents.tracefile import TraceSession

QUANTILES = 41
"""Every 2.5 %."""

PLAINLY = 0.03
"""So much less distance makes 41 figures worth more than two."""

FEW = 40
"""With fewer values half of them say too little about the other half: the simple description is taken."""

MOST = 200_000
"""Values kept of each quantity; of more, an even sample."""


class Values:
    """The values of one quantity: all of them, or an even sample (reservoir sampling, Vitter 1985)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0
        self._kept = array("d")
        self._rng = random.Random(f"agenttop:sample:{name}")

    def add(self, value: float) -> None:
        """One more."""
        self.seen += 1
        if len(self._kept) < MOST:
            self._kept.append(value)
        elif (place := self._rng.randrange(self.seen)) < MOST:
            self._kept[place] = value

    def kept(self) -> list[float]:
        """In the order they came."""
        return list(self._kept)


@dataclass(frozen=True)
class Fit:
    """What was made of one quantity."""

    name: str
    unit: str
    values: int
    distribution: Distribution
    distance: float | None
    """Kolmogorov-Smirnov, of all values against the distribution; None when every value is the same."""
    why: str
    """Why this description: the distances on held-out values, or that there were few."""
    quantiles: tuple[float, float, float]
    """10 %, 50 % and 90 % of the values."""


@dataclass
class Observed:
    """What sessions showed, gathered one after the other. Sub-agents are left out."""

    system: Values = field(default_factory=lambda: Values("system"))
    first: Values = field(default_factory=lambda: Values("first"))
    input: Values = field(default_factory=lambda: Values("input"))
    output: Values = field(default_factory=lambda: Values("output"))
    tool_pause: Values = field(default_factory=lambda: Values("tool pause"))
    human_pause: Values = field(default_factory=lambda: Values("human pause"))
    tool_turns: Values = field(default_factory=lambda: Values("tool turns"))
    before: Values = field(default_factory=lambda: Values("before a compaction"))
    after: Values = field(default_factory=lambda: Values("after a compaction"))
    peak: Values = field(default_factory=lambda: Values("largest prompt"))
    least: Values = field(default_factory=lambda: Values("smallest prompt"))
    opening: Values = field(default_factory=lambda: Values("first prompt"))
    turns: Values = field(default_factory=lambda: Values("turns"))
    sessions: int = 0
    subagents: int = 0
    shrunk: int = 0
    """Turns whose prompt was no larger than prompt and reply of the one before: nothing new can be told."""

    def add(self, session: TraceSession) -> None:
        """One more session."""
        if session.parent is not None:
            self.subagents += 1
            return
        self.sessions += 1
        self.turns.add(len(session.turns))
        prompts = [turn.prompt for turn in session.turns]
        self.peak.add(max(prompts))
        self.least.add(min(prompts))
        self.opening.add(prompts[0])
        if session.system is not None:
            self.system.add(session.system)
            self.first.add(max(1, session.turns[0].prompt - session.system))
        run = 0
        for number, turn in enumerate(session.turns):
            self.output.add(turn.output)
            if number == 0:
                continue
            if turn.kind == "human":
                self.tool_turns.add(run)
                run = 0
            elif turn.kind == "tool":
                run += 1
            if turn.pause_s is not None and turn.kind != "compact":
                (self.human_pause if turn.kind == "human" else self.tool_pause).add(turn.pause_s)
        for before, turn in pairwise(session.turns):
            added = turn.prompt - before.prompt - before.output
            if turn.kind == "compact":
                self.before.add(before.prompt)
                self.after.add(turn.prompt)
            elif added > 0:
                self.input.add(added)
            else:
                self.shrunk += 1


def fit(values: Values, unit: str, counts: bool = False) -> Fit | None:
    """The distribution for one quantity; None of no values. `counts`: whole numbers from 0."""
    kept = values.kept()
    if not kept:
        return None
    ordered = sorted(kept)
    marks = (quantile(ordered, 0.1), quantile(ordered, 0.5), quantile(ordered, 0.9))
    if ordered[0] == ordered[-1]:
        same = Distribution(kind="constant", value=_rounded(ordered[0]))
        return Fit(values.name, unit, values.seen, same, None, "all the same", marks)
    simple = _geometric if counts else _log_normal
    if len(kept) < FEW:
        chosen, why = simple(ordered), f"fewer than {FEW} values"
    else:
        chosen, why = _better(kept, simple)
    return Fit(values.name, unit, values.seen, chosen, distance(ordered, chosen), why, marks)


def _better(kept: list[float], simple: Callable[[list[float]], Distribution]) -> tuple[Distribution, str]:
    shuffled = kept[:]
    random.Random("agenttop:halves").shuffle(shuffled)  # logs have a daily rhythm
    seen, held = sorted(shuffled[::2]), sorted(shuffled[1::2])
    one, other = simple(seen), _empirical(seen)
    apart = distance(held, one), distance(held, other)
    why = f"held out: {one.kind} {apart[0]:.3f}, empirical {apart[1]:.3f}"
    if apart[0] - apart[1] > PLAINLY:
        return _empirical(sorted(kept)), why
    return simple(sorted(kept)), why


def _log_normal(ordered: list[float]) -> Distribution:
    """Zeros have no logarithm: they count as half of the smallest value above. Bounded by what was seen."""
    least = next((value for value in ordered if value > 0), 1.0)
    logs = [math.log(max(value, least / 2)) for value in ordered]
    mean = math.fsum(logs) / len(logs)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in logs) / max(1, len(logs) - 1))
    return Distribution(
        kind="log-normal",
        mu=round(mean, 3),
        sigma=round(min(spread, 10.0), 3),
        min=_rounded(ordered[0]),
        max=_rounded(ordered[-1]),
    )


def _geometric(ordered: list[float]) -> Distribution:
    mean = math.fsum(ordered) / len(ordered)
    return Distribution(kind="geometric", mean=round(mean, 2), max=ordered[-1])


def _empirical(ordered: list[float]) -> Distribution:
    marks = [quantile(ordered, step / (QUANTILES - 1)) for step in range(QUANTILES)]
    return Distribution(kind="empirical", quantiles=tuple(map(_rounded, marks)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Type 7 of Hyndman and Fan (1996), of values in order."""
    rank = share * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


STEPS = 1000
"""Quantiles of a distribution that its distance is taken over."""


def distance(ordered: Sequence[float], distribution: Distribution) -> float:
    """Kolmogorov-Smirnov, between values in order and what a distribution draws (to 1 part in `STEPS`).

    Both are compared as step functions, so that values which come often (whole seconds) do no harm.
    """
    drawn = sorted(distribution.draw(_Share((step + 0.5) / STEPS)) for step in range(STEPS))
    points = [*ordered[:: max(1, len(ordered) // STEPS)], *drawn]
    return max(
        abs(bisect_right(ordered, point) / len(ordered) - bisect_right(drawn, point) / STEPS)
        for point in points
    )


class _Share(random.Random):
    """Chance that has already been decided: a distribution draws its quantile at this share."""

    def __new__(cls, share: float) -> _Share:
        return super().__new__(cls)

    def __init__(self, share: float) -> None:
        self._share = share

    def random(self) -> float:
        return self._share


def _rounded(value: float) -> float:
    """Three figures after the point, or four in all: more would be noise."""
    return round(value, 3) if value < 1000 else float(round(value))
