"""Which agent a slot serves, told from counts alone. Pure.

llama.cpp does not name the request a slot works on. But a slot shows how many tokens it holds and
how many of them it has decoded, and the difference is the prompt size of its request, which the agent
knows exactly from the engine's own reply. A pair is made only when exactly one slot and one agent fit
each other; two agents with the same prompt size stay unjoined rather than guessed, until their
sizes part. A pair holds for as long as the slot keeps its task and the agent its turn.
"""

from __future__ import annotations

import msgspec

from agenttop.model.frames import AgentSample, SlotSample

IN_FLIGHT = frozenset({"prefill", "decode", "stalled", "compact", "prime"})

SLACK_TOKENS = 2
"""The slot's two counters are read between steps of the engine: they may be this far apart."""


class _Pair(msgspec.Struct, frozen=True):
    agent: str
    turn: tuple[int, int]
    """(turn, compactions): a new request of the agent has another one."""


class Joiner:
    """Remembers the pairs of one engine from poll to poll."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def join(self, slots: list[SlotSample], agents: list[AgentSample]) -> list[SlotSample]:
        """The slots, each with its agent where that is beyond doubt."""
        in_flight = {agent.agent: agent for agent in agents if agent.state in IN_FLIGHT}
        kept: dict[tuple[int, int], _Pair] = {}
        for slot in slots:
            key = _key(slot)
            pair = self._pairs.get(key) if key else None
            if key and pair and (agent := in_flight.get(pair.agent)) and _request(agent) == pair.turn:
                kept[key] = pair
        self._pairs = kept | self._new_pairs(slots, in_flight, kept)
        by_slot = {key[0]: pair.agent for key, pair in self._pairs.items()}
        return [
            msgspec.structs.replace(slot, agent=by_slot[slot.slot]) if slot.slot in by_slot else slot
            for slot in slots
        ]

    def slot_of(self, agent: AgentSample) -> int | None:
        """The slot that serves the agent's request, where that is beyond doubt."""
        if agent.state not in IN_FLIGHT:
            return None
        pair = _Pair(agent.agent, _request(agent))
        return next((slot for (slot, _task), known in self._pairs.items() if known == pair), None)

    @staticmethod
    def _new_pairs(
        slots: list[SlotSample],
        in_flight: dict[str, AgentSample],
        kept: dict[tuple[int, int], _Pair],
    ) -> dict[tuple[int, int], _Pair]:
        taken = {pair.agent for pair in kept.values()}
        free_agents = [agent for name, agent in in_flight.items() if name not in taken]
        free_slots = [slot for slot in slots if (key := _key(slot)) and key not in kept]
        fits = {slot.slot: [agent for agent in free_agents if _fits(slot, agent)] for slot in free_slots}
        claims: dict[str, int] = {}
        for agents in fits.values():
            for agent in agents:
                claims[agent.agent] = claims.get(agent.agent, 0) + 1
        pairs: dict[tuple[int, int], _Pair] = {}
        for slot in free_slots:
            agents = fits[slot.slot]
            key = _key(slot)
            if key and len(agents) == 1 and claims[agents[0].agent] == 1:
                pairs[key] = _Pair(agents[0].agent, _request(agents[0]))
        return pairs


def _key(slot: SlotSample) -> tuple[int, int] | None:
    if slot.phase == "idle" or slot.task is None:
        return None
    return (slot.slot, slot.task)


def _request(agent: AgentSample) -> tuple[int, int]:
    return (agent.turn, agent.compactions)


def _fits(slot: SlotSample, agent: AgentSample) -> bool:
    if slot.phase == "prefill" and slot.cached_tokens and agent.cached_tokens == slot.cached_tokens:
        # Some builds count the prompt up while they prefill; what came from the cache both sides know.
        return True
    if slot.context_tokens is None or slot.decoded_tokens is None or agent.prompt_tokens is None:
        return False
    return abs(slot.context_tokens - slot.decoded_tokens - agent.prompt_tokens) <= SLACK_TOKENS
