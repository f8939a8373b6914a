"""The header of a safetensors file, and the numbers of experts of a model's config.json.

Sources: config.json as transformers writes it; the safetensors format: eight bytes with the length of a JSON
object, then the object: name to `dtype`, `shape` and `data_offsets`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from agenttop.collect.weights.sizes import Weights, add_up

LONGEST_HEADER = 16 * 1024**2
"""Some hundred thousand tensors; the format allows 100 MB."""
LONGEST_CONFIG = 4 * 1024**2
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
USED = ("num_experts_per_tok", "moe_topk", "experts_per_token", "num_experts_per_token")
WIDE = ("F32", "F64")
AHEAD = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")


class NotSafetensorsError(Exception):
    """The file is none, or is damaged: one clause."""


class Tensors(msgspec.Struct, frozen=True):
    """What a file holds."""

    sizes: dict[str, int]
    """Name to bytes."""
    wide: int
    """Bytes of those with 32 bits a number, or more."""


class _Told(msgspec.Struct):
    """One tensor; of `__metadata__` nothing is read."""

    dtype: str = ""
    data_offsets: tuple[int, int] | None = None


def read(file: BinaryIO, size: int) -> Tensors:
    """The tensors of one file of `size` bytes. Raises NotSafetensorsError, OSError."""
    head = file.read(8)
    if len(head) != 8:
        raise NotSafetensorsError("it is too short")
    length: int = struct.unpack("<Q", head)[0]
    if not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise NotSafetensorsError("its header has an impossible length")
    try:
        found = msgspec.json.decode(file.read(length), type=dict[str, _Told])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotSafetensorsError("its header is none") from None
    room = size - 8 - length
    sizes: dict[str, int] = {}
    wide = 0
    for name, told in found.items():
        if name == "__metadata__":
            continue
        begin, end = told.data_offsets or (-1, -1)
        if not 0 <= begin <= end <= room:
            raise NotSafetensorsError("a tensor of it lies outside of the file")
        sizes[name] = end - begin
        wide += end - begin if told.dtype in WIDE else 0
    if sum(sizes.values()) > room:
        raise NotSafetensorsError("tensors of it overlap")
    return Tensors(sizes, wide)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a config.json; None where it does not say."""

    experts: int | None = None
    """Experts of a layer, and below those that work on a token."""
    used: int | None = None
    layers: int | None = None
    """That are run, where further ones only predict more tokens."""
    tied: bool | None = None
    """Whether the output layer is the input embedding."""


def read_config(text: bytes) -> Config:
    """Nothing but None where it is no config."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Config()
    inner = found.get("text_config")
    places = [found, inner if isinstance(inner, dict) else {}]

    def number(*names: str) -> int | None:
        values = [place.get(name) for place in places for name in names]
        return next((value for value in values if type(value) is int and 0 < value < 10**6), None)

    ties = [place.get("tie_word_embeddings") for place in places]
    said = {tie for tie in ties if isinstance(tie, bool)}
    return Config(
        experts=number(*EXPERTS),
        used=number(*USED),
        layers=number("num_hidden_layers") if number(*AHEAD) else None,
        tied=said.pop() if len(said) == 1 else None,
    )


def is_quantised(config: bytes) -> bool:
    """Whether the files themselves hold quantised weights."""
    return b'"quantization_config"' in config or b'"compression_config"' in config


def weigh(tensors: Mapping[str, int], config: bytes) -> Weights:
    """The sizes of a model, from all its files together."""
    told = read_config(config)
    return add_up(tensors, told.experts, told.used, "safetensors", layers=told.layers, tied=told.tied)
