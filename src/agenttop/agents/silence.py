"""When silence is a stall: against what this agent, and the others on its engine, are used to.

A hard limit (`agents.client`) ends a request; long before that the screen should say that something is
wrong. How long an engine is silent depends on its speed, on the prompt and on who else is served, so the
measure is the past: the time to the first token of earlier prompts, scaled to this one's size, and the
longest gaps within earlier replies. And the present: one that waits behind the prompts of other agents is
queued, and where an engine stops to decode while it reads a long prompt, everyone who decodes is silent.
All times are session seconds.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from agenttop.agents.reply import Reply

KEEP_ALIVE_FACTOR = 3.0
"""An engine that sends keep-alives lives, and gets this much more time; without tokens that, too, ends."""

FIRST_UNKNOWN_S = 60.0
FIRST_FLOOR_S = 10.0
FIRST_TIMES = 4.0
"""Before the first token: so many times the longest it took for a prompt of this size; at least the floor."""

NEXT_UNKNOWN_S = 30.0
NEXT_FLOOR_S = 10.0
NEXT_TIMES = 4.0
"""Between tokens: so many times the longest gap within the replies before and this one; at least the floor.
llama.cpp computes a batch of another slot's prompt between two tokens: seconds, with a long context."""

LEAST_S = min(FIRST_FLOOR_S, NEXT_FLOOR_S)
"""Silence shorter than this needs no thought."""

REAL_FLOOR_S = 1.0
"""No shorter silence than this of real time is a stall, however fast a simulated engine runs."""

REMEMBERED, REMEMBERED_OF_ALL = 8, 64
"""Replies of one agent, and of a whole load."""

LOOKED_AT = 20_000
"""Gaps of a reply that are looked at: about a millisecond, which may not hold up the loop for longer."""


class Habit:
    """What is usual for one agent, or for all of a load (`shared`), asked where an agent has no past."""

    def __init__(self, rate: float = 1.0, shared: Habit | None = None) -> None:
        self._floor = REAL_FLOOR_S * rate
        self._shared = shared
        remembered = REMEMBERED if shared is not None else REMEMBERED_OF_ALL
        self.firsts: deque[tuple[int, float]] = deque(maxlen=remembered)
        """Prompt tokens and time to the first token."""
        self.gaps: deque[float] = deque(maxlen=remembered)
        self.flying: list[Reply] = []
        """Of a whole load: the requests under way."""

    def began(self, reply: Reply) -> None:
        """A request is under way, and the others of its load are looked at beside it."""
        if self._shared is not None:
            self._shared.flying.append(reply)

    def ended(self, reply: Reply) -> None:
        """Learn from a whole reply. What went wrong is no habit."""
        if self._shared is not None and reply in self._shared.flying:
            self._shared.flying.remove(reply)
        if reply.failed or reply.t_sent is None or reply.t_first_token is None:
            return
        first = (max(1, reply.prompt_tokens or 1), reply.t_first_token - reply.t_sent)
        longest = _longest_gap(reply)
        for habit in (self, self._shared):
            if habit is not None:
                habit.firsts.append(first)
                if longest is not None:
                    habit.gaps.append(longest)

    def allowed_s(self, reply: Reply, prompt_tokens: int | None, now: float) -> float:
        """How long nothing may move in this request before it counts as stalled."""
        if reply.t_first_token is None:
            allowed = max(FIRST_FLOOR_S, self._first_s(prompt_tokens), self._queue_s(reply, now))
        else:
            allowed = max(NEXT_FLOOR_S, self._gap_s(reply), self._blocked_s(reply))
        allowed = max(allowed, self._floor)
        alive = reply.t_alive > reply.t_moved and now - reply.t_alive < allowed
        return allowed * KEEP_ALIVE_FACTOR if alive else allowed

    def _others(self, reply: Reply) -> list[Reply]:
        """Requests of the load that have been sent."""
        flying = self._shared.flying if self._shared is not None else []
        return [other for other in flying if other is not reply and other.t_sent is not None]

    def _queue_s(self, reply: Reply, now: float) -> float:
        """While others get on, a request is queued: behind their prompts, or for a slot one of them has."""
        others = self._others(reply)
        if not any(now - other.t_moved < max(LEAST_S, self._floor) for other in others):
            return 0.0
        return FIRST_UNKNOWN_S * (1 + len(others))

    def _blocked_s(self, reply: Reply) -> float:
        """While prompts are read and nobody gets a token, it may be the prompts that hold this one up."""
        others = self._others(reply)
        decoding = [other for other in others if other.t_first_token is not None]
        if len(decoding) == len(others) or any(other.t_moved > reply.t_moved + LEAST_S for other in decoding):
            return 0.0
        assert self._shared is not None
        return max((ttft for _, ttft in self._shared.firsts), default=FIRST_UNKNOWN_S)

    def _first_s(self, prompt_tokens: int | None) -> float:
        past = [*self.firsts, *(self._shared.firsts if self._shared is not None else [])]
        if not past:
            return FIRST_UNKNOWN_S
        size = max(1, prompt_tokens or 1)
        return FIRST_TIMES * max(ttft * max(1.0, size / tokens) for tokens, ttft in past)

    def _gap_s(self, reply: Reply) -> float:
        past = [*self.gaps, *(self._shared.gaps if self._shared is not None else [])]
        here = _longest_gap(reply)
        known = NEXT_TIMES * max([*past, here or 0.0])
        return known if past else max(known, NEXT_UNKNOWN_S)


def _longest_gap(reply: Reply) -> float | None:
    """Between two events of a reply, in seconds."""
    arrivals = reply.arrivals
    if len(arrivals) < 2:
        return None
    step = max(1, len(arrivals) // LOOKED_AT)
    # Every step-th pair of neighbours: a reply of 100,000 events must not hold up the loop.
    pairs = zip(islice(arrivals, 0, None, step), islice(arrivals, 1, None, step), strict=False)
    return max(later - earlier for earlier, later in pairs) / 1e6
