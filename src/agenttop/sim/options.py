"""How the simulated engine is started: what a user would give on the server's command line."""

from __future__ import annotations

import msgspec

from agenttop.errors import UsageError
from agenttop.sim.presets import KV_BYTES

WIRES = ("vllm", "llama.cpp")

MOST_SLOTS = 4096


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """A step time made up on purpose, so that an analysis can be checked against a known answer.

    A step with n decoding sequences and p prompt tokens takes
        step_s * max(1, n / knee) * (1 + max(0, n - cliff) * cliff_slope) + p * prefill_token_s
    Up to `knee` sequences the aggregate decode rate is a straight line; from there on it stands still, as
    when compute binds. Beyond `cliff` it falls. None: it never bends, never falls.
    """

    step_s: float = 0.02
    knee: int | None = None
    cliff: int | None = None
    cliff_slope: float = 0.15
    prefill_token_s: float = 0.00002


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine runs with; None is this engine's own default for the host and model."""

    wire: str = "vllm"
    """vllm (paged pool, prefix cache, preemption) or llama.cpp (slots)."""
    context_tokens: int | None = None
    """vLLM `--max-model-len`; llama.cpp `-c`, which split slots share. None: vLLM the model's, or what the
    pool holds; llama.cpp what the memory holds, rounded down to 256."""
    max_num_seqs: int = 256
    """vLLM: the most requests that run at once."""
    max_num_batched_tokens: int = 2048
    """vLLM: the most tokens of one step, decode and prefill together."""
    block_tokens: int = 16
    """Granularity of the paged pool and of prefix matching."""
    prefix_cache: bool = True
    gpu_memory_utilization: float = 0.9
    """vLLM: the share of the GPU's memory it may use."""
    slots: int = 4
    """llama.cpp `-np`."""
    unified: bool = False
    """llama.cpp `-kvu`: one pool for all slots, in place of an equal share for each."""
    batch_tokens: int = 2048
    """llama.cpp `-b` (n_batch): the most tokens of one iteration over the slots."""
    ubatch_tokens: int = 512
    """llama.cpp `-ub` (n_ubatch): the most tokens the GPU computes at once."""
    kv_type: str | None = None
    """Type of the KV cache, a key of `KV_BYTES`; None: the model preset's."""
    parallel: str | None = None
    """How several GPUs share the model: tensor (each a part of every layer) or layer (each some layers, one
    after the other). None: tensor for vLLM, layer for llama.cpp."""
    kv_pool_tokens: int | None = None
    """Size of the pool, in place of what the memory would give."""
    noise_fraction: float = 0.015
    """Standard deviation of a step's time, as a share of it."""
    ambient_c: float | None = None
    """Temperature of the air, in place of the host's."""
    power_limit_w: float | None = None
    """Power limit of each GPU, in place of the host's."""
    plant: Plant | None = None

    def checked(self) -> EngineOptions:
        """Itself; raises UsageError with one sentence where a value makes no sense."""
        if self.wire not in WIRES:
            raise UsageError(f"wire {self.wire!r} is not known; it is one of {', '.join(WIRES)}")
        if self.kv_type is not None and self.kv_type not in KV_BYTES:
            raise UsageError(
                f"KV cache type {self.kv_type!r} is not known; it is one of {', '.join(KV_BYTES)}"
            )
        if self.parallel not in (None, "tensor", "layer"):
            raise UsageError(f"parallel {self.parallel!r} is not known; it is tensor or layer")
        counts = ("max_num_seqs", "max_num_batched_tokens", "block_tokens", "slots", "batch_tokens",
                  "ubatch_tokens", "context_tokens", "kv_pool_tokens")  # fmt: skip
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise UsageError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}; it is above 0, up to 1"
            )
        if not 0 <= self.noise_fraction <= 0.2:
            raise UsageError(f"noise_fraction is {self.noise_fraction}; it is 0 to 0.2")
        if self.slots > MOST_SLOTS:
            raise UsageError(f"slots is {self.slots}; it is 1 to {MOST_SLOTS}")
        # Not a number fails these, too.
        if self.ambient_c is not None and not -40 <= self.ambient_c <= 150:
            raise UsageError(f"ambient_c is {self.ambient_c}; it is -40 to 150")
        if self.power_limit_w is not None and not 1 <= self.power_limit_w <= 10_000:
            raise UsageError(f"power_limit_w is {self.power_limit_w}; it is 1 to 10000")
        return self
