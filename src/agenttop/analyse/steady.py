"""Whether a level has settled: tests on its raw turns, for a search that runs and for a finished recording.

Looked at are two series in order of time: the decode rate of each turn, and its time to the first token
beyond what the size of its prompt explains. The whole window is tried first; where it does not pass, its
beginning is cropped once, at the point that leaves the most precise mean (MSER; White 1997), never by the
values one would like to see. Then two tests decide, both with a least size of what they find, so that a
long run does not fail for a change nobody would feel:

- trend: Mann-Kendall, its variance corrected for autocorrelation (Hamed and Rao 1998), the size by Theil
  and Sen's slope;
- level shift: Pettitt (1979), corrected by the same factor, the size by the medians before and after.

That a level does not settle is an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenttop.analyse.measures import is_full
from agenttop.analyse.series import batched, mser_crop, shift, theil_sen, trend
from agenttop.analyse.stats import median
from agenttop.analyse.tokens import decode_rate
from agenttop.analyse.verdict import least_window_s
from agenttop.model import units
from agenttop.model.frames import Turn

LEAST_S = 30.0
"""The shortest window that may be called steady; with many turns a shorter one (`verdict.least_window_s`)."""

LEAST_TURNS = 12
"""With fewer turns no test says anything."""

LEAST_FULL = 1
"""Turns each agent must have sent and completed within the window."""

SETTLED_P = 0.01
"""What chance brings about less often than this is real."""

DECODE_SHARE = 0.10
"""A smaller change of the decode rate over the window, as a share of its median, is none."""

TTFT_SHARE = 0.5
TTFT_S = 0.25
"""A change of the time to the first token counts beyond this share of its median and beyond this time:
it scatters many times more than the decode rate."""

LARGE = 2.5
"""A change this many times as large counts even where slow swings could explain it: then the window is too
short for them, which is no steady state either."""

MOST_VALUES = 200
"""Longer series are put together to medians of neighbours: the tests compare every pair."""


@dataclass(frozen=True, slots=True)
class Steadiness:
    """The standing of a level."""

    state: str
    """steady; warming: too little was seen to tell; unsteady: no steady state as far as it was seen."""
    since: float
    """Start of the window looked at, later than the start of the level where its beginning was cropped."""
    until: float
    turns: int
    """Full turns of agents in it."""
    full_per_agent: int
    """Of the agent with the fewest."""
    why: str
    """One sentence."""

    @property
    def window_s(self) -> float:
        """Length of the window looked at."""
        return self.until - self.since


def judge(
    turns: Sequence[Turn],
    agents: int,
    start: float,
    now: float,
    *,
    least_s: float = LEAST_S,
    least_full: int = LEAST_FULL,
) -> Steadiness:
    """The standing of a level between `start` and `now`; `turns` in order of t, of any kind and time."""
    own = [turn for turn in turns if start <= turn.t < now and is_full(turn)]
    whole = _look(own, agents, start, now, least_s, least_full)
    if whole.state != "unsteady":
        return whole
    rates = [rate for turn in own if (rate := decode_rate(turn)) is not None]
    crop = mser_crop(rates)
    if crop == 0:
        return whole
    kept = [turn for turn in own if decode_rate(turn) is not None][crop:]
    since = max(start, kept[0].t_sent or start)
    later = _look([turn for turn in own if turn.t >= since], agents, since, now, least_s, least_full)
    # A crop that leaves too little to judge has not shown a steady state.
    return later if later.state == "steady" else whole


def _look(
    turns: Sequence[Turn], agents: int, since: float, until: float, least_s: float, least_full: int
) -> Steadiness:
    full = Counter(turn.agent for turn in turns if turn.t_sent is not None and turn.t_sent >= since)
    ready = sum(count >= least_full for count in full.values())
    fewest = min(full.values()) if len(full) >= agents and full else 0

    def standing(state: str, why: str) -> Steadiness:
        return Steadiness(state, since, until, len(turns), fewest, why)

    least_s = least_window_s(fewest, least_s)
    if until - since < least_s:
        return standing("warming", f"{units.seconds(max(0.0, until - since))} of at least {least_s:.0f} s")
    if ready < agents:
        return standing(
            "warming", f"{ready} of {agents} agents have had {units.plural(least_full, 'full turn')}"
        )
    if len(turns) < LEAST_TURNS:
        return standing(
            "warming", f"{units.plural(len(turns), 'turn')}; {LEAST_TURNS} are needed to tell a trend"
        )
    moved = _decode_moved(turns) or _ttft_moved(turns)
    if moved:
        return standing("unsteady", moved)
    return standing("steady", f"no trend and no level shift over {units.plural(len(turns), 'turn')}")


def _decode_moved(turns: Sequence[Turn]) -> str | None:
    rates = [rate for turn in turns if (rate := decode_rate(turn)) is not None]
    middle = median(rates)
    if not middle:
        return None
    return _moved(
        rates, DECODE_SHARE * middle, "the decode rate per agent", lambda v: f"{units.rate(v)} tok/s"
    )


def _ttft_moved(turns: Sequence[Turn]) -> str | None:
    known = [
        (
            float(max(0, (turn.prompt_tokens or 0) - (turn.cached_tokens or 0))),
            turn.t_first_token - turn.t_sent,
        )
        for turn in turns
        if turn.t_first_token is not None and turn.t_sent is not None
    ]
    middle = median([ttft for _, ttft in known])
    if middle is None:
        return None
    slope = max(0.0, theil_sen(known))
    sizes = median([size for size, _ in known]) or 0.0
    # What a prompt of median size would have waited at that time.
    like = [ttft - slope * (size - sizes) for size, ttft in known]
    floor = max(TTFT_S, TTFT_SHARE * middle)
    return _moved(
        like, floor, "the time to the first token of like prompts", lambda v: units.seconds(max(0.0, v))
    )


def _moved(values: Sequence[float], floor: float, what: str, show: Callable[[float], str]) -> str | None:
    series = batched(values, MOST_VALUES)
    if len(series) < LEAST_TURNS:
        return None
    for found, ways in ((trend(series), ("falls", "rises")), (shift(series), ("drops", "jumps"))):
        size = abs(found.size)
        if (found.p < SETTLED_P and size > floor) or (found.plain_p < SETTLED_P and size > LARGE * floor):
            way = ways[0] if found.size < 0 else ways[1]
            return f"{what} {way} within it, from {show(found.before)} to {show(found.after)}"
    return None
