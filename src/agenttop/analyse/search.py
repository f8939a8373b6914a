"""Which level a search for the knee enters next. Pure: what has been measured goes in, one step comes out.

Order of a search, as far as its budget goes
1. climb: 1, 2, 4, 8 … up to the most agents allowed, until it is past the cliff. Where the KV pool says how
   many agents fit (pool over mean context of an agent), the climb enters that number, and one just beyond.
2. refine: levels a quarter to either side of the knee, until it has such neighbours.
3. verify: halve the gap between the last level before the cliff and the first past it.
4. refine the capacity at the SLO: bisect between the last level that holds it and the first that does not.
5. confirm: the levels round the knee once more, with new agents, since one measurement is none. Where no knee
   is known and levels scatter too much to tell, all levels once more, the highest first.

The climb gives way to refining when what is left of the budget is only enough for that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agenttop.analyse.report import KneeReport
from agenttop.model import units

REFINE_SHARE = 0.25
"""A knee or a cliff is told to this share of its number of agents: closer neighbours would measure noise."""

CAPACITY_SHARE = 0.1
"""The same for the capacity at an SLO, where a level passes or does not."""

NOISY = 0.08
"""Levels that scatter by more than this say little about a knee."""

BEYOND_SHARE = 0.25
"""How far beyond a predicted cliff its verification looks."""

MOST_REFINED = 5
MOST_VERIFIED = 3
MOST_BISECTED = 6
MOST_CONFIRMED = 5
"""Bounds on the steps of one purpose: an answer that moves with every level would keep a search going."""

DEARER = 1.25
"""A level of more agents than any before is taken to last this much longer than the longest so far."""

HALTING = frozenset({"failures", "client", "engine"})
"""Ends of a level beyond which climbing tells nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """A level to enter."""

    agents: int
    purpose: str
    """climb, refine, verify or confirm, as `Level.purpose` has it."""
    why: str
    """What it is to show, in words."""


@dataclass(frozen=True, slots=True)
class Done:
    """The search is over."""

    why: str
    cut_short: bool = False
    """The budget did not reach for all that was wanted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A level that the search has been through."""

    agents: int
    purpose: str
    took_s: float
    """From its beginning to its end, warm-up included."""
    ended: str
    """steady, unsteady, budget, failures, client; engine: it is down."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What the levels so far say; from `analyse.knee`."""

    knee: int | None = None
    suspect: int | None = None
    """Without a knee: a level that looks like one, if only further levels confirmed it."""
    cliff: int | None = None
    """The first level past the cliff."""
    holds: int | None = None
    """The highest level that holds the SLO with all below it; 0 when not even the first does. None without an
    SLO, or with nothing to judge."""
    breaks: int | None = None
    """The lowest level beyond `holds` that does not hold it."""
    fits: int | None = None
    """Agents that fit by arithmetic: into the KV pool, by the contexts seen so far, or the slots."""

    noise: float | None = None
    """Scatter of a level from one repetition to the next, as a share; None where it cannot be told."""

    @property
    def bend(self) -> int | None:
        """Where the knee is, or may be."""
        return self.knee if self.knee is not None else self.suspect


