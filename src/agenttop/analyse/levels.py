"""The levels of a session: spans in which the number of active agents was constant.

Rules
- A run announces its levels. In a session that was steered by hand they are the spans in which the driver
  reported the same number of agents for at least `LEAST_SPAN_S`; shorter ones are the ramp between levels.
- Warm-up is not judged: it lasts until all agents of the level run and each agent that joined in it has
  the first token of its first request, which is its cold prefill. An agent whose requests fail is not
  waited for.
- What remains is the steady window; all figures are taken over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from agenttop.model.frames import Event, Level, LoadSample, Turn

LEAST_SPAN_S = 10.0

LEAST_SAMPLES = 3
"""Seconds of real time a span must last at least, so that more than one sample shows it."""

LEAD_S = 2.0
"""An agent may have been started this long before the sample that first shows it, in real time."""

ENDINGS = frozenset(
    {
        "run.level-end",
        "ramp.end",
        "agents.stop-all",
        "agents.drain",
        "run.abandoned",
        "run.end",
        "session.end",
    }
)
"""Events after which a level is over, or its load is no longer there."""


@dataclass(frozen=True, slots=True)
class Span:
    """One level and its steady window, in session time."""

    number: int
    """Counted from 1."""
    agents: int
    start: float
    steady: float
    """End of the warm-up; equal to `end` when the warm-up took it all."""
    end: float
    planned: bool

    @property
    def window_s(self) -> float:
        """Length of the steady window."""
        return self.end - self.steady


def find_levels(
    levels: Sequence[Level],
    loads: Sequence[LoadSample],
    turns: Sequence[Turn],
    events: Sequence[Event],
    duration: float,
    speedup: float = 1.0,
) -> list[Span]:
    """The levels in order. All sequences are in order of t; none of them is changed.

    `speedup`: session seconds per second; samples are that much further apart.
    """
    ends = [event.t for event in events if event.event in ENDINGS]
    least = max(LEAST_SPAN_S, LEAST_SAMPLES * speedup)
    spans = _announced(levels, ends, duration) if levels else _observed(loads, least)
    return [
        Span(
            number=number,
            agents=agents,
            start=start,
            steady=_warm(start, end, agents, loads, turns, LEAD_S * speedup),
            end=end,
            planned=bool(levels),
        )
        for number, (agents, start, end) in enumerate(spans, start=1)
    ]


def _announced(
    levels: Sequence[Level], ends: Sequence[float], duration: float
) -> list[tuple[int, float, float]]:
    spans = []
    for level, following in zip_longest(levels, levels[1:]):
        bounds = [duration, *(t for t in ends if t > level.t)]
        if following is not None:
            bounds.append(following.t)
        if level.t_end is not None:
            bounds.append(level.t_end)
        spans.append((level.agents, level.t, max(level.t, min(bounds))))
    return spans


def _observed(loads: Sequence[LoadSample], least: float) -> list[tuple[int, float, float]]:
    spans: list[tuple[int, float, float]] = []
    begun: LoadSample | None = None
    for load, following in zip_longest(loads, loads[1:]):
        begun = begun or load
        if following is None or following.active != begun.active:
            # Somewhere between this sample and the next the number changed: that second is left out.
            spans.append((begun.active, begun.t, load.t))
            begun = None
    running = [span for span in spans if span[0] > 0]
    long = [span for span in running if span[2] - span[1] >= least]
    return long or sorted(running, key=lambda span: span[1] - span[2])[:1]


def _warm(
    start: float, end: float, agents: int, loads: Sequence[LoadSample], turns: Sequence[Turn], lead: float
) -> float:
    """When the warm-up of a level has ended; `end` when it never did."""
    full = next((load.t for load in loads if start <= load.t < end and load.active >= agents), end)
    own: dict[str, list[Turn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.t_queued):
        if turn.parent is None:
            own[turn.agent].append(turn)
    joined = [mine for mine in own.values() if start - lead <= mine[0].t_queued < end]
    return min(end, max([full, *(_arrived(mine, end) for mine in joined)]))


def _arrived(turns: Sequence[Turn], end: float) -> float:
    """When an agent was part of the load: it had a first token, or a request of it had failed."""
    for turn in turns:
        if turn.t_first_token is not None:
            return turn.t_first_token
        if turn.error_kind not in (None, "cancelled"):
            return turn.t
    return end
