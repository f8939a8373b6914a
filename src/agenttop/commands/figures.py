"""What is printed when a run is over: its levels, and of a search the three figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenttop.model.frames import Finding
from agenttop.model.text import printable

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one recording."""

    rows: list[dict[str, Any]]
    report: dict[str, Any] | None
    """The report of `analyse.knee` where one was asked for: by a search, or with an SLO."""
    speedup: float = 1.0

    @classmethod
    def of(cls, path: Path, *, slo: str | None = None, finding: Finding | None = None) -> Figures:
        """Read from a recording; `finding` is what its search found, where that is known already."""
        from agenttop.analyse.compare import level_rows
        from agenttop.record.read import Recording

        rows = level_rows([path])
        with Recording(path) as recording:
            speedup = recording.session.speedup
            if finding is None:
                found = [one for one in recording.of(Finding) if one.what == "knee"]
                finding = found[-1] if found else None
            report = finding.report if finding is not None else None
            if report is None and slo is not None:
                report = _report(recording, slo)
        return cls(rows, report, speedup)

    @property
    def judged(self) -> bool:
        """Whether there is anything to go by."""
        if self.report is not None and "search" in self.report:
            return any(row["valid"] for row in self.rows)
        return any(row["turns"] for row in self.rows)

    def as_json(self, recording: str, failure: str | None) -> str:
        """One JSON object."""
        import msgspec

        out: dict[str, Any] = {"schema": SCHEMA, "recording": recording, "levels": self.rows}
        if self.report is not None:
            out["knee"] = self.report
        out["failure"] = failure
        return msgspec.json.format(msgspec.json.encode(out), indent=2).decode() + "\n"

    def as_text(self) -> str:
        """The table, then the three figures."""
        from agenttop.commands.compare import render

        text = render(self.rows, "table")
        if self.report:
            text += "\n" + three_figures(self.report)
        if self.speedup != 1.0:
            text += f"\nall times are simulated: {self.speedup:g} times faster than life\n"
        return text


def three_figures(report: dict[str, Any]) -> str:
    """Knee, cliff and capacity, each with its interval and its reason; then the sentence."""
    lines = []
    for name in ("knee", "cliff", "capacity"):
        part = report.get(name)
        if part:
            lines.append(f"{name:<9} {_figure(name, part)}")
            lines.append(f"{'':<9} {part['why']}")
    sentence = report.get("sentence")
    search = report.get("search") or {}
    if sentence:
        lines += ["", sentence]
    if search.get("cut_short"):
        lines.append(f"the search was cut short: {search['ended']}")
    return printable("\n".join(lines)) + "\n"


def _figure(name: str, part: dict[str, Any]) -> str:
    agents = part.get("agents")
    if agents is None:
        return "none found"
    text = "1 agent" if agents == 1 else f"{agents} agents"
    low, high = part.get("low"), part.get("high")
    if name == "cliff":
        between = f"above {low} and at most {agents}" if low is not None else ""
        return ", ".join(filter(None, [text, between, part.get("cause")]))
    if name == "capacity":
        return f"{text} hold {part['slo']}" if agents != 1 else f"{text} holds {part['slo']}"
    return f"{text} ({low} to {high})" if low is not None and high is not None else text


def _report(recording: Any, slo: str) -> dict[str, Any] | None:
    from agenttop.analyse.knee import of_recording

    report = of_recording(recording, slo=slo)
    return report.as_json() if report is not None else None