@dataclass(slots=True)
class Search:
    """Holds what was measured. `judge` is asked after every level."""

    most: int
    budget_s: float
    judge: Callable[[], Belief]
    measured: list[Measured] = field(default_factory=list)
    belief: Belief = field(default_factory=Belief)

    def add(self, level: Measured) -> None:
        """A level is over; `judge` knows its figures by now."""
        self.measured.append(level)
        self.belief = self.judge()

    def share_s(self, left_s: float) -> float:
        """What one level may take when what is left is spread over the steps still to be expected."""
        climbs = [agents for agents in doublings(self.most) if agents > self._top]
        ahead = len(climbs) + 6 - min(3, sum(level.purpose != "climb" for level in self.measured))
        return left_s / max(2, ahead)

    def next(self, left_s: float) -> Step | Done:
        """The next level with `left_s` of the budget left."""
        if not self.measured:
            return Step(1, "climb", "one agent alone is what all others are compared with")
        if (halt := self._hopeless()) is not None:
            return halt
        climb, around = self._climb(), self._around()
        wanted = [*around, climb] if climb and self._must_hurry(climb, around, left_s) else [climb, *around]
        steps = [step for step in wanted if step is not None]
        for step in steps:
            if self.cost_s(step.agents) <= left_s:
                return step
        if steps:
            why = f"too little of the budget is left for another level ({steps[0].why})"
            return Done(why, cut_short=True)
        return Done(self._why_complete())

    def cost_s(self, agents: int) -> float:
        """How long a level of so many agents will last, from those before it."""
        if not self.measured:
            return 0.0
        below = [level.took_s for level in self.measured if level.agents <= agents]
        above = [level.took_s for level in self.measured if level.agents >= agents]
        if above and below:
            return max(min(above), min(below))
        if above:
            return min(above)
        return DEARER * max(below)

    @property
    def _top(self) -> int:
        return max((level.agents for level in self.measured), default=0)

    def _hopeless(self) -> Done | None:
        first, last = self.measured[0], self.measured[-1]
        if last.ended == "engine":
            # It may have died of the load or of something else: more levels would tell neither.
            return Done(f"the engine went down with {units.plural(last.agents, 'agent')}", cut_short=True)
        if first.ended == "failures":
            return Done("every request of the first level failed")
        if first.ended == "client":
            return Done("the client is the limit already with one agent")
        return None

    def _climb(self) -> Step | None:
        top = self._top
        highest = [level for level in self.measured if level.agents == top]
        past = self.belief.cliff is not None and top >= self.belief.cliff
        if top >= self.most or past or any(level.ended in HALTING for level in highest):
            return None
        following = next(agents for agents in doublings(self.most) if agents > top)
        fits = self.belief.fits
        if fits is not None:
            beyond = min(self.most, math.ceil(fits * (1 + BEYOND_SHARE)))
            if top < fits < following:
                return Step(fits, "verify", f"a cliff is predicted beyond {fits} agents")
            if fits <= top < beyond < following:
                return Step(beyond, "verify", f"the cliff predicted beyond {fits} agents is looked for")
        return Step(following, "climb", f"{following} agents are tried")

    def _must_hurry(self, climb: Step, around: Sequence[Step], left_s: float) -> bool:
        if self.belief.knee is None or not around:
            return False
        reserve = sum(self.cost_s(step.agents) for step in around)
        return self.cost_s(climb.agents) + reserve > left_s

    def _around(self) -> list[Step]:
        """Steps that make what is known sharper, the most useful first."""
        return [*self._refine(), *self._verify(), *self._bisect(), *self._confirm()]

    def _refine(self) -> list[Step]:
        knee = self.belief.bend
        done = sum(level.purpose == "refine" for level in self.measured)
        if knee is None or done >= MOST_REFINED:
            return []
        reach = max(1, round(knee * REFINE_SHARE))
        below, above = range(max(1, knee - reach), knee), range(knee + 1, knee + reach + 1)
        seen = self._seen
        steps = []
        if below and not seen.intersection(below):
            steps.append(below[0])
        if not seen.intersection(above) and above[-1] <= self._highest:
            steps.append(above[-1])
        return [Step(agents, "refine", f"the knee is told from {agents} agents") for agents in steps]

    def _verify(self) -> list[Step]:
        cliff = self.belief.cliff
        done = sum(level.purpose == "verify" for level in self.measured)
        below = max((agents for agents in self._seen if cliff and agents < cliff), default=None)
        if cliff is None or below is None or done >= MOST_VERIFIED:
            return []
        if cliff - below <= max(1, round(cliff * REFINE_SHARE)):
            return []
        fits = self.belief.fits
        middle = fits if fits is not None and below < fits < cliff else round(math.sqrt(below * cliff))
        return [Step(middle, "verify", f"the cliff is narrowed down from {below} to {cliff} agents")]

    def _bisect(self) -> list[Step]:
        holds, breaks = self.belief.holds, self.belief.breaks
        done = sum(level.purpose == "capacity" for level in self.measured)
        if holds is None or breaks is None or done >= MOST_BISECTED:
            return []
        if breaks - holds <= max(1, round(holds * CAPACITY_SHARE)):
            return []
        middle = (holds + breaks) // 2
        return [Step(middle, "capacity", f"the capacity is narrowed down from {holds} to {breaks} agents")]

    def _confirm(self) -> list[Step]:
        knee = self.belief.bend
        times = Counter(level.agents for level in self.measured)
        done = sum(level.purpose == "confirm" for level in self.measured)
        if done >= MOST_CONFIRMED:
            return []
        levels = sorted(self._seen)
        if knee is None:
            noisy = self.belief.noise is not None and self.belief.noise > NOISY and len(levels) > 2
            again = [agents for agents in reversed(levels) if times[agents] < 2 and agents <= self._highest]
            why = "levels that scatter are measured once more"
            return [Step(agents, "confirm", why) for agents in again[: MOST_CONFIRMED - done] if noisy]
        at = levels.index(knee) if knee in levels else 0
        near = levels[max(0, at - 1) : at + 2]
        once = [agents for agents in near if times[agents] < 2][: MOST_CONFIRMED - done]
        return [Step(agents, "confirm", f"{agents} agents are measured once more") for agents in once]

    @property
    def _seen(self) -> set[int]:
        return {level.agents for level in self.measured}

    @property
    def _highest(self) -> int:
        """No step goes beyond this: the most allowed, or the level at which nothing but failures came."""
        broken = [level.agents - 1 for level in self.measured if level.ended in HALTING]
        return min([self.most, *broken])

    def _why_complete(self) -> str:
        top = max(self.measured, key=lambda level: level.agents)
        if top.ended == "client":
            return f"the client is the limit at {top.agents} agents, so no more were tried"
        if top.ended == "failures":
            return f"with {top.agents} agents nothing but failures came back"
        if self.belief.cliff is not None:
            return "the levels round the knee and the cliff are measured"
        return f"all levels up to {units.plural(top.agents, 'agent')} are measured"


def believed(report: KneeReport | None) -> Belief:
    """The figures of a report that steer a search."""
    if report is None:
        return Belief()
    capacity, predicted = report.capacity, report.cliff.predicted
    holds = breaks = None
    if capacity is not None and capacity.levels:
        holds, breaks = capacity.agents or 0, capacity.fails_at
    return Belief(
        knee=report.knee.agents,
        suspect=report.knee.unconfirmed,
        cliff=report.cliff.agents,
        holds=holds,
        breaks=breaks,
        fits=predicted.agents if predicted is not None else None,
        noise=report.noise_fraction if report.noise_from in ("requests", "repetitions") else None,
    )


def doublings(most: int) -> list[int]:
    """1, 2, 4, 8 … and the most itself."""
    levels = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return levels if levels[-1] == most else [*levels, most]
