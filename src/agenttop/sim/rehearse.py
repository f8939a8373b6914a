"""Closed-loop agents in virtual time against the simulated engine: an experiment without waiting.

    point = rehearse(host, model, EngineOptions(), agents=8, seconds=600, workload=Workload(name="busy"))

Pure: no clock, no I/O; the same seed gives the same turns.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from itertools import chain
from statistics import mean, median

import msgspec

from agenttop.model.frames import Turn
from agenttop.sim.engine import Emission, EngineState, RejectedError, SimEngine, SimRequest
from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.workload import Workload

LOOK_S = 1.0
"""How often the pool, the queue and the GPUs are looked at."""
GOLDEN = 0.6180339887
"""Multiples of the golden ratio, taken modulo 1, lie evenly for any number of them."""
RETRY_S = 1.0
"""Pause of an agent whose turn failed; its conversation starts over."""
COMPACT_PROMPT = 100
"""Tokens of the request to summarise."""


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """One level: what it showed over its window. What cannot be told is None."""

    agents: int
    window_s: float
    """Without the warm-up."""
    decode_tok_s: float
    """Output tokens of all agents over the window."""
    decode_tok_s_per_agent: float | None
    """Median over turns of the rate after the first token."""
    prefill_tok_s: float
    """Prompt tokens computed over the window."""
    prefill_busy_tok_s: float | None
    """The same over the time in which any were computed."""
    completions_per_min: float
    wait_s: float | None
    """Median from request to last token."""
    ttft_s: float | None
    turns: int
    compactions: int
    failures: int
    preemptions: int
    kv_max_fraction: float
    """Of the pool, held by requests in progress."""
    kv_pool_tokens: int
    context_mean_tokens: float | None
    prefix_hit_fraction: float | None
    running_mean: float
    waiting_max: int
    power_w: float
    """Mean of all GPUs together."""
    throttled_fraction: float
    """Of the looks: any GPU was held down."""
    frames: list[Turn] = []
    """Every turn that ended in the window."""


class _Agent:
    """One agent's conversation, as sizes and block identities."""

    def __init__(self, number: int, workload: Workload, seed: int) -> None:
        self.number, self._work = number, workload
        self._rng = random.Random(f"{seed}/{number}")
        spread = workload.fill_spread
        self._fill = 1 + spread * (2 * self._rng.random() - 1)
        self._epoch = 0
        self.context = 0
        """Tokens of the conversation."""
        self.turn = 0
        self.compacts = False
        self.prime = False
        self.output = 0

    def start(self) -> None:
        """The first message, or for a steady start a context of a random age."""
        work = self._work
        self._fresh(work.system + work.first.whole(self._rng))
        if work.steady:
            low = work.system + work.compact_to
            age = (self.number + 1) * GOLDEN % 1  # spread evenly, however many there are
            self.context = int(low + age * max(0, work.limit - low))
            self.prime = True

    def next(self, block_tokens: int) -> SimRequest:
        """The next request."""
        work, rng = self._work, self._rng
        self.turn += 1
        if self.turn > 1 and not self.compacts:
            if work.documents:
                self._fresh(work.system + work.first.whole(rng))
            else:
                self.context += max(1, round(work.input.draw(rng) * self._fill))
        self.output = work.summary if self.compacts else 1 if self.prime else work.output.whole(rng)
        prompt = self.context + (COMPACT_PROMPT if self.compacts else 0)
        return SimRequest(
            id=f"{self.number}/{self.turn}",
            blocks=self._blocks((prompt + self.output) // block_tokens, block_tokens),
            prompt_tokens=prompt,
            max_tokens=self.output,
        )

    def done(self, output: int) -> float:
        """The turn has ended; how long the agent pauses."""
        work = self._work
        self.prime = False
        if self.compacts:
            self._fresh(work.system + work.compact_to)
            self.compacts = False
        else:
            self.context += output
            expected = work.input.median * self._fill + work.output.median
            self.compacts = not work.documents and self.context + expected > work.limit
        if self.compacts:
            return 0.0
        return work.pause.draw(self._rng)

    def forget(self) -> None:
        """A turn failed: the conversation starts over."""
        self.compacts = False
        self._fresh(self._work.system + self._work.first.whole(self._rng))

    def _fresh(self, tokens: int) -> None:
        self._epoch += 1
        self.context = tokens

    def _blocks(self, blocks: int, block_tokens: int) -> Sequence[int]:
        shared = min(blocks, self._work.system // block_tokens)
        base = ((self.number + 1) << 48) | (self._epoch << 24)
        return list(chain(range(-1, -1 - shared, -1), range(base + shared, base + blocks)))


class _Level:
    """The loop of one level."""

    def __init__(self, engine: SimEngine, agents: int, workload: Workload, seed: int, warm_s: float) -> None:
        self.engine, self.workload, self.warm_s = engine, workload, warm_s
        self.agents = [_Agent(number, workload, seed) for number in range(agents)]
        self.wakes: list[tuple[float, int]] = []
        self.flying: dict[str, tuple[_Agent, float]] = {}
        self.first: dict[str, float] = {}
        self.turns: list[Turn] = []
        self.failures = 0
        self.resting = 0
        """Agents that have ended their part of a round."""
        self.before: EngineState | None = None
        self.looks: list[EngineState] = []
        self.power: list[float] = []
        self.held_down: list[bool] = []

    def run(self, seconds: float) -> None:
        """From 0 to `seconds` of simulated time."""
        for agent in self.agents:
            agent.start()
            heapq.heappush(self.wakes, (agent.number * self.workload.stagger, agent.number))
        engine, look = self.engine, LOOK_S
        while engine.now < seconds:
            step = engine.next_time()
            wake = self.wakes[0][0] if self.wakes else math.inf
            until = min(step if step is not None else math.inf, wake, look, seconds)
            for emission in engine.advance(until):
                self._hear(emission)
            while self.wakes and self.wakes[0][0] <= until:
                self._send(self.agents[heapq.heappop(self.wakes)[1]])
            if until >= look:
                look += LOOK_S
                self._look()

    def _send(self, agent: _Agent) -> None:
        request = agent.next(self.engine.block_tokens)
        self.flying[request.id] = (agent, self.engine.now)
        try:
            self.engine.submit(request)
        except RejectedError as refused:
            self._ended(Emission(request.id, self.engine.now, "error", 0, 0, refused.kind, refused.message))

    def _hear(self, emission: Emission) -> None:
        if emission.kind == "first":
            self.first[emission.request] = emission.t
        elif emission.kind in ("finish", "error"):
            self._ended(emission)

    def _ended(self, emission: Emission) -> None:
        agent, sent = self.flying.pop(emission.request)
        first = self.first.pop(emission.request, None)
        kind = "prime" if agent.prime else "compact" if agent.compacts else "turn"
        failed = emission.kind == "error"
        turn = Turn(
            t=emission.t,
            agent=f"agent-{agent.number + 1}",
            engine="simulated",
            profile=self.workload.name,
            turn=agent.turn,
            turn_kind=kind,
            t_queued=sent,
            t_sent=sent,
            t_first_byte=first,
            t_first_token=first,
            t_last_token=None if failed else emission.t,
            prompt_tokens=agent.context + (COMPACT_PROMPT if agent.compacts else 0),
            cached_tokens=emission.cached_tokens,
            output_tokens=emission.tokens,
            finish_reason=emission.reason,
            error_kind=None if not failed else "context" if emission.reason == "context" else "stream-error",
            error=emission.message,
        )
        if emission.t >= self.warm_s and kind != "prime":
            self.turns.append(turn)
            self.failures += failed
        if failed:
            agent.forget()
        pause = RETRY_S if failed else agent.done(emission.tokens)
        if not self.workload.rounds:
            heapq.heappush(self.wakes, (emission.t + pause, agent.number))
            return
        self.resting += 1
        if self.resting == len(self.agents):
            self.resting = 0
            for one in self.agents:
                heapq.heappush(self.wakes, (emission.t + pause, one.number))

    def _look(self) -> None:
        state = self.engine.state()
        if state.t < self.warm_s:
            self.before = state
            return
        if self.before is None:
            self.before = state
        self.looks.append(state)
        readings = self.engine.gpus()
        self.power.append(sum(reading.power_w or 0.0 for reading in readings))
        self.held_down.append(any(reading.throttle for reading in readings))


def rehearse(
    host: HostPreset,
    model: ModelPreset,
    options: EngineOptions,
    *,
    agents: int,
    seconds: float,
    workload: Workload,
    seed: int = 0,
    warm_s: float = 0.0,
) -> Rehearsed:
    """One level of `agents` over `seconds` of simulated time, the first `warm_s` of which do not count.

    Raises ValueError when less than two seconds are left to be looked at.
    """
    if seconds - warm_s < 2 * LOOK_S:
        raise ValueError(f"a level of {seconds} s with {warm_s} s of warm-up leaves nothing to look at")
    level = _Level(SimEngine(host, model, options, seed), agents, workload, seed, warm_s)
    level.run(seconds)
    return _summary(level, agents)


def ramp(
    host: HostPreset,
    model: ModelPreset,
    options: EngineOptions,
    *,
    levels: Sequence[int],
    seconds: float,
    workload: Workload,
    seed: int = 0,
    warm_s: float = 0.0,
) -> list[Rehearsed]:
    """One level after the other, each on a fresh engine."""
    return [
        rehearse(
            host, model, options, agents=agents, seconds=seconds, workload=workload, seed=seed, warm_s=warm_s
        )
        for agents in levels
    ]


def _summary(level: _Level, agents: int) -> Rehearsed:
    before, last = level.before, level.looks[-1]
    assert before is not None
    window = last.t - before.t
    good = [turn for turn in level.turns if turn.error_kind is None]
    busy = last.prefill_s - before.prefill_s
    computed = last.computed_tokens_total - before.computed_tokens_total
    queries = last.prefix_queries_total - before.prefix_queries_total
    held = [look.kv_used_tokens / look.kv_total_tokens for look in level.looks]
    rates = [rate for turn in good if (rate := _rate(turn)) is not None]
    return Rehearsed(
        agents=agents,
        window_s=window,
        decode_tok_s=(last.generation_tokens_total - before.generation_tokens_total) / window,
        decode_tok_s_per_agent=median(rates) if rates else None,
        prefill_tok_s=computed / window,
        prefill_busy_tok_s=computed / busy if busy else None,
        completions_per_min=60 * len(good) / window,
        wait_s=median(turn.t - (turn.t_sent or 0.0) for turn in good) if good else None,
        ttft_s=median((turn.t_first_token or 0.0) - (turn.t_sent or 0.0) for turn in good) if good else None,
        turns=len(good),
        compactions=sum(turn.turn_kind == "compact" for turn in good),
        failures=level.failures,
        preemptions=last.preemptions_total - before.preemptions_total,
        kv_max_fraction=max(held),
        kv_pool_tokens=last.kv_total_tokens,
        context_mean_tokens=mean(turn.prompt_tokens or 0 for turn in good) if good else None,
        prefix_hit_fraction=(last.prefix_hits_total - before.prefix_hits_total) / queries
        if queries
        else None,
        running_mean=mean(look.running for look in level.looks),
        waiting_max=max(look.waiting for look in level.looks),
        power_w=mean(level.power),
        throttled_fraction=mean(level.held_down),
        frames=level.turns,
    )


def _rate(turn: Turn) -> float | None:
    """Tokens after the first over the time they took."""
    if turn.t_first_token is None or turn.t_last_token is None or not turn.output_tokens:
        return None
    span = turn.t_last_token - turn.t_first_token
    return (turn.output_tokens - 1) / span if span > 0 else None
