"""First-token and other waits: of the agents' own turns, and what the engine's histograms say."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import EngineSample, LatencySample
from agenttop.view.engines import latency
from agenttop.view.figures import Figures
from agenttop.view.spans import Line, spread
from agenttop.view.store import Store


def waits(store: Store, sample: EngineSample, found: Figures, width: int) -> list[Line]:
    """One line; two where both the agents and the engine have something to say."""
    if not has_engine_waits(store, sample):
        return [spread([_ttft("TTFT    ", found), _window(found), _tpot(found)], width, 3)]
    if not found.ended.turns:
        parts = engine_waits(store, sample, "TTFT    ", between=False)
        return [spread([parts[0], _counted(store, sample), *parts[1:]], width)]
    agents = [_ttft("agents  TTFT ", found), _tpot(found), _window(found)]
    first, *others = engine_waits(store, sample, "engine  TTFT ")
    return [
        spread(agents, width),
        spread([first, *others[:1], _counted(store, sample, brief=True), *others[1:]], width),
    ]


def brief_wait(store: Store, sample: EngineSample, found: Figures) -> list[Line]:
    """For a line that other figures share: of the agents, else of the engine, which is said."""
    if found.ended.turns or latency(store, sample, "ttft") is None:
        cached: Line = [("cached ", "label"), (units.percent(found.ended.cached_fraction), "text")]
        return [_ttft("TTFT    ", found), cached]
    return [[*engine_waits(store, sample, "TTFT    ")[0], ("  engine", "dim")]]


def has_engine_waits(store: Store, sample: EngineSample) -> bool:
    """Whether the engine's own histograms have something to say."""
    return latency(store, sample, "ttft") is not None or latency(store, sample, "itl") is not None


def engine_waits(store: Store, sample: EngineSample, name: str, *, between: bool = True) -> list[Line]:
    """First token, between tokens unless that stands elsewhere, in the queue."""
    parts: list[Line] = []
    first = latency(store, sample, "ttft")
    if first is not None:
        parts.append([(name, "label"), *middle(first), ("  p95 ", "label"), (upper(first, 0.95), "strong")])
    else:
        parts.append([(name, "label"), (units.MISSING, "dim")])
    for measure, word in (("itl", "ITL "), ("queue", "queue "))[0 if between else 1 :]:
        found = latency(store, sample, measure)
        if found is not None:
            parts.append([(word, "label"), *middle(found)])
    return parts


def middle(found: LatencySample) -> Line:
    """`p50 120 ms`, `p50 <10 ms` where the median lies in the first bucket, else the mean."""
    if found.p50_s is not None:
        return [("p50 ", "label"), (units.seconds(found.p50_s), "strong")]
    if found.below_s is not None:
        return [("p50 ", "label"), (below(found), "strong")]
    if found.mean_s is not None:
        return [("mean ", "label"), (units.seconds(found.mean_s), "strong")]
    return [("p50 ", "label"), (units.MISSING, "dim")]


def below(found: LatencySample) -> str:
    """`<10 ms`: all that is known of a wait in the first bucket."""
    return f"<{units.seconds(found.below_s)}"


def upper(found: LatencySample, share: float) -> str:
    """A percentile as it is known: a value, an edge that it is less than, or not at all.

    One without a value lies in the first bucket where the median does and a higher one has a value; else it
    may as well lie beyond the last edge.
    """
    values = {0.5: found.p50_s, 0.9: found.p90_s, 0.95: found.p95_s, 0.99: found.p99_s}
    value = values.get(share)
    if value is None and found.below_s is not None:
        higher = any(other > share and known is not None for other, known in values.items())
        if share <= 0.5 or higher:
            return below(found)
    return units.seconds(value)


def _counted(store: Store, sample: EngineSample, *, brief: bool = False) -> Line:
    """Whose figures these are, of how many requests and how long a time."""
    first = latency(store, sample, "ttft") or latency(store, sample, "itl")
    if first is None:
        return []
    window = units.seconds(first.window_s)
    source = "" if brief else "engine, "
    return [(f"{source}{units.count(first.count)} in {window}", "dim")]


def _ttft(name: str, found: Figures) -> Line:
    return [
        (f"{name}p50 ", "label"),
        (units.seconds(found.ended.ttft_p50), "strong"),
        ("  p95 ", "label"),
        (units.seconds(found.ended.ttft_p95), "strong"),
    ]


def _window(found: Figures) -> Line:
    return [(f"{found.ended.turns} {'turn' if found.ended.turns == 1 else 'turns'} in {found.window}", "dim")]


def _tpot(found: Figures) -> Line:
    return [("TPOT p50 ", "label"), (units.seconds(found.ended.tpot_p50), "text")]
