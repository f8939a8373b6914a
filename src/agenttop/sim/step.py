"""How long one step takes: bytes over bandwidth, arithmetic over compute, and what is fixed.

Matrix products and attention are different kernels, one after the other, and each is bound by whichever of
its two costs is larger (the roofline model: S. Williams et al., "Roofline", CACM 52(4), 2009):

    step = max(weight bytes / B, 2 P n / C)  +  max(KV bytes / B, 4 L H d * pairs / C)
         + all-reduce + experts in main memory + fixed cost

B and C are the host's peaks times the shares reached; n the tokens of the step, P the parameters a token
uses, L the layers that hold a KV cache, H and d the attention heads and their size, `pairs` the sum over
tokens of the context each one attends to, which makes a prompt's cost quadratic in its length.
"""

from __future__ import annotations

import math

import msgspec

from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import KV_BYTES, EnginePreset, HostPreset, ModelPreset

CPU_EXPERTS_UP_TO = 32
"""llama.cpp computes experts left in main memory on the CPU for batches below this many tokens, and copies
them to the GPU for larger ones. Source: ggml-cuda.cu, `op_offload_min_batch_size`."""
LINK_BYTES = 2
"""Activations travel between GPUs as 16-bit values."""
CLOCK_TO_BANDWIDTH = 0.2
"""Share of the memory bandwidth that follows the core clock: address generation and cache run on it."""


class Batch(msgspec.Struct, gc=False):
    """What one step computes."""

    decoding: int = 0
    """Sequences that get one more token."""
    decode_context: int = 0
    """Sum of their contexts."""
    prefill: int = 0
    """Prompt tokens."""
    prompts: int = 0
    """Prompts these belong to."""
    pairs: float = 0.0
    """Sum over the prompt tokens of the context each attends to."""
    prefill_context: int = 0
    """Sum of the contexts that the prompts' tokens read."""

    def add_prompt(self, tokens: int, before: int) -> None:
        """The next `tokens` of a prompt of which `before` are done."""
        self.prefill += tokens
        self.prompts += 1
        self.pairs += tokens * (before + tokens / 2)
        self.prefill_context += before + tokens


class StepCost(msgspec.Struct, frozen=True, gc=False):
    """What a step costs, and what it keeps busy."""

    seconds: float
    memory_s: float
    """Time a GPU's memory was busy at the rate it can reach."""
    compute_s: float
    """Time a GPU's arithmetic was busy at the rate it can reach."""
    busy_s: float
    """Time a GPU had a kernel running."""
    link_bytes: float
    """Sent, and as many received, by each GPU to other GPUs."""
    from_ram_bytes: float
    """Weights brought over from main memory."""


