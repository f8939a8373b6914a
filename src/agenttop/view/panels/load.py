"""The load as a whole: what has gone wrong and how often, whether the client keeps up, the level, what an
analysis has found."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import Finding, Level, LoadSample
from agenttop.view.spans import Line, foreign, spread, wrap
from agenttop.view.store import Store

MANY_KINDS, FEW_KINDS = 4, 2
"""Kinds of failures that are named, with and without much room."""


def load(store: Store, width: int, most: int, *, calm: bool = True) -> list[Line]:
    """At most `most` lines. Not `calm`: only what is not as it should be, for where lines are scarce."""
    lines: list[Line] = []
    sample = store.load
    trouble = _trouble(sample, MANY_KINDS if width >= 110 else FEW_KINDS) if sample is not None else []
    if sample is not None and (trouble or (calm and _has_run(sample))):
        told = [*trouble, *_level(store), *_figures(sample)]
        lines.append(spread([[("load    ", "label"), *told[0]], *told[1:]], width, 3))
        if sample.client_limited and calm:
            reason = foreign(sample.client_limited, 200)
            lines.append([("client  ", "label"), ("is the limit: ", "bad"), (reason, "bad")])
    for finding in store.findings.values():
        lines += _finding(finding, width)
    if len(lines) > most > 0:
        lines[most - 1] = [*lines[most - 1], (" …", "label")]
    return lines[:most]


def _has_run(sample: LoadSample) -> bool:
    return bool(sample.target or sample.active or sample.turns_done)


def _trouble(sample: LoadSample, kinds: int) -> list[Line]:
    """What somebody should look at, the gravest first."""
    parts: list[Line] = []
    if sample.stalled:
        parts.append([(str(sample.stalled), "bad"), (" stalled", "label")])
    if sample.failures:
        parts.append([("fail ", "label"), (units.count(sample.failures), "bad"), *_kinds(sample, kinds)])
    if sample.unseen_in_flight:
        parts.append(
            [(units.count(sample.unseen_in_flight), "warn"), (" sent and not seen by the engine", "label")]
        )
    return parts


def _kinds(sample: LoadSample, most: int) -> Line:
    """`: stall 2, cut 1`, the most frequent first."""
    kinds = sorted(sample.failure_kinds.items(), key=lambda kind: (-kind[1], kind[0]))
    line: Line = []
    for kind, count in kinds[:most]:
        line += [(", " if line else ": ", "label"), (foreign(kind, 20), "text"), (f" {count}", "text")]
    if len(kinds) > most:
        line.append((f", {units.plural(len(kinds) - most, 'more kind')}", "label"))
    return line


def _figures(sample: LoadSample) -> list[Line]:
    """What is as it should be."""
    parts: list[Line] = [
        [("turns ", "label"), (units.count(sample.turns_done), "text")],
        [("in flight ", "label"), (units.count(sample.in_flight), "text")],
        [("compactions ", "label"), (units.count(sample.compactions), "text")],
    ]
    if not sample.failures:
        parts.append([("fail ", "label"), ("0", "text")])
    many = sample.drivers > 1
    who = f"{sample.drivers} drivers, busiest " if many else "driver "
    parts.append([(who, "label"), (units.percent(sample.cpu_fraction), "text"), (" cpu", "label")])
    parts.append([("late ", "label"), (units.seconds(sample.loop_lag_p99_s), "text"), (" p99", "label")])
    if sample.stamps is not None:
        parts.append([("stamps ", "label"), (foreign(sample.stamps, 12), "text")])
    return parts


def _level(store: Store) -> list[Line]:
    level = store.level
    if level is None or not (store.load is not None and store.load.target):
        return []
    over = level.t_end is not None and store.now > level.t_end + 5 * store.pace
    return [] if over else [level_words(level, store.now)]


def level_words(level: Level, now: float) -> Line:
    """`level 3 of 5, refine, 8 agents, 42 s left`."""
    line: Line = [("level ", "label"), (str(level.level + 1), "strong")]
    if level.of is not None:
        line.append((f" of {level.of}", "label"))
    if level.purpose:
        line.append((f", {foreign(level.purpose, 12)}", "accent"))
    line.append((f", {units.plural(level.agents, 'agent')}", "text"))
    if level.cold:
        line.append((", cold", "text"))
    if level.t_end is not None and now < level.t_end:
        line.append((f", {units.seconds(level.t_end - now)} left", "label"))
    return line


def _finding(finding: Finding, width: int) -> list[Line]:
    wrapped = wrap(foreign(finding.sentence, 400), max(10, width - 10), "text")
    if not wrapped:
        return []
    first: Line = [("found   ", "accent"), *wrapped[0]]
    return [first, *([("        ", "text"), *line] for line in wrapped[1:])]
