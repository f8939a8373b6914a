"""Profiles for tests: short pauses, small sizes."""

from __future__ import annotations

from typing import Any

from agenttop.agents.check import parse
from agenttop.agents.settings import Profile

TEXT = """
description = "for tests"
agents = 2
[start]
kind = "at-once"
[context]
limit = {limit}
system = {system}
first = {first}
[turn]
input = {input}
output = {output}
[compaction]
to_fraction = {to_fraction}
summary = {summary}
[pacing]
tool_pause_s = {pause}
[request]
queue_s = {queue_s}
stall_s = {stall_s}
"""

DEFAULTS: dict[str, Any] = {
    "limit": 1500,
    "system": 100,
    "first": 100,
    "input": 60,
    "output": 40,
    "to_fraction": 0.3,
    "summary": 30,
    "pause": 0,
    "queue_s": 30,
    "stall_s": 30,
}


def profile(*, sets: dict[str, str] | None = None, **changes: Any) -> Profile:
    """A profile with every size constant; values as they are written in TOML. `sets`: as with --set."""
    made, problems = parse(TEXT.format(**(DEFAULTS | changes)), "test", sets)
    assert made is not None, problems
    return made
