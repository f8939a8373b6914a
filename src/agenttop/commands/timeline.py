"""A planned load drawn as text: two lines for each agent, its context and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agenttop.agents.timeline import PlannedAgent, PlannedSpan, Speeds

MARKS = {
    "prime": "P",
    "prefill": "p",
    "decode": "d",
    "compact": "C",
    "tool": "·",
    "human": "~",
    "children": "c",
}
LEGEND = (
    "p prefill  d decode  C compaction  · tool  ~ person  c waits for sub-agents  P fills its context first"
)


def draw(agents: Sequence[PlannedAgent], limit: int, for_s: float, width: int) -> list[str]:
    """Lines of at most `width` cells. `limit`: context that a full bar stands for."""
    from agenttop.model.units import seconds

    label = max(len(agent.agent) for agent in agents) + 1 if agents else 1
    cells = max(10, width - label)
    step = for_s / cells
    lines: list[str] = []
    for agent in agents:
        columns = _columns(agent.spans, cells, step)
        bars = "".join(_bar(context, limit) for context, _ in columns)
        marks = "".join(mark for _, mark in columns)
        lines += [f"{agent.agent:<{label}}{bars}".rstrip(), f"{'':<{label}}{marks}".rstrip()]
    ticks = [f"{seconds(for_s * index / 5) if index else '0':<{cells // 5}}" for index in range(5)]
    return [*lines, f"{'':<{label}}{''.join(ticks)}".rstrip()]


def _columns(spans: Sequence[PlannedSpan], cells: int, step: float) -> list[tuple[int, str]]:
    """For each column the largest context in it and the mark of what takes most of it."""
    shares: list[dict[str, float]] = [{} for _ in range(cells)]
    contexts = [0] * cells
    for span in spans:
        first, last = int(span.from_s / step), min(cells - 1, int(span.to_s / step))
        for index in range(min(first, cells), last + 1):
            inside = min(span.to_s, (index + 1) * step) - max(span.from_s, index * step)
            shares[index][span.kind] = shares[index].get(span.kind, 0.0) + max(inside, 1e-9)
            contexts[index] = max(contexts[index], span.context_tokens)
    return [
        (context, MARKS[max(share, key=lambda kind: _weight(kind, share))] if share else " ")
        for context, share in zip(contexts, shares, strict=True)
    ]


def _weight(kind: str, share: dict[str, float]) -> float:
    """A compaction shows however short it is."""
    return float("inf") if kind == "compact" else share[kind]


def _bar(context: int, limit: int) -> str:
    from agenttop.view.glyphs import EIGHTHS_UP

    return EIGHTHS_UP[min(8, -(-8 * context // max(1, limit)))] if context > 0 else " "


def totals(agents: Sequence[PlannedAgent], limit: int, for_s: float) -> str:
    """Turns and compactions of all, and the scale of the bars."""
    from agenttop.model.units import count

    turns = sum(agent.turns(for_s) for agent in agents)
    compactions = sum(agent.compactions(for_s) for agent in agents)
    return f"turns {turns}, compactions {compactions}; a full bar is a context of {count(limit)} tokens"


def about(profile: str, agents: int, seed: int, for_s: float, speeds: Speeds) -> str:
    """What the picture assumes, in a sentence."""
    from agenttop.model.units import plural, seconds

    return (
        f"{profile}: the plan of {plural(agents, 'agent')} for {seconds(for_s)} (seed {seed}), if each "
        f"had the engine for itself: prefill {speeds.prefill:g} tok/s, decode {speeds.decode:g} tok/s"
    )
