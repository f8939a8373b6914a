"""The simulated engine: requests in, tokens out, in simulated time. No I/O, no clock, no threads.

    engine = SimEngine(presets.host("rtx-5090"), presets.model("qwen3.5-9b-4bit"), EngineOptions())
    engine.submit(SimRequest(id="a", blocks=range(64), prompt_tokens=1000, max_tokens=50))
    while (t := engine.next_time()) is not None:
        for emission in engine.advance(t): ...

The one who drives it says what time it is: real time times a speed-up, or the next moment at which anything
happens. The same seed and the same calls at the same times give the same result.
"""

from __future__ import annotations

import random

import msgspec

from agenttop.sim import memory, presets
from agenttop.sim.gpu import SimGpu
from agenttop.sim.options import EngineOptions
from agenttop.sim.paged import PagedScheduler, state_of
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.requests import Emission, EngineState, GpuReading, RejectedError, SimRequest
from agenttop.sim.schedule import Scheduler
from agenttop.sim.slots import SlotScheduler
from agenttop.sim.step import StepCost, StepModel, tensor_parallel

__all__ = ["Emission", "EngineState", "GpuReading", "RejectedError", "SimEngine", "SimRequest"]

NOISE_LIMIT = 4.0
"""Noise is cut off at this many standard deviations, so that no step takes a negative time."""
TOKEN_BYTES = 4096.0
"""What a token's way between CPU and GPU takes over PCIe beside the model: indices, block tables, logits kept
back. An order of magnitude, so that an idle bus and a working one differ."""


class SimEngine:
    """One inference engine on one simulated host.

    Raises UsageError, with the arithmetic, when the model does not fit the host with these options.
    """

    def __init__(self, host: HostPreset, model: ModelPreset, options: EngineOptions, seed: int = 0) -> None:
        self.host, self.model = host, model
        options = options.checked()
        options = self.options = msgspec.structs.replace(options, kv_type=options.kv_type or model.kv_type)
        self.memory = memory.plan(host, model, self.options)
        self.block_tokens = options.block_tokens
        self.context_limit_tokens = self.memory.context_tokens
        """The most tokens one request may have, prompt and output."""
        self.kv_pool_tokens = self.memory.pool_tokens
        self.now = 0.0
        """Simulated seconds; moved by `advance` alone."""
        kind = PagedScheduler if options.wire == "vllm" else SlotScheduler
        self._scheduler: Scheduler = kind(options, self.kv_pool_tokens, self.context_limit_tokens)
        self._steps = StepModel(host, model, presets.engine(options.wire), options)
        used = self.memory.used_per_gpu_bytes
        self._gpus = [SimGpu(host, options, number, used) for number in range(host.gpus)]
        self._random = random.Random(seed)
        self._noise = options.noise_fraction
        self._pending: list[Emission] = []
        self._step: StepCost | None = None
        self._prefills = False
        self._traffic = 0.0
        self._ends = 0.0
        self._free_at = 0.0
        """When the next step may begin: the end of the last one, or when work came to an idle engine."""

    def submit(self, request: SimRequest) -> None:
        """Queues a request at `now`. Raises RejectedError when its prompt leaves no room in the context."""
        if request.prompt_tokens < 1:
            raise RejectedError("empty", "the prompt is empty", 0, self.context_limit_tokens)
        if request.prompt_tokens >= self.context_limit_tokens:
            raise RejectedError(
                "context",
                f"the request has {request.prompt_tokens} tokens and the context holds "
                f"{self.context_limit_tokens}",
                request.prompt_tokens,
                self.context_limit_tokens,
            )
        if self._step is None and not self._scheduler.busy:
            self._free_at = max(self._free_at, self.now)
        self._scheduler.submit(request)

    def cancel(self, request_id: str) -> bool:
        """Forgets a request, as when its client goes away; it emits nothing more. False: not known."""
        self._pending = [one for one in self._pending if one.request != request_id]
        return self._scheduler.cancel(request_id)

    def abort_all(self, message: str) -> list[Emission]:
        """Ends everything in flight with an error, as a crash of the engine does; the cache is lost."""
        gone = self._scheduler.abort_all()
        self._pending, self._step = [], None
        self._free_at = self.now
        return [Emission(name, self.now, "error", 0, 0, "aborted", message) for name in gone]

    def next_time(self) -> float | None:
        """When the step in progress ends, which is when there is next something to say; None when idle."""
        if self._step is None and not self._begin():
            return None
        return self._ends

    def advance(self, until: float) -> list[Emission]:
        """Completes all steps that end by `until`; what they emitted, in order of time. `now` is `until`.

        A time before `now` changes nothing.
        """
        out: list[Emission] = []
        while self._step is not None or self._begin():
            if self._ends > until:
                break
            if self._pending:
                out += self._pending
                self._pending = []
            self._end(out)
        out += self._pending  # of a step still in progress
        self._pending = []
        self.now = max(self.now, until)
        if self._step is None:
            for gpu in self._gpus:
                gpu.idle(self.now)
        return out

    def state(self) -> EngineState:
        """The engine at `now`."""
        parts: dict[str, int] = {}
        self._scheduler.fill(parts)
        scheduler = self._scheduler
        return state_of(self.now, self.context_limit_tokens, scheduler.counters, parts, scheduler.slots)

    def gpus(self, window_s: float = 1.0) -> list[GpuReading]:
        """Its GPUs at `now`; rates and shares over about the last `window_s`, up to two minutes."""
        return [gpu.reading(window_s) for gpu in self._gpus]

    def _begin(self) -> bool:
        """Plans the next step; False when there is nothing to do."""
        if not self._scheduler.busy:
            return False
        start = self._free_at
        for gpu in self._gpus:
            gpu.idle(start)
        batch = self._scheduler.plan(start, self._pending)
        clock = min(gpu.clock for gpu in self._gpus)
        cost = self._steps.cost(batch, clock)
        stretch = 1.0
        if self._noise:
            limit = NOISE_LIMIT
            stretch += self._noise * max(-limit, min(limit, self._random.gauss(0.0, 1.0)))
        self._step = cost
        self._prefills = batch.prefill > 0
        self._traffic = TOKEN_BYTES * (batch.decoding + batch.prompts)
        self._ends = start + cost.seconds * stretch
        return True

    def _end(self, out: list[Emission]) -> None:
        cost, start, end = self._step, self._free_at, self._ends
        assert cost is not None
        self._step = None
        self._free_at = end
        self._scheduler.complete(end, out)
        counters = self._scheduler.counters
        counters.steps += 1
        counters.busy_s += end - start
        if self._prefills:
            counters.prefill_s += end - start
        link = self.host.link
        over_pcie = cost.link_bytes if link is not None and link.kind == "pcie" else 0.0
        share = 1.0 if tensor_parallel(self.host, self.options) else 1 / len(self._gpus)
        received = over_pcie + cost.from_ram_bytes * share + self._traffic
        for gpu in self._gpus:
            gpu.work(end, cost.busy_s, cost.memory_s, cost.compute_s, received, over_pcie + self._traffic)
