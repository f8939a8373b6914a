"""Decode rate over agents as a chart of text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARKERS = "●○■□▲△"

WIDTH, HEIGHT = 78, 16

Points = tuple[list[float], list[float]]
Marked = tuple[str, Points]


def charts(rows: Sequence[dict[str, Any]]) -> str:
    """Two charts, what one agent gets and what all get together, with a line for each file."""
    return "\n".join(
        chart(title, series)
        for title, figure in (
            ("decode tok/s per agent (p50) over agents", "decode_tok_s_per_agent_p50"),
            ("decode tok/s of all agents together over agents", "decode_tok_s"),
        )
        if (series := _series(rows, figure))
    )


def chart(title: str, series: dict[str, Points]) -> str:
    """One chart without colours, its legend below; ends with a newline."""
    import plotext  # 30 ms, and only for --chart

    marked = list(zip(itertools.cycle(MARKERS), series.values(), strict=False))
    ticks = sorted({agents for points in series.values() for agents in points[0]})
    top = max(value for points in series.values() for value in points[1]) * 1.05
    # plotext 6 draws signals on a figure, plotext 5 has functions only.
    draw = _on_figure if hasattr(plotext, "figure") else _by_calls
    lines = str(plotext.uncolorize(draw(plotext, title, marked, ticks, top))).rstrip("\n").splitlines()
    legend = [f"  {marker} {name}" for marker, name in zip(itertools.cycle(MARKERS), series, strict=False)]
    return "".join(line.rstrip() + "\n" for line in (*lines, *legend))


def _series(rows: Sequence[dict[str, Any]], figure: str) -> dict[str, Points]:
    series: dict[str, Points] = {}
    for row in sorted(rows, key=lambda row: (row["file"], row["agents"])):
        if row[figure] is not None:
            name = f"{row['host']}, {Path(row['file']).name}"
            agents, values = series.setdefault(name, ([], []))
            agents.append(row["agents"])
            values.append(row[figure])
    return series


def _on_figure(plotext: Any, title: str, marked: list[Marked], ticks: list[float], top: float) -> str:
    figure = plotext.figure
    figure.clear()
    figure.plot_size(WIDTH, HEIGHT)
    figure.title(title)
    for marker, (agents, values) in marked:
        signal = figure.signal(agents, values, marker=marker)
        figure.draw(signal.lines() if len(agents) > 1 else signal)
    figure.ruler("x").ticks(ticks, [f"{tick:g}" for tick in ticks])
    figure.ruler("y").lim(0, top)
    return str(figure.build())


def _by_calls(plotext: Any, title: str, marked: list[Marked], ticks: list[float], top: float) -> str:
    plotext.clear_figure()
    plotext.plot_size(WIDTH, HEIGHT)
    plotext.title(title)
    for marker, (agents, values) in marked:
        plotext.plot(agents, values, marker=marker)
    plotext.xticks(ticks, [f"{tick:g}" for tick in ticks])
    plotext.ylim(0, top)
    return str(plotext.build())
