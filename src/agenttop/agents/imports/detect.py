"""Which format a file has, from its first objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from agenttop.agents.imports import aiperf, claude_code, mooncake, openai_chat, sharegpt, weka
from agenttop.agents.imports.source import Report, Source

CHECKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "weka": weka.looks_like,
    "claude-code": claude_code.looks_like,
    "mooncake": mooncake.looks_like,
    "aiperf": aiperf.looks_like,
    "sharegpt": sharegpt.looks_like,
    "openai": openai_chat.looks_like,
}
"""In this order: what one format allows as an extra may be the mark of a later one."""

NAMES = tuple(CHECKS)

LOOKED_AT = 50
"""Objects; a log may begin with lines that could be anything."""


def detect(path: Path) -> str | None:
    """The name of the format, or None when none fits. Raises AgenttopError when the file cannot be opened."""
    votes = dict.fromkeys(NAMES, 0)
    with closing(Source(path, Report()).values()) as values:
        for _, value in islice(values, LOOKED_AT):
            for name, fits in CHECKS.items():
                if fits(value):
                    votes[name] += 1
                    break
    best = max(NAMES, key=lambda name: votes[name])
    return best if votes[best] else None
