"""A report on knee and cliff for a terminal: the figures in words, the levels, a chart."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agenttop.commands import cells
from agenttop.model import units
from agenttop.model.text import printable

if TYPE_CHECKING:
    from agenttop.analyse.points import LevelPoint
    from agenttop.analyse.report import KneeReport

WIDTH = 100

TITLES = {"decode_tok_s": "decode tok/s", "completions_per_min": "completions/min"}


def report_text(
    report: KneeReport, points: Sequence[LevelPoint], *, chart: bool = True, simulated: str | None = None
) -> str:
    """The whole of it; ends with a newline. `points` are those the report was made of.

    `simulated`: the host and speed of an engine that was none, said before anything else.
    """
    from agenttop.analyse.pool import merged

    levels = merged(points)
    told = f"SIMULATED {simulated}: nothing here was measured" if simulated is not None else None
    parts = [
        *([_wrapped(told)] if told else []),
        _wrapped(report.sentence),
        _levels(report, levels),
        _figures(report),
    ]
    if chart and (drawn := _chart(report, levels)):
        parts.insert(len(parts) - 1, drawn)
    return "\n".join(parts)


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(printable(text), WIDTH, initial_indent=first, subsequent_indent=rest) + "\n"


def _levels(report: KneeReport, levels: Sequence[LevelPoint]) -> str:
    gains = {step.end: step.gain_fraction for step in report.steps}
    held = {level.agents: level for level in report.capacity.levels} if report.capacity else {}
    header = ["agents", TITLES[report.measure], "each more adds", "tok/s/agent", "prefill tok/s", "wait"]
    header += ["KV in use", "preempt", *(["SLO met"] if held else []), ""]
    rows = []
    for level in levels:
        value = getattr(level, report.measure)
        gain = gains.get(level.agents)
        row = [
            str(level.agents),
            units.rate(value) if report.measure == "decode_tok_s" or value is None else f"{value:.3g}",
            "nothing" if gain is not None and gain < 0 else units.percent(gain),
            units.rate(level.decode_tok_s_per_agent),
            units.rate(level.prefill_tok_s),
            units.seconds(level.wait_s),
            units.percent(level.kv_max_fraction),
            units.count(level.preemptions),
        ]
        if held:
            met = held.get(level.agents)
            share = units.percent(met.fraction) if met and met.fraction is not None else None
            row.append(share or (units.MISSING if met is None else "yes" if met.passes else "no"))
        rows.append([*row, _mark(report, level)])
    kept = [i for i, name in enumerate(header) if name == "" or any(row[i] != units.MISSING for row in rows)]
    return cells.aligned([header[i] for i in kept], [[row[i] for i in kept] for row in rows], 0)


def _mark(report: KneeReport, level: LevelPoint) -> str:
    marks = []
    if level.agents == report.knee.agents:
        marks.append("soft ceiling" if report.knee.soft_ceiling else "knee")
    if level.agents == report.cliff.agents:
        marks.append("cliff")
    if report.capacity is not None and level.agents == report.capacity.agents:
        marks.append("capacity")
    if not level.valid:
        marks.append("not valid")
    return ", ".join(marks)


def _figures(report: KneeReport) -> str:
    knee, cliff, opinion = report.knee, report.cliff, report.knee.second_opinion
    agree = {True: "agrees", False: "disagrees", None: "was not asked"}[opinion.agrees]
    lines = [
        ("knee", f"{_with_range(knee.agents, knee.low, knee.high)}: {knee.why}"),
        ("", f"second opinion {agree}: {opinion.why}"),
        ("cliff", f"{cliff.agents if cliff.agents is not None else 'none'}: {cliff.why}"),
    ]
    if cliff.predicted is not None and cliff.predicted.agents is not None:
        lines.append(("", f"predicted: {cliff.predicted.agents} fit ({cliff.predicted.why})"))
    if report.capacity is not None:
        held = report.capacity
        best = held.agents if held.agents is not None else "none"
        lines.append(("capacity", f"{best} at {held.slo}: {held.why}"))
    if report.floor is not None:
        rate = units.rate(report.floor.decode_tok_s_per_agent)
        lines.append(
            ("floor", f"{rate} tok/s per agent from {units.plural(report.floor.from_agents, 'agent')} on")
        )
    lines.append(("scaling", _scaling(report)))
    if report.noise_fraction is not None:
        sources = {
            "assumed": "assumed: too few levels to tell",
            "curve": "by the scatter of the levels about a smooth curve",
            "requests": "by drawing the requests of each level again",
            "repetitions": "by levels measured more than once",
        }
        lines.append(("noise", f"{units.percent(report.noise_fraction)}, {sources[report.noise_from]}"))
    if report.throttled is not None:
        lines.append(("GPUs", report.throttled))
    lines += [("left out", text) for text in report.left_out]
    return "".join(_wrapped(text, f"{name:<10}", " " * 10) for name, text in lines)


def _with_range(agents: int | None, low: int | None, high: int | None) -> str:
    if agents is None:
        return "none"
    return f"{agents}" if low == high else f"{agents} ({low} to {high})"


def _scaling(report: KneeReport) -> str:
    law = report.scaling
    if law.serial_fraction is None or law.crosstalk is None:
        return f"not told: {law.why}"
    peak = f", highest at {law.peak_agents:.0f}" if law.peak_agents is not None else ""
    serial = units.percent(law.serial_fraction)
    return f"serial {serial}, crosstalk {law.crosstalk:.2g} per pair{peak} (universal law, {law.why})"


def _chart(report: KneeReport, levels: Sequence[LevelPoint]) -> str:
    from agenttop.commands.chart import chart

    known = [
        (float(level.agents), float(value))
        for level in levels
        if level.valid and (value := getattr(level, report.measure)) is not None
    ]
    if len(known) < 2:
        return ""
    title = TITLES[report.measure]
    series = {title: ([n for n, _ in known], [value for _, value in known])}
    knee = "soft ceiling" if report.knee.soft_ceiling else "knee"
    for name, agents in ((knee, report.knee.agents), ("cliff", report.cliff.agents)):
        at = [(n, value) for n, value in known if n == agents]
        if at:
            series[f"{name}: {units.plural(int(at[0][0]), 'agent')}"] = ([at[0][0]], [at[0][1]])
    return chart(f"{title} over agents", series)
