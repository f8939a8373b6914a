"""How llama.cpp fills its iterations: slots, and one batch they all share.

Source: llama.cpp `tools/server/server-context.cpp`, read for its rules: every iteration first takes one
token of each generating slot, then prompt tokens of the slots in order until the batch (`n_batch`) is full;
nothing moves until the whole batch is computed. A free slot is chosen by the longest common prefix, else the
one unused longest; what a slot holds stays after its request. With a unified cache, idle slots are cleared
when room runs out, and then everything in flight fails together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Listing

from agenttop.sim.options import EngineOptions
from agenttop.sim.requests import Emission, SimRequest, SlotState
from agenttop.sim.schedule import Counters, Sequence
from agenttop.sim.step import Batch

SIMILARITY = 0.1
"""Share of the prompt a slot's cache must match to be preferred (`--slot-prompt-similarity`)."""
NO_ROOM = "Context size has been exceeded."


class _Slot:
    """One slot and what its cache holds."""

    __slots__ = ("blocks", "cached", "decoded", "held", "processed", "sequence", "task", "used")

    def __init__(self) -> None:
        self.sequence: Sequence | None = None
        self.blocks: Listing[int] = ()
        """Identities of the blocks it holds, as far as full."""
        self.held = 0
        self.task: int | None = None
        self.used = 0
        """When it was last taken or left, as a count; the smallest was unused longest."""
        self.cached = self.processed = self.decoded = 0

    def common(self, blocks: Listing[int], block_tokens: int) -> int:
        """Leading tokens it holds of a prompt, in whole blocks."""
        most = min(self.held // block_tokens, len(self.blocks), len(blocks))
        if most and self.blocks[most - 1] == blocks[most - 1]:
            return most * block_tokens  # identities are chained: equal at the end is equal throughout
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks[middle - 1] == blocks[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low * block_tokens

    def clear(self) -> None:
        """Forgets what it holds."""
        self.held, self.blocks = 0, ()


class SlotScheduler:
    """The queue and the slots."""

    def __init__(self, options: EngineOptions, pool_tokens: int, context_tokens: int) -> None:
        self._options = options
        self._limit = context_tokens
        self._pool = pool_tokens
        self._waiting: deque[Sequence] = deque()
        self._slots = [_Slot() for _ in range(options.slots)]
        self._chunks: list[tuple[_Slot, int]] = []
        self._decoding: list[_Slot] = []
        self._room = True
        self._tasks = 0
        self._uses = 0
        self.counters = Counters()

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._waiting) or any(slot.sequence for slot in self._slots)

    @property
    def slots(self) -> tuple[SlotState, ...]:
        """Every slot as `/slots` would tell."""
        return tuple(self._slot_state(number, slot) for number, slot in enumerate(self._slots))

    def submit(self, request: SimRequest) -> None:
        """Queues it; it must fit a slot."""
        self._waiting.append(Sequence(request, self._limit))

    def cancel(self, request_id: str) -> bool:
        """Drops it from the queue or its slot, which keeps what it has computed."""
        for waiting in self._waiting:
            if waiting.id == request_id:
                self._waiting.remove(waiting)
                return True
        for slot in self._slots:
            if slot.sequence is not None and slot.sequence.id == request_id:
                slot.sequence.dead = True
                self._release(slot)
                return True
        return False

    def abort_all(self) -> list[str]:
        """Ends everything and clears all slots; who was in flight."""
        gone = [slot.sequence.id for slot in self._slots if slot.sequence]
        gone += [sequence.id for sequence in self._waiting]
        for request_id in gone:
            self.cancel(request_id)
        for slot in self._slots:
            slot.clear()
        self._chunks, self._decoding = [], []
        return gone

    def plan(self, t: float, out: list[Emission]) -> Batch:
        """Gives waiting requests their slots and chooses the next batch."""
        self._assign(t, out)
        batch = Batch()
        self._chunks, self._decoding = [], []
        for slot in self._slots:
            sequence = slot.sequence
            if sequence is not None and sequence.output:
                batch.decoding += 1
                batch.decode_context += slot.held + 1
                self._decoding.append(slot)
        budget = self._options.batch_tokens - batch.decoding
        for slot in self._slots:
            sequence = slot.sequence
            if budget <= 0:
                break
            if sequence is not None and not sequence.output:
                tokens = min(budget, sequence.prompt - sequence.computed)
                batch.add_prompt(tokens, sequence.computed)
                self._chunks.append((slot, tokens))
                budget -= tokens
        self._room = self._make_room(batch.decoding + batch.prefill)
        return batch

    def complete(self, t: float, out: list[Emission]) -> None:
        """The batch is computed: tokens appear, prompts advance; or there was no room and all fail."""
        if not self._room:
            self._fail(t, out)
            return
        for slot in self._decoding:
            sequence = slot.sequence
            if sequence is None or sequence.dead or not sequence.output:
                continue  # cancelled while the batch was computed
            slot.held += 1
            sequence.computed += 1
            self._token(slot, sequence, t, out)
        for slot, tokens in self._chunks:
            sequence = slot.sequence
            if sequence is None or sequence.dead:
                continue
            sequence.computed += tokens
            slot.held = sequence.computed
            slot.processed += tokens
            self.counters.computed += tokens
            out.append(Emission(sequence.id, t, "progress", sequence.computed, sequence.cached))
            if sequence.computed == sequence.prompt:
                self._token(slot, sequence, t, out)
        self._chunks, self._decoding = [], []

    def fill(self, state: dict[str, int]) -> None:
        """Its part of an EngineState."""
        state["running"] = sum(1 for slot in self._slots if slot.sequence)
        state["waiting"] = len(self._waiting)
        state["kv_total_tokens"] = self._pool
        state["kv_used_tokens"] = sum(slot.held for slot in self._slots if slot.sequence)
        state["kv_cached_tokens"] = sum(slot.held for slot in self._slots if not slot.sequence)

    def _assign(self, t: float, out: list[Emission]) -> None:
        while self._waiting:
            free = [slot for slot in self._slots if slot.sequence is None]
            if not free:
                return
            sequence = self._waiting.popleft()
            blocks, size = sequence.request.blocks, self._options.block_tokens
            common = {id(slot): slot.common(blocks, size) for slot in free}
            slot = max(free, key=lambda one: common[id(one)])
            if common[id(slot)] <= SIMILARITY * sequence.prompt:
                slot = min(free, key=lambda one: one.used)
            # The last token is always computed: its result is the first output.
            kept = min(common[id(slot)], sequence.prompt - 1) if self._options.prefix_cache else 0
            slot.held = kept
            slot.blocks = blocks
            slot.sequence = sequence
            slot.cached, slot.processed, slot.decoded = kept, 0, 0
            slot.task = self._tasks
            self._tasks += 1
            self._touch(slot)
            sequence.computed = sequence.cached = kept
            self.counters.admit(sequence.prompt, kept)
            out.append(Emission(sequence.id, t, "start", 0, kept))

    def _make_room(self, tokens: int) -> bool:
        """Clears idle slots of a unified cache, in their order, until `tokens` more fit."""
        if not self._options.unified:
            return True  # a share of its own: a slot ends at its limit
        used = sum(slot.held for slot in self._slots)
        for slot in self._slots:
            if used + tokens <= self._pool:
                break
            if slot.sequence is None:
                used -= slot.held
                slot.clear()
        return used + tokens <= self._pool

    def _token(self, slot: _Slot, sequence: Sequence, t: float, out: list[Emission]) -> None:
        sequence.output += 1
        slot.decoded += 1
        self.counters.generation += 1
        kind = "first" if sequence.output == 1 else "token"
        out.append(Emission(sequence.id, t, kind, sequence.output, sequence.cached))
        if sequence.output >= sequence.end:
            out.append(Emission(sequence.id, t, "finish", sequence.output, sequence.cached, sequence.reason))
            self._release(slot)

    def _fail(self, t: float, out: list[Emission]) -> None:
        """All in flight end together, and their slots are cleared."""
        for slot in self._slots:
            sequence = slot.sequence
            if sequence is not None:
                out.append(
                    Emission(sequence.id, t, "error", sequence.output, sequence.cached, "context", NO_ROOM)
                )
                self._release(slot)
                slot.clear()
        self._chunks, self._decoding = [], []

    def _release(self, slot: _Slot) -> None:
        slot.sequence = None
        slot.decoded = slot.processed = 0
        self._touch(slot)

    def _touch(self, slot: _Slot) -> None:
        self._uses += 1
        slot.used = self._uses

    def _slot_state(self, number: int, slot: _Slot) -> SlotState:
        sequence = slot.sequence
        limited = sequence is not None and sequence.request.max_tokens is not None
        return SlotState(
            slot=number,
            request=sequence.id if sequence else None,
            task=slot.task,
            context_limit_tokens=self._limit,
            held_tokens=slot.held,
            processed_tokens=slot.processed,
            cached_tokens=slot.cached,
            decoded_tokens=slot.decoded,
            remaining_tokens=(sequence.request.max_tokens or 0) - sequence.output
            if sequence and limited
            else None,
        )
