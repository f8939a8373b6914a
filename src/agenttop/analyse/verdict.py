"""Whether a level may be judged, and in words why not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from agenttop.analyse.levels import Span
from agenttop.analyse.stats import drift
from agenttop.analyse.tokens import decode_rate
from agenttop.model import units
from agenttop.model.counts import miscounted
from agenttop.model.frames import EngineSample, LoadSample, Turn

LEAST_WINDOW_S = 30.0
"""A shorter steady window is not judged, nor is a longer one with less than a turn per agent."""

QUICK_WINDOW_S = 10.0
QUICK_TURNS = 10
"""A window of this length is judged, too, where every agent has had so many turns in it."""

CLIENT_SHARE = 0.1
"""In more than this share of the seconds the client may not have been the limit. A late moment now and
then moves no median."""

FAILED_SHARE = 0.05

STALLED_SHARE = 0.1
"""Of the agents' time: an engine that hangs is not measured by those that it still serves."""

MISCOUNTED_SHARE = 0.05
"""Of the requests: engines whose token counts cannot be right are not measured by them."""

GAP_S = 5.0
"""The driver reports once a second of real time; a longer silence is a hole in the recording."""

DRIFT_SHARE = 0.25
"""A decode rate that moves by more than this in the window, beyond chance, is not steady."""

SERVING = frozenset({"ok", "busy", "asleep"})


def why_invalid(
    span: Span,
    loads: Sequence[LoadSample],
    turns: Sequence[Turn],
    engines: Sequence[EngineSample],
    speedup: float = 1.0,
) -> list[str]:
    """Reasons, the weightiest first; none when the level is valid.

    `loads`, `turns` (ended) and `engines` (of the level's engine) are those within the steady window.
    `speedup`: session seconds per second; samples are that much further apart.
    """
    return [
        *_too_little(span, loads, turns),
        *_not_constant(span, loads),
        *_client(loads),
        *_failed(turns),
        *_stalled(span, loads),
        *_miscounted(turns),
        *away(engines),
        *_gap(span, loads, GAP_S * speedup),
        *unsteady(turns),
    ]


def failed(turn: Turn) -> bool:
    """Whether a request went wrong; one that was cancelled on purpose did not."""
    return turn.error_kind is not None and turn.error_kind != "cancelled"


def completed(turn: Turn) -> bool:
    """Whether a request was answered to its end."""
    return turn.error_kind is None and turn.t_last_token is not None


def least_window_s(fewest: int, otherwise: float = LEAST_WINDOW_S) -> float:
    """The shortest window that is judged, by the turns of the agent with the fewest."""
    return min(QUICK_WINDOW_S, otherwise) if fewest >= QUICK_TURNS else otherwise


def _too_little(span: Span, loads: Sequence[LoadSample], turns: Sequence[Turn]) -> list[str]:
    if span.window_s <= 0:
        if span.planned and not any(load.active >= span.agents for load in loads):
            return [f"its {span.agents} agents never ran together for long enough to be judged"]
        return ["too short: the warm-up took all of it"]
    reasons = []
    done = Counter(turn.agent for turn in turns if completed(turn) and turn.parent is None)
    least = least_window_s(min(done.values()) if len(done) >= span.agents and done else 0)
    if span.window_s < least:
        near = span.window_s > least - 1  # 29.97 s must not read as 30
        had = math.floor(span.window_s * 10) / 10 if near else round(span.window_s)
        reasons.append(f"too short: {had:g} s after the warm-up, {least:.0f} s are needed")
    if not done:
        reasons.append("no turn was completed")
    elif len(done) < span.agents:
        reasons.append(f"only {len(done)} of {span.agents} agents completed a turn")
    return reasons


def _not_constant(span: Span, loads: Sequence[LoadSample]) -> list[str]:
    reasons = []
    least = min((load.active for load in loads), default=span.agents)
    if least < span.agents:
        reasons.append(f"only {least} of {span.agents} agents ran all the time")
    if any(load.paused for load in loads):
        reasons.append("the agents were paused")
    return reasons


def _client(loads: Sequence[LoadSample]) -> list[str]:
    limited = [load.client_limited for load in loads if load.client_limited]
    if not loads or len(limited) <= CLIENT_SHARE * len(loads):
        return []
    (most, _), *_ = Counter(limited).most_common(1)
    return [f"the client was the limit in {units.percent(len(limited) / len(loads))} of it ({most})"]


def _failed(turns: Sequence[Turn]) -> list[str]:
    kinds = Counter(turn.error_kind for turn in turns if failed(turn))
    total = sum(kinds.values())
    if not turns or total <= FAILED_SHARE * len(turns):
        return []
    (most, _), *_ = kinds.most_common(1)
    return [f"{total} of {len(turns)} requests failed (most: {most})"]


def _stalled(span: Span, loads: Sequence[LoadSample]) -> list[str]:
    if not loads or span.agents < 1:
        return []
    share = sum(load.stalled for load in loads) / len(loads) / span.agents
    if share <= STALLED_SHARE:
        return []
    return [
        f"agents were stalled for {units.percent(min(1.0, share))} of their time: the engine sent nothing"
    ]


def _miscounted(turns: Sequence[Turn]) -> list[str]:
    counted = [turn for turn in turns if turn.output_tokens is not None]
    wrong = [why for turn in counted if (why := miscounted(turn)) is not None]
    if len(wrong) <= MISCOUNTED_SHARE * len(counted):
        return []
    return [
        f"the engine's token counts cannot be right in {len(wrong)} of {len(counted)} requests ({wrong[0]})"
    ]


def away(engines: Sequence[EngineSample]) -> list[str]:
    """That the engine was restarted, and that it did not serve; in words."""
    reasons = []
    if len({engine.restarts for engine in engines}) > 1:
        reasons.append("the engine was restarted")
    away = Counter(engine.state for engine in engines if engine.state not in SERVING)
    if away:
        (state, _), *_ = away.most_common(1)
        reasons.append(f"the engine was not serving for {sum(away.values())} samples ({state})")
    return reasons


def _gap(span: Span, loads: Sequence[LoadSample], most: float) -> list[str]:
    times = [span.steady, *(load.t for load in loads), span.end]
    longest = max(later - earlier for earlier, later in pairwise(times))
    if longest > most and span.window_s > 0:
        return [f"the recording has a hole of {units.seconds(longest)}"]
    return []


def unsteady(turns: Sequence[Turn]) -> list[str]:
    """The reason where the decode rate moves too much within the window."""
    own = [turn for turn in turns if turn.parent is None]
    moved = drift([rate for turn in own if (rate := decode_rate(turn)) is not None])
    if moved is None or not moved.real or abs(moved.change) <= DRIFT_SHARE:
        return []
    way = "fell" if moved.change < 0 else "rose"
    span = f"{units.rate(moved.first)} to {units.rate(moved.last)} tok/s"
    return [f"unsteady: the decode rate per agent {way} from {span} within it"]
