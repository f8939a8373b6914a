"""The small table under `compare` that tells how planted facts were answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.commands import cells
from agenttop.model import units
from agenttop.model.text import clean, printable

if TYPE_CHECKING:
    from agenttop.analyse.probes import ProbeRow

HEADER = (
    "probes", "level", "agents", "asked", "right", "wrong region", "leaked", "truncated", "no answer",
    "recall", "95 %",
)  # fmt: skip

VERDICTS = ("right", "wrong-region", "leaked", "truncated", "no-answer")
"""In the order of the columns."""

MOST_DETAILS = 6
"""Different mistakes that are named for each file."""


def table(rows: Sequence[ProbeRow], form: str = "table") -> str:
    """The rows and what they say; empty when nothing was asked. `form`: table or markdown."""
    if not rows:
        return ""
    from agenttop.analyse.probes import sentences

    body = [_cells(row) for row in rows]
    draw = cells.markdown if form == "markdown" else cells.aligned
    before = "- " if form == "markdown" else ""
    said = [*sentences(rows), *_details(rows)]
    remarks = "".join(f"{before}{printable(text)}\n" for text in said)
    return "\n" + draw(HEADER, body, 2) + ("\n" + remarks if remarks else "")


def values(rows: Sequence[ProbeRow]) -> dict[str, Any]:
    """For JSON: nothing when nothing was asked."""
    if not rows:
        return {}
    from agenttop.analyse.probes import sentences

    return {"probes": rows, "probe_notes": sentences(rows)}


def _cells(row: ProbeRow) -> list[str]:
    level = {None: "all", 0: "between"}.get(row.level, str(row.level))
    return [
        Path(row.file).name,
        level,
        units.count(row.agents),
        str(row.asked),
        *(str(row.verdicts[verdict]) for verdict in VERDICTS),
        f"{row.recall:.3f}",
        f"{row.recall_low:.3f}–{row.recall_high:.3f}",
    ]


def _details(rows: Sequence[ProbeRow]) -> list[str]:
    """What was not right, most frequent first."""
    lines = []
    for row in rows:
        if row.level is None:
            named = list(row.details.items())[:MOST_DETAILS]
            lines += [f"{Path(row.file).name}: {count} x {clean(text, 120)}" for text, count in named]
            if len(row.details) > len(named):
                lines.append(f"{Path(row.file).name}: and {len(row.details) - len(named)} other kinds")
    return lines