class StepModel:
    """The cost of a batch for one model on one host."""

    def __init__(
        self, host: HostPreset, model: ModelPreset, engine: EnginePreset, options: EngineOptions
    ) -> None:
        gpu = host.gpu
        self._host, self._model, self._engine = host, model, engine
        self._plant = options.plant
        tensor = tensor_parallel(host, options)
        self._tensor = tensor
        self._share = 1 / host.gpus if tensor else 1.0
        self._ubatch = options.ubatch_tokens if options.wire == "llama.cpp" else None
        self._bandwidth = gpu.bandwidth_bytes_s * gpu.bandwidth_reached
        self._flops = gpu.flops_s * gpu.flops_reached * model.flops_factor
        self._kv_bytes = kv_token_bytes(model, options)
        self._attention = 4.0 * model.kv_layers * model.heads * model.head_dim
        experts = model.experts
        routed = model.weights_bytes * experts.params / model.params if experts else 0.0
        self._dense_bytes = model.weights_bytes - routed
        self._gpu_experts = routed * (1 - experts.in_ram_fraction) if experts else 0.0
        self._ram_experts = routed * experts.in_ram_fraction if experts else 0.0
        self._skipped = 1 - experts.used / experts.count if experts else 0.0

    def cost(self, batch: Batch, clock: float = 1.0) -> StepCost:
        """The cost with the GPUs at `clock`, a share of their full speed."""
        tokens = batch.decoding + batch.prefill
        if self._plant is not None:
            return self._planted(batch)
        bandwidth = self._bandwidth * (1 - CLOCK_TO_BANDWIDTH * (1 - clock))
        flops = self._flops * clock
        products, memory, arithmetic, from_ram, ram_s = self._products(tokens, bandwidth, flops)
        read = self._kv_bytes * (batch.decode_context + batch.prefill_context)
        read += 2 * self._model.state_bytes * (batch.decoding + batch.prompts)  # read and written
        kv_s = read * self._share / bandwidth
        attention_s = self._attention * (batch.pairs + batch.decode_context) * self._share / flops
        link_s, link_bytes = self._link(tokens)
        kernels = products + max(kv_s, attention_s)
        engine = self._engine
        fixed = engine.step_s + engine.layer_s * self._model.layers + engine.sequence_s * batch.decoding
        fixed = (fixed + engine.prompt_s * batch.prompts) * self._host.step_factor
        busy = kernels + link_s + engine.layer_s * self._model.layers
        turns = 1.0 if self._tensor else 1 / self._host.gpus  # layer by layer, one GPU works at a time
        return StepCost(
            kernels + link_s + ram_s + fixed,
            (memory + kv_s) * turns,
            (arithmetic + attention_s) * turns,
            busy * turns,
            link_bytes,
            from_ram,
        )

    def _products(
        self, tokens: int, bandwidth: float, flops: float
    ) -> tuple[float, float, float, float, float]:
        """Matrix products: (seconds, memory s, arithmetic s, bytes from main memory, seconds for them)."""
        rest, total, memory, arithmetic, from_ram, ram_s = tokens, 0.0, 0.0, 0.0, 0.0, 0.0
        while rest > 0:
            part = min(rest, self._ubatch or rest)
            rest -= part
            touched = 1 - self._skipped**part if self._skipped else 1.0
            memory_s = (self._dense_bytes + self._gpu_experts * touched) * self._share / bandwidth
            compute_s = 2 * self._model.active_params * part * self._share / flops
            total += max(memory_s, compute_s)
            memory += memory_s
            arithmetic += compute_s
            if self._ram_experts:
                moved, seconds = self._from_ram(part, self._ram_experts * touched)
                from_ram += moved
                ram_s += seconds
        return total, memory, arithmetic, from_ram, ram_s

    def _from_ram(self, tokens: int, touched: float) -> tuple[float, float]:
        """Experts left in main memory: (bytes that cross PCIe, seconds)."""
        ram = self._host.ram
        assert ram is not None  # checked with the memory
        if tokens < CPU_EXPERTS_UP_TO:
            activations = 2.0 * tokens * self._model.hidden * self._model.layers * LINK_BYTES
            return activations, touched / (ram.bandwidth_bytes_s * ram.reached)
        return touched, touched / ram.pcie_bytes_s

    def _link(self, tokens: int) -> tuple[float, float]:
        """Between GPUs: (seconds, bytes each sends). Two all-reduces a layer, or one hand-over a boundary."""
        link, gpus = self._host.link, self._host.gpus
        if gpus == 1 or link is None:
            return 0.0, 0.0
        size = float(tokens * self._model.hidden * LINK_BYTES)
        if not self._tensor:
            return (gpus - 1) * (link.latency_s + size / link.bytes_s), size
        reduces = 2 * self._model.layers
        sent = size * 2 * (gpus - 1) / gpus
        return reduces * (link.latency_s + sent / link.bytes_s), reduces * sent

    def _planted(self, batch: Batch) -> StepCost:
        plant = self._plant
        assert plant is not None
        seconds = batch.prefill * plant.prefill_token_s
        bend = max(1.0, batch.decoding / plant.knee) if plant.knee else 1.0
        if plant.cliff and batch.decoding > plant.cliff:
            bend *= 1 + (batch.decoding - plant.cliff) * plant.cliff_slope
        seconds += plant.step_s * bend
        full = min(1.0, batch.decoding / plant.knee) if plant.knee else 0.5
        return StepCost(seconds, seconds * 0.5, seconds * full, seconds, 0.0, 0.0)


def tensor_parallel(host: HostPreset, options: EngineOptions) -> bool:
    """Whether every GPU works on every layer; with one GPU it makes no difference."""
    if options.parallel is not None:
        return options.parallel == "tensor"
    return options.wire == "vllm"


def kv_token_bytes(model: ModelPreset, options: EngineOptions) -> float:
    """Bytes that one token's keys and values are read as: 2 x layers x KV heads x head size x value size."""
    size = KV_BYTES[options.kv_type or model.kv_type]
    return 2.0 * model.kv_layers * model.kv_heads * model.head_dim * size


def expert_bytes_in_ram(model: ModelPreset) -> float:
    """Weights left in main memory."""
    if model.experts is None:
        return 0.0
    return model.weights_bytes * model.experts.params / model.params * model.experts.in_ram_fraction


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return math.ceil(tokens / block_tokens)
