"""What both schedulers share: a request on its way, the counters, and the shape the engine drives."""

from __future__ import annotations

from typing import Protocol

from agenttop.sim.requests import Emission, SimRequest, SlotState
from agenttop.sim.step import Batch


class Sequence:
    """A request on its way through an engine."""

    __slots__ = (
        "cached",
        "computed",
        "dead",
        "end",
        "id",
        "output",
        "prompt",
        "reason",
        "request",
        "started",
    )

    def __init__(self, request: SimRequest, limit: int) -> None:
        self.request = request
        self.id = request.id
        self.prompt = request.prompt_tokens
        self.computed = 0
        """Tokens whose keys and values are in the cache."""
        self.cached = 0
        """Prompt tokens taken over from the cache when it was first taken up."""
        self.output = 0
        room = limit - request.prompt_tokens
        most = room if request.max_tokens is None else min(room, request.max_tokens)
        stops = request.stop_tokens is not None and request.stop_tokens <= most
        self.end = max(1, request.stop_tokens if stops and request.stop_tokens else most)
        """Output tokens after which it is over."""
        self.reason = "stop" if stops else "length"
        self.started = False
        self.dead = False
        """Ended, cancelled or preempted while a step that holds it is in progress."""


class Counters:
    """What an engine counts over its life."""

    def __init__(self) -> None:
        self.prompt = self.computed = self.cached = self.generation = 0
        self.preemptions = self.queries = self.hits = self.steps = 0
        self.busy_s = self.prefill_s = 0.0

    def admit(self, prompt: int, cached: int) -> None:
        """A prompt of which `cached` tokens were found."""
        self.prompt += prompt
        self.cached += cached
        self.queries += prompt
        self.hits += cached


class Scheduler(Protocol):
    """What fills the steps: the difference between the engines."""

    counters: Counters

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""

    @property
    def slots(self) -> tuple[SlotState, ...]:
        """One for each slot; empty for an engine without."""

    def submit(self, request: SimRequest) -> None:
        """Queues a request that fits."""

    def cancel(self, request_id: str) -> bool:
        """Forgets a request; False when it is not known."""

    def abort_all(self) -> list[str]:
        """Ends everything and empties the cache; who was in flight."""

    def plan(self, t: float, out: list[Emission]) -> Batch:
        """Chooses what the step that begins at `t` computes."""

    def complete(self, t: float, out: list[Emission]) -> None:
        """That step has ended at `t`."""

    def fill(self, state: dict[str, int]) -> None:
        """Puts running, waiting and the pool's figures into `state`."""
