"""Stalls on the time axis: one event for all agents that stall, or move again, at the same look."""

from __future__ import annotations

from collections.abc import Iterable

from agenttop.agents.agent import Agent
from agenttop.model import units

NAMED = 3
"""So many agents are named; of more, the number."""

News = tuple[str, str, str | None, str]
"""Event, text, subject, severity."""


class Stalls:
    """Remembers which agents are stalled."""

    def __init__(self) -> None:
        self._stalled: dict[str, float] = {}
        """Agents in state stalled, and the longest silence seen: once they move again it reads as none."""

    def news(self, agents: Iterable[Agent]) -> list[News]:
        """What has changed since the last look."""
        now = {agent.name: agent for agent in agents if agent.state == "stalled"}
        if not now and not self._stalled:
            return []
        fresh = [agent for name, agent in now.items() if name not in self._stalled]
        over = {name: silent for name, silent in self._stalled.items() if name not in now}
        self._stalled = {
            name: max(agent.silent_s, self._stalled.get(name, 0.0)) for name, agent in now.items()
        }
        found: list[News] = []
        if fresh:
            longest = max(agent.silent_s for agent in fresh)
            alive = any(agent.kept_alive for agent in fresh)
            text = f"{_names([agent.name for agent in fresh])} stalled: nothing for {units.seconds(longest)}"
            how = "the engine sends keep-alives, but no token" if alive else "far longer than usual"
            found.append(("agent.stalled", f"{text}, {how}", _one(fresh[0].name, len(fresh)), "warn"))
        if over:
            text = f"{_names(list(over))} no longer stalled: {units.seconds(max(over.values()))} of silence"
            found.append(("agent.unstalled", text, _one(next(iter(over)), len(over)), "info"))
        return found


def _names(names: list[str]) -> str:
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} more"


def _one(name: str, count: int) -> str | None:
    return name if count == 1 else None
