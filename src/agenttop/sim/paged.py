"""How vLLM fills its steps: decode first, prefill in chunks, one queue, preemption by recompute.

Source: vLLM V1 scheduler (`vllm/v1/core/sched/scheduler.py`), read for its rules: running requests are served
in order of arrival within a budget of tokens; a request that finds no block preempts the one that arrived
last, which goes to the head of the queue and starts over; nothing is admitted in a step that preempted.
"""

from __future__ import annotations

from collections import deque

from agenttop.sim.kv import BlockPool, Holding
from agenttop.sim.options import EngineOptions
from agenttop.sim.requests import Emission, EngineState, SimRequest, SlotState
from agenttop.sim.schedule import Counters, Sequence
from agenttop.sim.step import Batch, blocks_for


class _Paged(Sequence):
    """A request in the paged engine."""

    __slots__ = ("capacity", "holding", "order", "target")

    def __init__(self, request: SimRequest, limit: int) -> None:
        super().__init__(request, limit)
        self.holding = Holding()
        self.capacity = 0
        """Tokens its blocks have room for."""
        self.target = request.prompt_tokens
        """Tokens to compute before it decodes: after a preemption its output so far as well."""
        self.order = 0


class PagedScheduler:
    """The queue, the running requests and the pool."""

    slots: tuple[SlotState, ...] = ()

    def __init__(self, options: EngineOptions, pool_tokens: int, context_tokens: int) -> None:
        self._options = options
        self._block = options.block_tokens
        self._limit = context_tokens
        self._pool = BlockPool(pool_tokens // options.block_tokens)
        self._waiting: deque[_Paged] = deque()
        self._prefilling: list[_Paged] = []
        self._decoding: list[_Paged] = []
        self._known: dict[str, _Paged] = {}
        self._chunks: list[tuple[_Paged, int]] = []
        self._in_step: list[_Paged] = []
        self._context = 0
        """Sum of the contexts of the decoding requests."""
        self._admitted = 0
        self.counters = Counters()

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._known)

    def submit(self, request: SimRequest) -> None:
        """Queues it; it must fit the context."""
        sequence = _Paged(request, self._limit)
        self._known[request.id] = sequence
        self._waiting.append(sequence)

    def cancel(self, request_id: str) -> bool:
        """Drops it wherever it is; its full blocks stay cached."""
        sequence = self._known.pop(request_id, None)
        if sequence is None:
            return False
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        else:
            self._leave(sequence)
        return True

    def abort_all(self) -> list[str]:
        """Ends everything and empties the cache; who was in flight."""
        gone = list(self._known)
        for request_id in gone:
            self.cancel(request_id)
        self._chunks, self._in_step = [], []
        self._pool.forget()
        return gone

    def plan(self, t: float, out: list[Emission]) -> Batch:
        """Chooses the next step's tokens."""
        budget = self._options.max_num_batched_tokens
        preempted = self._make_room()
        batch = Batch(decoding=len(self._decoding), decode_context=self._context + len(self._decoding))
        budget -= batch.decoding
        self._chunks = []
        for sequence in list(self._prefilling):
            if budget <= 0:
                break
            if sequence.dead or not self._runs(sequence):
                continue  # preempted by one before it
            tokens = min(budget, sequence.target - sequence.computed)
            while not self._reserve(sequence, tokens):
                preempted = True
                if self._preempt_last() is sequence:
                    break
            else:
                self._chunk(sequence, tokens, batch)
                budget -= tokens
        if not preempted:
            self._admit(t, budget, batch, out)
        if preempted:  # some of the decoding ones are gone
            batch.decoding, batch.decode_context = len(self._decoding), self._context + len(self._decoding)
            self._chunks = [chunk for chunk in self._chunks if self._runs(chunk[0])]
        self._in_step = list(self._decoding)
        return batch

    def complete(self, t: float, out: list[Emission]) -> None:
        """The planned step is done: tokens appear, prompts advance."""
        counters, block = self.counters, self._block
        emitted, ended = 0, False
        for sequence in self._in_step:
            if sequence.dead:
                continue
            sequence.computed += 1
            sequence.output += 1
            emitted += 1
            out.append(Emission(sequence.id, t, "token", sequence.output, sequence.cached))
            if not sequence.computed % block:
                self._publish(sequence)
            if sequence.output >= sequence.end:
                ended = True
        self._context += emitted
        counters.generation += emitted
        if ended:
            for sequence in [one for one in self._in_step if not one.dead and one.output >= one.end]:
                self._finish(sequence, t, out)
        for sequence, tokens in self._chunks:
            if not sequence.dead:
                self._advance(sequence, tokens, t, out)
        self._chunks, self._in_step = [], []

    def fill(self, state: dict[str, int]) -> None:
        """Its part of an EngineState."""
        block, pool = self._block, self._pool
        state["running"] = len(self._prefilling) + len(self._decoding)
        state["waiting"] = len(self._waiting)
        state["kv_total_tokens"] = pool.blocks * block
        state["kv_used_tokens"] = pool.held * block
        state["kv_cached_tokens"] = pool.idle * block

    def _admit(self, t: float, budget: int, batch: Batch, out: list[Emission]) -> None:
        running = len(self._prefilling) + len(self._decoding)
        while self._waiting and budget > 0 and running < self._options.max_num_seqs:
            sequence = self._waiting[0]
            found = 0
            if self._options.prefix_cache:
                # The last token is always computed: its result is the first output.
                full = min((sequence.target - 1) // self._block, len(sequence.request.blocks))
                found = self._pool.match(sequence.request.blocks, full)
            cached = found * self._block
            tokens = min(budget, sequence.target - cached)
            new = blocks_for(cached + tokens, self._block) - found
            holding = self._pool.start(sequence.request.blocks, found, new)
            if holding is None:
                return
            self._waiting.popleft()
            sequence.holding = holding
            sequence.computed = cached
            sequence.capacity = len(holding) * self._block
            self._admitted += 1
            sequence.order = self._admitted
            if not sequence.started:
                sequence.started = True
                sequence.cached = cached
                self.counters.admit(sequence.prompt, cached)
                out.append(Emission(sequence.id, t, "start", 0, cached))
            self._prefilling.append(sequence)
            self._chunk(sequence, tokens, batch)
            budget -= tokens
            running += 1

    def _chunk(self, sequence: _Paged, tokens: int, batch: Batch) -> None:
        batch.add_prompt(tokens, sequence.computed)
        self._chunks.append((sequence, tokens))

    def _make_room(self) -> bool:
        """One more token for each decoding request; True when that cost another its place."""
        preempted = False
        for sequence in list(self._decoding):
            if sequence.computed < sequence.capacity:
                continue
            while self._runs(sequence) and not self._reserve(sequence, 1):
                preempted = True
                self._preempt_last()
        return preempted

    def _reserve(self, sequence: _Paged, tokens: int) -> bool:
        short = sequence.computed + tokens - sequence.capacity
        if short <= 0:
            return True
        blocks = blocks_for(short, self._block)
        if not self._pool.grow(sequence.holding, blocks):
            return False
        sequence.capacity += blocks * self._block
        return True

    def _runs(self, sequence: _Paged) -> bool:
        return sequence.capacity > 0 and not sequence.dead

    def _preempt_last(self) -> _Paged:
        """The one admitted last loses its blocks and goes back to the head of the queue."""
        last = max((*self._prefilling, *self._decoding), key=lambda one: one.order)
        self._leave(last)
        last.dead = False
        last.target = last.prompt + last.output
        last.computed = 0
        self._waiting.appendleft(last)
        self.counters.preemptions += 1
        return last

    def _leave(self, sequence: _Paged) -> None:
        """Off the running lists, blocks given back."""
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        elif sequence in self._decoding:
            self._decoding.remove(sequence)
            self._context -= sequence.computed
        self._pool.release(sequence.holding, keep=self._options.prefix_cache)
        sequence.capacity = 0
        sequence.dead = True

    def _publish(self, sequence: _Paged) -> None:
        """The blocks filled so far can be found from now on."""
        blocks, holding = sequence.request.blocks, sequence.holding
        full = min(sequence.computed // self._block, len(blocks))
        for number in range(len(holding.hashed), full):
            self._pool.publish(holding, blocks[number])
            if len(holding.hashed) == number:
                return  # another request computed the same block at the same time

    def _advance(self, sequence: _Paged, tokens: int, t: float, out: list[Emission]) -> None:
        sequence.computed += tokens
        self.counters.computed += tokens
        self._publish(sequence)
        if sequence.computed < sequence.target:
            return
        self._prefilling.remove(sequence)
        self._decoding.append(sequence)
        self._context += sequence.computed
        sequence.output += 1
        self.counters.generation += 1
        kind = "first" if sequence.output == 1 else "token"  # resumed after a preemption: it goes on
        out.append(Emission(sequence.id, t, kind, sequence.output, sequence.cached))
        if sequence.output >= sequence.end:
            self._finish(sequence, t, out)

    def _finish(self, sequence: _Paged, t: float, out: list[Emission]) -> None:
        self._leave(sequence)
        del self._known[sequence.id]
        out.append(Emission(sequence.id, t, "finish", sequence.output, sequence.cached, sequence.reason))


def state_of(t: float, context_tokens: int, counters: Counters, parts: dict[str, int],
             slots: tuple[SlotState, ...]) -> EngineState:  # fmt: skip
    """An EngineState from the counters and a scheduler's part."""
    return EngineState(
        t=t, context_limit_tokens=context_tokens, slots=slots,
        prompt_tokens_total=counters.prompt, computed_tokens_total=counters.computed,
        cached_tokens_total=counters.cached, generation_tokens_total=counters.generation,
        preemptions_total=counters.preemptions, prefix_queries_total=counters.queries,
        prefix_hits_total=counters.hits, steps_total=counters.steps, busy_s=counters.busy_s,
        prefill_s=counters.prefill_s, **parts,
    )  # fmt: skip
