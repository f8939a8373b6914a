"""The simulated engine: requests in, tokens out, in simulated time. No I/O, no clock, no threads."""

from __future__ import annotations

from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.requests import Emission, EngineState, GpuReading, SimRequest


class SimEngine:
    """One inference engine on one simulated host.

    Raises UsageError when the model does not fit the host with these options.
    """

    now: float
    """Simulated seconds; moved by `advance` alone."""
    block_tokens: int
    context_limit_tokens: int
    """The most tokens one request may have, prompt and output."""
    kv_pool_tokens: int

    def __init__(self, host: HostPreset, model: ModelPreset, options: EngineOptions, seed: int = 0) -> None:
        raise NotImplementedError

    def submit(self, request: SimRequest) -> None:
        """Queues a request. Raises RejectedError when its prompt does not fit the context."""
        raise NotImplementedError

    def cancel(self, request_id: str) -> bool:
        """Forgets a request, as when its client goes away; it emits nothing more. False: not known."""
        raise NotImplementedError

    def abort_all(self, message: str) -> list[Emission]:
        """Ends everything in flight with an error, as a crash of the engine does; the cache is lost."""
        raise NotImplementedError

    def next_time(self) -> float | None:
        """When the step in progress ends, which is when there is next something to say; None when idle."""
        raise NotImplementedError

    def advance(self, until: float) -> list[Emission]:
        """Completes all steps that end by `until`; what they emitted, in order of time. `now` is `until`."""
        raise NotImplementedError

    def state(self) -> EngineState:
        """The engine at `now`."""
        raise NotImplementedError

    def gpus(self) -> list[GpuReading]:
        """Its GPUs at `now`."""
        raise NotImplementedError
