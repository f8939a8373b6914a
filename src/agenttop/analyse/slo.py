"""What users are promised, as text: `decode>=20,ttft<=10s`, with `@90%` for the share of requests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agenttop.errors import UsageError
from agenttop.model import units

ATTAINED = 0.95
"""The share of requests that must meet all conditions where the text does not say another."""

METRICS = {
    "decode": (">=", "tok/s", "decode rate of a request, tokens after the first over their time"),
    "ttft": ("<=", "s", "time from sent to the first token"),
    "wait": ("<=", "s", "time from when the turn was wanted to its last token"),
}
"""Name: direction, unit, meaning."""

HINT = "write decode>=20,ttft<=10s,wait<=60s or a part of it, with @90% at the end for the share of requests"

_CONDITION = re.compile(r"\s*([a-z]+)\s*(<=|>=|<|>|=|==)\s*([0-9.]+)\s*([a-z/]*)\s*")
_SCALES = {"s": 1.0, "sec": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "tok/s": 1.0, "tps": 1.0, "": 1.0}


@dataclass(frozen=True, slots=True)
class Condition:
    """One bound."""

    metric: str
    limit: float
    """tok/s or seconds."""

    def holds(self, value: float) -> bool:
        """Whether a request with this value meets it."""
        return value >= self.limit if METRICS[self.metric][0] == ">=" else value <= self.limit

    def __str__(self) -> str:
        direction, unit, _ = METRICS[self.metric]
        return f"{self.metric}{direction}{self.limit:g}{unit if unit == 's' else ''}"


@dataclass(frozen=True, slots=True)
class Slo:
    """All bounds, and how many requests must meet them."""

    conditions: tuple[Condition, ...]
    attained: float = ATTAINED

    def __str__(self) -> str:
        share = "" if self.attained == ATTAINED else f"@{self.attained * 100:g}%"
        return ",".join(map(str, self.conditions)) + share


def parse_slo(text: str) -> Slo:
    """The text to bounds. Raises UsageError with one sentence that says what is wrong."""
    body, at, share = text.partition("@")
    conditions: dict[str, Condition] = {}
    for part in body.split(","):
        condition = _condition(part, text)
        if condition.metric in conditions:
            raise UsageError(f"'{_short(text)}' bounds {condition.metric} twice", HINT)
        conditions[condition.metric] = condition
    return Slo(tuple(conditions.values()), _share(share, text) if at else ATTAINED)


def _condition(part: str, text: str) -> Condition:
    match = _CONDITION.fullmatch(part.lower())
    if match is None:
        raise UsageError(f"'{_short(part.strip() or text)}' is not a condition of an SLO", HINT)
    metric, sign, number, unit = match.groups()
    if metric not in METRICS:
        raise UsageError(f"an SLO knows no '{_short(metric)}'", f"it knows {', '.join(METRICS)}")
    direction, wanted, _ = METRICS[metric]
    if sign.rstrip("=") != direction.rstrip("=") and sign not in ("=", "=="):
        best = "at least" if direction == ">=" else "at most"
        raise UsageError(
            f"'{_short(part.strip())}' is the wrong way round",
            f"{metric} is promised to be {best} something: {metric}{direction}…",
        )
    if sign in ("=", "=="):
        raise UsageError(
            f"'{_short(part.strip())}' asks for one exact value", f"write {metric}{direction}{number}"
        )
    is_time = unit in ("s", "sec", "ms", "m", "min")
    if unit not in _SCALES or (unit and is_time != (wanted == "s")):
        raise UsageError(f"'{_short(unit)}' is no unit for {metric}", f"use {wanted}")
    try:
        limit = float(number) * _SCALES[unit]
    except ValueError:
        raise UsageError(f"'{_short(number)}' is not a number", HINT) from None
    if not 0 < limit <= units.LONGEST_S:
        raise UsageError(
            f"'{_short(part.strip())}' cannot be met or missed", "the bound must be above 0 and not absurd"
        )
    return Condition(metric, limit)


def _share(text: str, whole: str) -> float:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.5 <= value <= 1:
        raise UsageError(f"'{_short(whole)}' asks for no share between 50 and 100 %", "write e.g. @95%")
    return value


def _short(text: str) -> str:
    return text[:40]
