"""What the answers to planted facts show: verdicts by level and file, recall, and who can be told apart.

Every answer within a level counts, not only those of its steady window: a leak is no rate. Turns that
failed have no verdict, and are counted as failures elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import msgspec

from agenttop.analyse.compare import spans_of
from agenttop.analyse.material import Material
from agenttop.analyse.stats import wilson
from agenttop.model.frames import Turn

VERDICTS = ("right", "wrong-region", "leaked", "truncated", "no-answer")


class ProbeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one level, or of a whole file."""

    file: str
    level: int | None
    """From 1; 0 for answers between levels; None for the whole file."""
    agents: int | None = None
    asked: int
    """Answers with a verdict."""
    verdicts: dict[str, int]
    """How many of each, all of `VERDICTS`."""
    recall: float
    """Share of right answers."""
    recall_low: float
    recall_high: float
    """With `recall_low`: Wilson interval, 95 %."""
    details: dict[str, int] = {}
    """What was not right, word for word as recorded, and how often."""


def of_material(material: Material, name: str = "") -> list[ProbeRow]:
    """The rows of a session, levels before the whole; none where nothing was asked."""
    if all(turn.probe is None for turn in material.turns):
        return []
    spans = [(span.number, span.agents, span.start, span.end) for span in spans_of(material)]
    return rows_of(material.turns, spans, name)


def rows_of(
    turns: Sequence[Turn], spans: Sequence[tuple[int, int, float, float]], name: str = ""
) -> list[ProbeRow]:
    """Rows of the turns of one session. `spans`: (level, agents, start, end)."""
    asked = [turn for turn in turns if turn.probe is not None]
    rows = []
    rest = list(asked)
    for level, agents, start, end in spans:
        within = [turn for turn in asked if start <= turn.t < end]
        rest = [turn for turn in rest if not start <= turn.t < end]
        if within:
            rows.append(_row(within, name, level, agents))
    if rest and rows:
        rows.append(_row(rest, name, 0, None))
    if asked:
        rows.append(_row(asked, name, None, None))
    return rows


def _row(turns: Sequence[Turn], name: str, level: int | None, agents: int | None) -> ProbeRow:
    verdicts = dict.fromkeys(VERDICTS, 0)
    details: dict[str, int] = {}
    for turn in turns:
        assert turn.probe is not None
        verdicts[turn.probe] = verdicts.get(turn.probe, 0) + 1
        if turn.probe != "right":
            text = f"{turn.probe}, {turn.probe_detail}" if turn.probe_detail else turn.probe
            details[text] = details.get(text, 0) + 1
    low, high = wilson(verdicts["right"], len(turns))
    return ProbeRow(
        file=name,
        level=level,
        agents=agents,
        asked=len(turns),
        verdicts=verdicts,
        recall=verdicts["right"] / len(turns),
        recall_low=low,
        recall_high=high,
        details=dict(sorted(details.items(), key=lambda item: -item[1])),
    )


def difference(one: ProbeRow, other: ProbeRow) -> tuple[float, float]:
    """Interval of the difference of two recalls, 95 % (Newcombe 1998, method 10)."""
    apart = one.recall - other.recall
    low = math.hypot(one.recall - one.recall_low, other.recall_high - other.recall)
    high = math.hypot(one.recall_high - one.recall, other.recall - other.recall_low)
    return apart - low, apart + high


def sentences(rows: Sequence[ProbeRow]) -> list[str]:
    """Leaks first, then each pair of files: which is better, or that they could not be told apart."""
    wholes = [row for row in rows if row.level is None]
    said = [
        f"{_name(row)}: {leaks} {'answer' if leaks == 1 else 'answers'} held a number of another agent: "
        "prompts are mixed up"
        for row in wholes
        if (leaks := row.verdicts["leaked"])
    ]
    for one, other in combinations(wholes, 2):
        low, high = difference(one, other)
        counts = f"{_count(one)} and {_count(other)}"
        if one.recall == other.recall == 1:
            said.append(
                f"{_name(one)} and {_name(other)} could not be told apart: both answered every question "
                f"right ({counts}), which does not make them equal"
            )
        elif low <= 0 <= high:
            said.append(f"{_name(one)} and {_name(other)} could not be told apart ({counts} right)")
        else:
            better, worse = (one, other) if low > 0 else (other, one)
            said.append(
                f"{_name(better)} answered more of its questions right than {_name(worse)} "
                f"({_count(better)} against {_count(worse)})"
            )
    return said


def _name(row: ProbeRow) -> str:
    return Path(row.file).name or "this session"


def _count(row: ProbeRow) -> str:
    return f"{row.verdicts['right']} of {row.asked}"
