"""What is derived of an engine and its GPUs now, computed once for each look, and its figures in words."""

from __future__ import annotations

from agenttop.analyse.figure import Figure
from agenttop.analyse.live import Derived, derive
from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.look import Look
from agenttop.view.simulated import gpus
from agenttop.view.spans import Line
from agenttop.view.store import Store


def derived(store: Store, engine: EngineSample, look: Look | None = None) -> Derived:
    """All of it for one engine, anew only when something has been folded."""
    kept = store.derived.get(("derived", engine.engine))
    if kept is not None and kept[0] == store.changes and isinstance(kept[1], Derived):
        return kept[1]
    found = derive(engine, gpus(store, look), store.host, store.hardware, list(store.processes.values()))
    store.derived["derived", engine.engine] = (store.changes, found)
    return found


def number(value: float) -> str:
    """Three digits that count: `0.412`, `3.14`, `87.0`, `412`."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def words(figure: Figure, text: str) -> str:
    """`≥41 %`: the value as it is to be read."""
    return f"{'≥' if figure.at_least else '≤' if figure.at_most else ''}{text}"


def joules(store: Store, engine: EngineSample, look: Look | None = None) -> Line:
    """`3.1 J/token`; nothing while that cannot be told."""
    figure = derived(store, engine, look).joules_per_token
    if figure.value is None:
        return []
    return [(words(figure, number(figure.value)), "text"), (" J/token", "label")]


def lines_of(found: Derived) -> list[tuple[str, Line, str, bool]]:
    """Name, value and evidence of each figure, and whether there is a value; else the evidence says what is
    lacking."""
    shown = (
        ("power", found.power_w, lambda value: f"{value:.0f} W"),
        ("energy", found.joules_per_token, lambda value: f"{number(value)} J/token"),
        ("tokens", found.tokens_per_joule, lambda value: f"{number(value)} tok/J"),
        ("bandwidth", found.bandwidth_fraction, lambda value: f"{units.percent(value)} of the peak"),
        ("moved", found.bandwidth_bytes_s, units.byte_rate),
        ("PCIe", found.pcie_fraction, lambda value: f"{units.percent(value)} of the link"),
    )
    lines: list[tuple[str, Line, str, bool]] = []
    for name, figure, text in shown:
        value: Line = [(units.MISSING, "dim")]
        if figure.value is not None:
            value = [(words(figure, text(figure.value)), "strong")]
        lines.append((name, value, figure.evidence, figure.value is not None))
    return lines
