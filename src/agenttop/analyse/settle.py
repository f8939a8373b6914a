"""When a level that runs may end: as soon as its figures can be trusted, and why not yet.

Cheap questions come first, because they are asked many times a second: do all agents run, has each had full
turns, is the window long enough, is the total rate known well enough. Only then the level's row is asked,
which tests every raw turn (`analyse.steady`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.measures import is_full
from agenttop.analyse.verdict import CLIENT_SHARE, LEAST_WINDOW_S, completed, failed, least_window_s
from agenttop.model import units
from agenttop.model.frames import LoadSample, Turn

LEAST_TURNS = 12
"""Full turns in the window, of all agents together: no test says anything about fewer."""

LEAST_TURNS_EACH = 2
"""Mean of full turns per agent; besides, every agent has at least one."""

PRECISION = 0.08
"""The total decode rate is known to this share: half of its 95 % interval."""

T_95 = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % quantile of Student's t, by the number of batches (one more than its degrees of freedom)."""

COUNTED_SHARE = 0.5
"""Where the engine counts tokens only at the end of a request, there is no total rate to go by."""

HOPELESS_FAILURES = 3
"""So many failures per agent, and no answer, say that no answer will come."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a level is from being judged."""

    ready: bool
    waits_for: str
    """What is still missing, in words; empty when nothing is."""
    turns: int = 0
    """Full turns in the window."""
    fewest: int = 0
    """Of the agent with the fewest."""
    hopeless: str | None = None
    """Why it will never be judged: nothing but failures, or the client is the limit."""
    halted_by: str | None = None
    """failures or client, with `hopeless`."""
    width: float | None = None
    """Where it is not known well enough: half of the 95 % interval of the total decode rate, as a share."""
    since: float | None = None
    """When the stage it is in began: warm, else all agents running; None while some have not started."""


def progress(agents: int, now: float, loads: Sequence[LoadSample], turns: Sequence[Turn]) -> Progress:
    """How far a level is. `loads` and `turns` since it began, in order of t."""
    hopeless = _only_failures(agents, turns)
    if hopeless is not None:
        return Progress(False, hopeless, hopeless=hopeless, halted_by="failures")
    full = next((load.t for load in loads if load.active >= agents), None)
    if full is None:
        active = loads[-1].active if loads else 0
        return Progress(False, f"{active} of {units.plural(agents, 'agent')} started")
    begun = warm_since(full, turns, agents)
    if begun is None:
        return Progress(False, "not every agent has had its first answer", since=full)
    done = [turn for turn in turns if is_full(turn) and turn.t_sent is not None and turn.t_sent >= begun]
    each = Counter(turn.agent for turn in done)
    fewest = min(each.values(), default=0) if len(each) >= agents else 0
    inside = [load for load in loads if load.t >= begun]
    limit = _client(inside, now - begun)
    if limit is not None:
        return Progress(False, limit, len(done), fewest, limit, "client", begun)
    waits, width = _waits_for(agents, now - begun, len(done), len(each), fewest, inside)
    return Progress(not waits, waits, len(done), fewest, width=width, since=begun)


def enough_s(agents: int, lasted_s: float, turns: Sequence[Turn]) -> float | None:
    """How long a window must last for the full turns a level needs, by those that were sent and answered in
    `lasted_s`; None where that cannot be told from any."""
    done = Counter(turn.agent for turn in turns if is_full(turn))
    if not done:
        return None
    return lasted_s * max(_least_turns(agents) / sum(done.values()), agents / len(done))


def warm_since(full: float, turns: Sequence[Turn], agents: int) -> float | None:
    """When each of the agents has had a first token since the level was full; None when some have not."""
    first: dict[str, float] = {}
    for turn in turns:
        if turn.parent is None and turn.turn_kind != "prime" and turn.t_first_token is not None:
            first.setdefault(turn.agent, turn.t_first_token)
    if len(first) < agents:
        return None
    return max(full, *sorted(first.values())[:agents])


def half_width(rates: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the mean, as a share of it, from the means of five to ten batches.

    Law and Kelton, Simulation Modeling and Analysis, on batch means: neighbours in time are not independent,
    batches nearly are. None with less than two values a batch.
    """
    count = min(max(T_95), len(rates) // 2)
    if count < min(T_95):
        return None
    size = len(rates) // count
    skipped = len(rates) - size * count
    means = [sum(rates[at : at + size]) / size for at in range(skipped, len(rates), size)]
    mean = sum(means) / count
    if mean <= 0:
        return None
    spread = math.sqrt(sum((value - mean) ** 2 for value in means) / (count - 1))
    return T_95[count] * spread / math.sqrt(count) / mean


def _waits_for(
    agents: int, window_s: float, done: int, had_one: int, fewest: int, loads: Sequence[LoadSample]
) -> tuple[str, float | None]:
    """What is missing, in words, and where it is the total rate, how well that is known."""
    shortest = least_window_s(fewest)
    if window_s < shortest:
        return f"a window of {shortest:.0f} s", None
    if had_one < agents:
        return f"a full turn of {units.plural(agents - had_one, 'agent')}", None
    least = _least_turns(agents)
    if done < least:
        return units.plural(least - done, "more turn"), None
    rates = [load.decode_tok_s for load in loads if load.decode_tok_s is not None]
    if len(rates) < COUNTED_SHARE * len(loads):
        return "", None
    width = half_width(rates)
    if width is None:
        return "more figures of the total rate", None
    if width > PRECISION:
        return f"a steadier total rate (known to ±{units.percent(width)})", width
    return "", None


def _least_turns(agents: int) -> int:
    return max(LEAST_TURNS, LEAST_TURNS_EACH * agents)


def _only_failures(agents: int, turns: Sequence[Turn]) -> str | None:
    kinds = Counter(turn.error_kind for turn in turns if failed(turn))
    if sum(kinds.values()) < HOPELESS_FAILURES * agents or any(completed(turn) for turn in turns):
        return None
    (most, count), *_ = kinds.most_common(1)
    return f"every request failed ({count} times {most})"


def _client(loads: Sequence[LoadSample], window_s: float) -> str | None:
    """The client is the limit for so long that the rest of a level could not outweigh it."""
    limited = [load.client_limited for load in loads if load.client_limited]
    if window_s < LEAST_WINDOW_S or len(limited) <= max(3, 3 * CLIENT_SHARE * len(loads)):
        return None
    return f"the client is the limit: {limited[-1]}"
