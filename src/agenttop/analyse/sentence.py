"""What a report says, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from agenttop.analyse.points import LevelPoint
from agenttop.analyse.report import Capacity, Cliff, Floor, Knee
from agenttop.model import units

GROWN = 1.2
"""A wait that grew by less is not worth a word."""


def in_one_sentence(
    knee: Knee,
    cliff: Cliff,
    floor: Floor | None,
    held: Capacity | None,
    points: Sequence[LevelPoint],
    judged: Sequence[int],
) -> str:
    """Knee, cliff, capacity and floor. `judged`: the levels whose throughput was judged, in order."""
    most = points[-1].agents
    if not judged:
        why = points[-1].why_invalid or "no throughput is known"
        return f"No level can be judged, up to {_agents(most)}: {why}."
    parts = [_of_knee(knee, points, judged), _of_cliff(cliff, judged[-1])]
    if held is not None:
        parts.append(_of_capacity(held))
    if floor is not None:
        rate = units.rate(floor.decode_tok_s_per_agent)
        parts.append(f"each agent's rate stays at about {rate} tok/s from {_agents(floor.from_agents)} on")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def throttled(points: Sequence[LevelPoint]) -> str | None:
    """Which levels had GPUs whose clocks were held down, for how long and by what; None where none had."""
    words = [
        f"with {_agents(point.agents)} {point.throttled_why.removeprefix('throttled ')}"
        for point in points
        if point.throttled_why
    ]
    return f"throttled {'; '.join(words)}" if words else None


def _of_knee(knee: Knee, points: Sequence[LevelPoint], judged: Sequence[int]) -> str:
    if knee.agents is None:
        if len(judged) < 2:
            return knee.why
        maybe = f", though it may be at {knee.unconfirmed}" if knee.unconfirmed else ""
        return f"no knee up to {_agents(judged[-1])}{maybe}"
    if knee.soft_ceiling:
        first, last = points[0], points[-1]
        grown = ""
        if first.wait_s and last.wait_s and last.wait_s > GROWN * first.wait_s:
            grown = f" while the wait grows {last.wait_s / first.wait_s:.1f} times"
        levels = f"{judged[0]} to {judged[-1]}"
        return f"{_agents(knee.agents)} are the soft ceiling: from {levels} the total hardly moves{grown}"
    if knee.already_past:
        return (
            f"already past the knee at {_agents(knee.agents)}: from there on an agent more adds less than a"
            f" quarter of what {'the first one' if judged[0] == 1 else 'one of them'} brings"
        )
    around = "" if knee.low == knee.high else f" ({knee.low} to {knee.high})"
    return (
        f"the knee is at {_agents(knee.agents)}{around}: beyond it an agent more adds less than a quarter of"
        " the first one's throughput"
    )


def _of_cliff(cliff: Cliff, most: int) -> str:
    if cliff.agents is None:
        return f"no cliff up to {most}"
    between = (
        f"between {cliff.low} and {cliff.agents}" if cliff.low is not None else f"at {cliff.agents} already"
    )
    causes = {"throughput": "throughput drops"}
    return f"the cliff lies {between} ({causes.get(cliff.cause or '', cliff.cause)})"


def _of_capacity(held: Capacity) -> str:
    if held.agents is None:
        return (
            f"{held.slo}: {held.why}" if not held.levels else f"not even the smallest level meets {held.slo}"
        )
    return f"{_agents(held.agents)} meet{'s' if held.agents == 1 else ''} {held.slo}"


def _agents(number: int) -> str:
    return units.plural(number, "agent")
