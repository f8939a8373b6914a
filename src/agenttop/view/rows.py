"""The table of slots joined with agents: which rows there are and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agenttop.model.frames import AgentSample, EngineSample, SlotSample
from agenttop.view.look import SORTS, Look
from agenttop.view.store import Store, slot_subject

STOPPED_S = 5.0
"""A stopped agent stays in sight this long."""

MANY = 32
"""From so many rows on, slots that serve somebody stand before those that are idle."""

SILENT_STATES = ("down", "starting", "unauthorised", "unsupported")
"""States of an engine in which what is known of its slots is of the past."""


@dataclass(frozen=True, slots=True)
class Row:
    """A slot, an agent, or both where the agent's conversation is in the slot."""

    key: str
    """Stays the same while the row is about the same thing."""
    slot: SlotSample | None
    agent: AgentSample | None
    depth: int = 0
    """1 for a sub-agent that stands below the agent it works for."""

    @property
    def subject(self) -> str:
        """Under which name the row's rate is kept in the store."""
        if self.agent is not None:
            return self.agent.agent
        assert self.slot is not None
        return slot_subject(self.slot.engine, self.slot.slot)

    @property
    def state(self) -> str:
        """The agent's state, else the slot's phase."""
        if self.agent is not None:
            return self.agent.state
        assert self.slot is not None
        return self.slot.phase

    @property
    def context_tokens(self) -> int | None:
        """Of the agent's conversation, else of what the slot holds."""
        if self.agent is not None and self.agent.context_tokens is not None:
            return self.agent.context_tokens
        return self.slot.context_tokens if self.slot is not None else None

    @property
    def decode_tok_s(self) -> float | None:
        """Rate of the request in progress."""
        if self.agent is not None:
            return self.agent.decode_tok_s
        return self.slot.decode_tok_s if self.slot is not None else None


def engine_in_focus(store: Store, look: Look | None = None) -> EngineSample | None:
    """The engine the picture is about: chosen, else the load's, else one the user named, else the one shown
    last, else the first that serves.

    One that is away for a while stays in focus; one that is gone for good gives way, and comes back into it
    when it comes back.
    """
    engines = store.engines
    candidates = [
        look.engine if look else None,
        store.load.engine if store.load else None,
        store.plan.engine if store.plan else None,
        *(store.session.urls if store.session else ()),
        look.shown if look else None,
    ]
    for url in candidates:
        if url is not None and url in engines:
            return engines[url]
    return min(engines.values(), key=_by_promise, default=None)


def _by_promise(engine: EngineSample) -> tuple[bool, bool, bool, str]:
    """One that serves first; one with figures of its own before the silent, and before a front."""
    silent = engine.running is None and engine.decode_tok_s is None
    return (engine.state != "ok", silent, engine.front, engine.engine)


def rows(store: Store, look: Look) -> list[Row]:
    """All rows for the engine in focus, sorted as the user wishes.

    The standing order keeps agents in the order of their numbers, whatever slot serves them, and
    then the slots that hold no agent: rows do not jump while agents come and go between slots.
    """
    engine = engine_in_focus(store, look)
    url = engine.engine if engine else None
    agents = {
        agent.agent: agent
        for agent in store.agents.values()
        if (url is None or agent.engine == url) and not (agent.state == "stopped" and _has_left(store, agent))
    }
    slots: list[SlotSample] = []
    if engine is not None and engine.state not in SILENT_STATES:
        slots = [slot for (owner, _), slot in store.slots.items() if owner == url]
    held: dict[str, SlotSample] = {}
    free: list[SlotSample] = []
    for slot in sorted(slots, key=lambda slot: slot.slot):
        agent = store.holder(slot.engine, slot.slot)
        if agent in agents and agent not in held:
            held[agent] = slot
        else:
            free.append(slot)
    joined = [
        Row(f"agent:{agent.agent}", held.get(agent.agent), agent, depth)
        for agent, depth in _families(agents, by_parent=look.sort == SORTS[0])
    ]
    joined += [Row(f"slot:{slot.slot}", slot, None) for slot in free]
    return _sorted(joined, look.sort)


def _has_left(store: Store, agent: AgentSample) -> bool:
    """A stopped agent stays in sight for a while; a sub-agent that has done its work leaves at once."""
    return agent.parent is not None or store.now - agent.state_since > STOPPED_S * store.pace


def _families(agents: Mapping[str, AgentSample], *, by_parent: bool) -> list[tuple[AgentSample, int]]:
    """The agents in their standing order with their depth: sub-agents right below the one they work for.

    In another order than the standing one, families are torn apart and nobody is indented.
    """
    ordered = sorted(agents.values(), key=_standing)
    if not by_parent:
        return [(agent, 0) for agent in ordered]
    children: dict[str, list[AgentSample]] = {}
    for agent in ordered:
        if agent.parent in agents and agent.parent != agent.agent:
            children.setdefault(str(agent.parent), []).append(agent)
    below = {child.agent for each in children.values() for child in each}
    placed: list[tuple[AgentSample, int]] = []
    for agent in ordered:
        if agent.agent not in below:
            placed.append((agent, 0))
            placed += [(child, 1) for child in children.pop(agent.agent, ())]
    # Whoever is left works for a sub-agent, or two for each other.
    return placed + [(child, 1) for each in children.values() for child in each]


def _sorted(joined: list[Row], order: str) -> list[Row]:
    if order == "slot":
        return sorted(joined, key=lambda row: row.slot.slot if row.slot is not None else 1 << 30)
    if order == "context":
        return sorted(joined, key=lambda row: -(row.context_tokens or 0))
    if order == "rate":
        return sorted(joined, key=lambda row: -(row.decode_tok_s or 0.0))
    return sorted(joined, key=quiet) if len(joined) > MANY else joined


def _standing(agent: AgentSample) -> tuple[bool, tuple[int, str]]:
    """By number; those that have stopped make room for those that live."""
    return (agent.state == "stopped", _natural(agent.agent))


def _natural(name: str) -> tuple[int, str]:
    """a2 before a10."""
    return (len(name), name)


def quiet(row: Row) -> bool:
    """A slot that serves nobody: many of them may be summed up in one line."""
    return row.agent is None and row.state == "idle"
