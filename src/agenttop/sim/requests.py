"""What goes into the simulated engine and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SimRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to generate text, as sizes and block identities: the engine never sees text."""

    id: str
    """Unique among the requests of one engine."""
    blocks: Sequence[int]
    """One identity per full block of `SimEngine.block_tokens` tokens, of the prompt and, where the reply is
    known beforehand, of prompt and reply. Each stands for everything up to the end of its block (a chained
    hash), so equal identities mean an equal prefix. Blocks beyond the sequence's end are never cached."""
    prompt_tokens: int
    """Length of the prompt, at least 1."""
    max_tokens: int | None = None
    """The most tokens to generate; None: up to the context limit."""
    stop_tokens: int | None = None
    """After how many tokens the reply ends by itself (`stop`); None: only `length` ends it."""


class Emission(msgspec.Struct, frozen=True, gc=False):
    """Something the engine said about one request, at simulated time `t`."""

    request: str
    t: float
    kind: str
    """start (taken from the queue), progress (a prompt batch done; llama.cpp only), first, token, finish,
    error. A request ends with exactly one finish or error, unless it is cancelled. `first` is also the
    first token; the last token comes with its own `first` or `token` before `finish` at the same time."""
    tokens: int = 0
    """Output tokens so far; of progress: prompt tokens done, the cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens found in the cache (known from `start` on)."""
    reason: str | None = None
    """Of finish: stop or length. Of error: its kind, `context` or `aborted`."""
    message: str | None = None
    """Of error: the engine's own words."""


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a llama.cpp engine, in the terms of its `/slots`."""

    slot: int
    request: str | None
    """Whom it serves; None when idle."""
    task: int | None
    """Number of the task it serves or last served; None when never used."""
    context_limit_tokens: int
    held_tokens: int
    """Tokens in its KV cache, prompt and output; kept after the request ends (`n_prompt_tokens`)."""
    processed_tokens: int
    """Prompt tokens computed for this request (`n_prompt_tokens_processed`)."""
    cached_tokens: int
    """Prompt tokens taken over from the cache (`n_prompt_tokens_cache`)."""
    decoded_tokens: int
    remaining_tokens: int | None
    """Tokens it may still generate; None when unlimited or idle."""


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """The engine at one moment. Counters only ever grow."""

    t: float
    running: int
    waiting: int
    kv_total_tokens: int
    """Size of the pool."""
    kv_used_tokens: int
    """Held by requests in progress."""
    kv_cached_tokens: int
    """Left by finished requests and reusable: the prefix cache's, or those of idle slots."""
    context_limit_tokens: int
    """The most tokens one request may have, prompt and output."""
    prompt_tokens_total: int
    """Prompt tokens of requests as they were taken up, computed and cached ones (vLLM's counter moves with
    the first token; llama.cpp counts the computed part)."""
    computed_tokens_total: int
    """Prompt tokens computed, repeated work after a preemption included."""
    cached_tokens_total: int
    generation_tokens_total: int
    preemptions_total: int
    prefix_queries_total: int
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits_total: int
    steps_total: int
    busy_s: float
    """Time spent in steps."""
    prefill_s: float
    """Time spent in steps that computed prompt tokens."""
    slots: tuple[SlotState, ...] = ()
    """Empty for an engine without slots."""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated GPU: the fields of `GpuSample` of the same names, in simulated time. Rates and shares
    are over `window_s`."""

    gpu: str
    index: int
    vendor: str
    name: str
    window_s: float | None
    util_fraction: float | None
    mem_util_fraction: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    mem_clock_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    energy_j: float | None
    throttle: list[str]
    throttle_power_fraction: float | None
    throttle_thermal_fraction: float | None
    throttle_shares: dict[str, float]
    temperature_limit_c: float | None
    power_limit_default_w: float | None
    power_window_s: float | None
    energy_source: str | None
    memory_kind: str | None
    pcie_received_bytes_s: float | None
    pcie_sent_bytes_s: float | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None


class RejectedError(Exception):
    """The engine does not take the request. `kind` is `context` when it is too long, and `message` is one
    sentence."""

    def __init__(self, kind: str, message: str, prompt_tokens: int, context_limit_tokens: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.prompt_tokens = prompt_tokens
        self.context_limit_tokens = context_limit_tokens
