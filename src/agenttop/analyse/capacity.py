"""How many agents can be served as promised."""

from __future__ import annotations

from collections.abc import Sequence

from agenttop.analyse.points import LevelPoint, Served
from agenttop.analyse.report import Attainment, Capacity
from agenttop.analyse.slo import Slo
from agenttop.analyse.stats import wilson
from agenttop.model import units


def capacity(points: Sequence[LevelPoint], slo: Slo) -> Capacity:
    """The largest level that meets the SLO. `points`: one per number of agents, in order."""
    levels = [found for point in points if (found := _attained(point, slo)) is not None]
    if not levels:
        return Capacity(slo=str(slo), monotone=True, why="no level knows the figures that the SLO bounds")
    fails_at = next((level.agents for level in levels if not level.passes), None)
    passing = [level.agents for level in levels if level.passes]
    below = [agents for agents in passing if fails_at is None or agents < fails_at]
    monotone = len(below) == len(passing)
    best = max(below, default=None)
    return Capacity(
        slo=str(slo),
        agents=best,
        fails_at=fails_at,
        monotone=monotone,
        levels=levels,
        why=_why(best, fails_at, levels, monotone),
    )


def _attained(point: LevelPoint, slo: Slo) -> Attainment | None:
    if not point.valid and not point.refused:
        return None
    judged = [verdict for one in point.served if (verdict := _meets(one, slo)) is not None]
    if not judged:
        return _by_medians(point, slo)
    met, total = sum(judged), len(judged)
    low, high = wilson(met, total)
    passes = met / total >= slo.attained
    return Attainment(
        agents=point.agents,
        met=met,
        requests=total,
        fraction=met / total,
        low=low,
        high=high,
        passes=passes,
        sure=low >= slo.attained if passes else high < slo.attained,
    )


def _meets(one: Served, slo: Slo) -> bool | None:
    """Whether a request met the SLO; None for one that no condition can be asked of."""
    if not one.asked:
        return None
    if one.failed:
        return False
    values = {"decode": one.decode_tok_s, "ttft": one.ttft_s, "wait": one.wait_s}
    known = [
        condition.holds(v) for condition in slo.conditions if (v := values[condition.metric]) is not None
    ]
    return all(known) if known else None


def _by_medians(point: LevelPoint, slo: Slo) -> Attainment | None:
    """Of a table, which knows no single request."""
    values = {"decode": point.decode_tok_s_per_agent, "ttft": point.ttft_s, "wait": point.wait_s}
    if values["decode"] is None and point.decode_tok_s is not None:
        values["decode"] = point.decode_tok_s / point.agents
    known = [(c, v) for c in slo.conditions if (v := values[c.metric]) is not None]
    missing = [c.metric for c in slo.conditions if values[c.metric] is None]
    broken = [f"{c.metric} {v:g}" for c, v in known if not c.holds(v)]
    if not known or (missing and not broken):
        return None
    why = "by the level's own figures, single requests are not known"
    return Attainment(
        agents=point.agents,
        passes=not broken,
        sure=False,
        why=": ".join([why, *filter(None, [", ".join(broken)])]),
    )


def _why(best: int | None, fails_at: int | None, levels: Sequence[Attainment], monotone: bool) -> str:
    if best is None:
        fewest = levels[0].agents
        why = f"not even {units.plural(fewest, 'agent')} {'meets' if fewest == 1 else 'meet'} it"
    elif fails_at is None:
        why = f"every level up to {best} meets it"
    else:
        why = f"{best} meet{'s' if best == 1 else ''} it, {fails_at} {'does' if fails_at == 1 else 'do'} not"
    shown = [level for level in levels if level.agents in (best, fails_at) and level.fraction is not None]
    parts = [
        f"{level.agents}: {units.percent(level.fraction)} of {level.requests} requests"
        f" ({units.percent(level.low)} to {units.percent(level.high)})"
        for level in shown
    ]
    text = why + (f" ({'; '.join(parts)})" if parts else "")
    return text if monotone else text + "; a larger level passes again, so this is uncertain"
