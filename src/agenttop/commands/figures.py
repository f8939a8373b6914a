"""What is printed when a run is over: its levels, and of a search the three figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.model import units
from agenttop.model.frames import Finding
from agenttop.model.text import printable

if TYPE_CHECKING:
    from agenttop.analyse.points import LevelPoint

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one recording."""

    rows: list[dict[str, Any]]
    report: dict[str, Any] | None
    """The report of `analyse.knee` where one was asked for: by a search, or with an SLO."""
    points: Sequence[LevelPoint] = ()
    """The levels of the report."""
    speedup: float = 1.0
    requests: int = 0
    """That have ended, well or badly."""

    @classmethod
    def of(cls, path: Path, *, slo: str | None = None, finding: Finding | None = None) -> Figures:
        """Read from a recording; `finding` is what its search found, where that is known already."""
        import msgspec

        from agenttop.analyse.compare import rows_of
        from agenttop.analyse.material import of_recording
        from agenttop.analyse.points import points_of
        from agenttop.record.read import Recording

        with Recording(path) as recording:
            material = of_recording(recording)
            found = [one for one in recording.of(Finding) if one.what == "knee"]
        rows = rows_of(material, str(path))
        points = points_of(material, rows)
        finding = finding or (found[-1] if found else None)
        report = finding.report if finding is not None else None
        if report is None and slo is not None:
            report = _report(points, slo)
        plain = [msgspec.to_builtins(row) for row in rows]
        return cls(plain, report, points, material.session.speedup, len(material.turns))

    @property
    def judged(self) -> bool:
        """Whether there is anything to go by."""
        if self.report is not None and "search" in self.report:
            return any(row["valid"] for row in self.rows)
        return any(row["turns"] for row in self.rows)

    @property
    def empty(self) -> bool:
        """There is nothing to print figures of."""
        return self.requests == 0

    def as_json(self, recording: str, failure: str | None) -> str:
        """One JSON object."""
        from agenttop.commands.cells import json_text

        out: dict[str, Any] = {"schema": SCHEMA, "recording": recording, "levels": self.rows}
        if self.report is not None:
            out["knee"] = self.report
        out["failure"] = failure
        return json_text(out)

    def as_text(self) -> str:
        """The table of levels, then the three figures and what became of the search."""
        from agenttop.commands.compare import render, target

        file = self.rows[0]["file"] if self.rows else ""
        said = {file: self.report["sentence"]} if self.report and "sentence" in self.report else {}
        text = render(self.rows, "table", points={file: self.points}, sentences=said)
        if self.report and "sentence" in self.report:
            text += "\n" + _in_words(self.report, self.points)
        search = (self.report or {}).get("search")
        if search:
            text += "\n" + printable(_search(search)) + "\n"
        targets = list(dict.fromkeys(target(row) for row in self.rows if row["engine"]))
        if len(targets) == 1:  # of several the table has told
            text += f"\nload went to {targets[0]}\n"
        if self.speedup != 1.0:
            text += f"\nall times are simulated: {self.speedup:g} times faster than life\n"
        return text


def _in_words(report: dict[str, Any], points: Sequence[LevelPoint]) -> str:
    import msgspec

    from agenttop.analyse.report import KneeReport
    from agenttop.commands.knee_text import report_text

    return report_text(msgspec.convert(report, KneeReport), points, chart=False)


def _search(search: dict[str, Any]) -> str:
    took = f"{units.plural(search['levels'], 'level')} in {units.seconds(search['spent_s'])}"
    if search["ended"] is None:
        return f"the search was stopped after {took}"
    how = "cut short" if search["cut_short"] else "over"
    return f"the search is {how} after {took}: {search['ended']}"


def _report(points: Sequence[LevelPoint], slo: str) -> dict[str, Any] | None:
    from agenttop.analyse import knee

    return knee.analyse(points, slo=slo).as_json() if points else None
