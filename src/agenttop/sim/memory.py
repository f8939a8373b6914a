"""What fits: weights, buffers and the KV pool in the memory of a host's GPUs."""

from __future__ import annotations

import msgspec

from agenttop.errors import UsageError
from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.step import expert_bytes_in_ram, kv_token_bytes

GIB = 1 << 30
LLAMA_CONTEXT_STEP = 256
"""llama.cpp pads the context to a multiple of this. Source: llama-context.cpp, GGML_PAD(n_ctx, 256)."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine's memory goes."""

    pool_tokens: int
    context_tokens: int
    """The most tokens one request may have."""
    weights_bytes: float
    """On all GPUs together."""
    pool_bytes: float
    used_per_gpu_bytes: float


def plan(host: HostPreset, model: ModelPreset, options: EngineOptions) -> MemoryPlan:
    """Sizes the pool. Raises UsageError, with the arithmetic, when the model or the context does not fit."""
    in_ram = expert_bytes_in_ram(model)
    if in_ram and (host.ram is None or in_ram > host.ram.bytes):
        raise UsageError(
            f"{model.name} leaves {_gib(in_ram)} of its experts in main memory, "
            f"and {host.name} has {_gib(host.ram.bytes if host.ram else 0)}"
        )
    weights = model.weights_bytes - in_ram
    room = _usable(host, options) - weights - model.reserve_bytes * host.gpus
    token = kv_token_bytes(model, options) * model.kv_overhead
    if options.wire == "llama.cpp":
        room -= model.state_bytes * options.slots  # each slot has its own, from the start
    if room <= 0 and options.kv_pool_tokens is None:
        raise UsageError(
            f"{model.name} does not fit on {host.name}: {_gib(weights)} of weights and "
            f"{_gib(model.reserve_bytes * host.gpus)} of buffers in {_gib(_usable(host, options))}",
            "choose a smaller quantisation or another host",
        )
    fitting = int(room / token)
    pool = options.kv_pool_tokens if options.kv_pool_tokens is not None else fitting
    if options.wire == "llama.cpp":
        pool, context = _llama(pool, fitting, model, options)
    else:
        pool, context = _vllm(pool, model, options)
    used = (weights + pool * token) / host.gpus + model.reserve_bytes
    return MemoryPlan(
        pool_tokens=pool,
        context_tokens=context,
        weights_bytes=weights,
        pool_bytes=pool * token,
        used_per_gpu_bytes=min(used, host.gpu.memory_bytes),
    )


def _usable(host: HostPreset, options: EngineOptions) -> float:
    """Of all GPUs together, as far as the engine takes it."""
    gpu = host.gpu
    usable = gpu.usable_bytes if gpu.usable_bytes is not None else gpu.memory_bytes
    if options.wire == "vllm":
        usable = min(usable, int(gpu.memory_bytes * options.gpu_memory_utilization))
    return float(usable * host.gpus)


def _vllm(pool: int, model: ModelPreset, options: EngineOptions) -> tuple[int, int]:
    """The pool in whole blocks and the context limit: at most what the pool holds once."""
    pool -= pool % options.block_tokens
    wanted = options.context_tokens or min(model.context_tokens, pool)
    if pool < wanted or pool < options.block_tokens:
        raise UsageError(
            f"one request of {wanted} tokens needs more than the KV pool of {pool} tokens",
            "lower context_tokens, or give the KV cache more memory",
        )
    return pool, wanted


def _llama(pool: int, fitting: int, model: ModelPreset, options: EngineOptions) -> tuple[int, int]:
    """The whole context (`-c`) and what one slot may use of it."""
    most = model.context_tokens if options.unified else model.context_tokens * options.slots
    total = options.context_tokens or min(pool, most)
    total -= total % LLAMA_CONTEXT_STEP if total > LLAMA_CONTEXT_STEP else 0
    if options.kv_pool_tokens is None and total > fitting:
        raise UsageError(
            f"a context of {total} tokens does not fit: memory is left for {fitting}",
            "lower context_tokens or slots, or take a smaller KV cache type or quantisation",
        )
    total = min(total, pool)
    each = total if options.unified else total // options.slots
    if each < 1:
        raise UsageError(f"{options.slots} slots share a context of {total} tokens: none is left for each")
    return total, min(each, model.context_tokens)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
