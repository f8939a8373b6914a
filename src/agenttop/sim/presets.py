"""Hosts and models the simulated engine knows: data files, each number with its source beside it.

`presets/hosts/*.toml` and `presets/models/*.toml` hold them; a path to a file of the same form works as well.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.oslayer import at_home

FOLDER = Path(__file__).with_name("presets")
MAX_FILE_BYTES = 1 << 20

KV_BYTES = {
    "f16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "q8_0": 34 / 32,  # 32 values and one 16-bit scale
    "q5_1": 24 / 32,
    "q4_0": 18 / 32,
}
"""Bytes per stored value of a KV cache type. Source: vLLM `--kv-cache-dtype`, ggml block sizes."""


class GpuPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU of a host. All GPUs of a host are alike."""

    name: str
    vendor: str
    memory_bytes: int
    usable_bytes: int | None = None
    """What an engine may have of it, where the system or a screen holds some; None: all."""
    bandwidth_bytes_s: float
    """Peak of its memory."""
    bandwidth_reached: float
    """Share of that peak that decode kernels reach."""
    flops_s: float
    """Peak of dense matrix products in the precision that the model computes in."""
    flops_reached: float
    """Share of that peak that prefill reaches."""
    idle_w: float
    limit_w: float
    demand_w: float
    """What it would draw with compute and memory both fully busy if nothing held it back; above `limit_w`
    the power cap shows."""
    clock_max_mhz: int
    clock_min_mhz: int
    memory_clock_mhz: int
    ambient_c: float = 25.0
    heat_c_per_w: float
    """Degrees above the air's temperature for each watt, once settled."""
    heat_time_s: float
    """Time constant of warming and cooling."""
    throttle_c: float
    """Temperature from which the clocks are brought down."""
    pcie_generation: int | None = None
    pcie_width: int | None = None


class LinkPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the GPUs of a host talk to each other."""

    kind: str = "pcie"
    """pcie or nvlink."""
    bytes_s: float
    """Reached in one direction."""
    latency_s: float
    """Of one small all-reduce."""


class RamPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Main memory, and the CPU that computes what is left there."""

    bytes: int
    bandwidth_bytes_s: float
    reached: float
    """Share of the peak that experts computed by the CPU reach."""
    pcie_bytes_s: float
    """Reached from main memory to the GPU: large prompt batches bring offloaded experts over."""


class HostPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host: its GPUs, their link, its memory."""

    key: str = ""
    """The name of its file."""
    name: str
    """As it is shown, e.g. `RTX 5090`."""
    note: str | None = None
    gpus: int = 1
    gpu: GpuPreset
    link: LinkPreset | None = None
    ram: RamPreset | None = None
    unified_memory: bool = False
    """CPU and GPU share one memory: no PCIe between them."""
    step_factor: float = 1.0
    """The fixed cost of a step against that of the fastest desktop: driver, kernel launches, CPU."""


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The routed experts of a mixture-of-experts model."""

    count: int
    """Of each layer."""
    used: int
    """Of each layer, by one token."""
    params: float
    """Parameters of all of them, all layers."""
    in_ram_fraction: float = 0.0
    """Share of them left in main memory and computed by the CPU (llama.cpp `--n-cpu-moe`)."""


class ModelPreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as an engine loads it: shapes and bytes."""

    def __post_init__(self) -> None:
        if self.kv_type not in KV_BYTES:
            raise ValueError(f"kv_type {self.kv_type!r} is not one of {', '.join(KV_BYTES)}")

    key: str = ""
    """The name of its file."""
    name: str
    """As an engine would report it."""
    note: str | None = None
    params: float
    """All parameters that a token's matrix products may use; experts included, the input embedding not."""
    weights_bytes: float
    """In GPU memory and main memory together, as loaded."""
    layers: int
    kv_layers: int
    """Layers that hold a KV cache; fewer than `layers` in a hybrid model."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    """What it was trained for."""
    experts: Experts | None = None
    state_bytes: float = 0.0
    """Recurrent state of one sequence in the other layers of a hybrid model."""
    reserve_bytes: float = 1.5e9
    """Memory an engine needs beside weights and KV cache on each GPU: activations, buffers, graphs."""
    kv_type: str = "f16"
    """Type of its KV cache unless the options say another."""
    kv_overhead: float = 1.0
    """Bytes a token really takes in the pool against the plain arithmetic, where an engine pads its pages."""
    flops_factor: float = 1.0
    """Share of a host's `flops_reached` that this quantisation's kernels get to."""

    @property
    def active_params(self) -> float:
        """Parameters that one token uses."""
        if self.experts is None:
            return self.params
        return self.params - self.experts.params * (1 - self.experts.used / self.experts.count)


class EnginePreset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fixed costs of an engine on the fastest desktop; `HostPreset.step_factor` scales them."""

    key: str = ""
    """The name of its file: the wire."""
    step_s: float
    """Of one step: scheduling, input tensors, sampling, output."""
    layer_s: float
    """Of one layer: kernels that are too short to be bound by anything."""
    sequence_s: float
    """Of one decoding sequence in a step: sampling, text, the queue to the HTTP side."""
    prompt_s: float
    """Of one prompt in a step."""


_T = TypeVar("_T", HostPreset, ModelPreset, EnginePreset)


def hosts() -> list[str]:
    """Names that `host` knows."""
    return sorted(file.stem for file in (FOLDER / "hosts").glob("*.toml"))


def models() -> list[str]:
    """Names that `model` knows."""
    return sorted(file.stem for file in (FOLDER / "models").glob("*.toml"))


def host(name_or_path: str) -> HostPreset:
    """A host by its name or from a TOML file. Raises UsageError, one sentence, when there is none such."""
    return _load(name_or_path, "hosts", HostPreset)


def model(name_or_path: str) -> ModelPreset:
    """A model by its name or from a TOML file. Raises UsageError, one sentence, when there is none such."""
    return _load(name_or_path, "models", ModelPreset)


def engine(wire: str) -> EnginePreset:
    """The fixed costs of the engine behind a wire format. Raises UsageError when there is none such."""
    return _load(wire, "engines", EnginePreset)


def _load(name_or_path: str, folder: str, kind: type[_T]) -> _T:
    what = folder[:-1]
    known = {file.stem: file for file in sorted((FOLDER / folder).glob("*.toml"))}
    file = known.get(name_or_path)
    if file is None and name_or_path.endswith(".toml"):
        file = at_home(name_or_path)
    if file is None:
        near = difflib.get_close_matches(name_or_path, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"there is no simulated {what} '{clean(name_or_path, 60)}'",
            f"{hint}known: {', '.join(known)}; or give the path of a .toml file",
        )
    return _read(file, what, kind)


def _read(file: Path, what: str, kind: type[_T]) -> _T:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES)
        found = msgspec.convert(tomllib.loads(content.decode("utf-8")), kind)
    except OSError as error:
        raise UsageError(f"{clean(str(file))}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{clean(str(file))}: not a TOML file: {clean(str(error))}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{clean(str(file))}: not a {what} preset: {clean(str(error))}") from None
    return msgspec.structs.replace(found, key=file.stem)
