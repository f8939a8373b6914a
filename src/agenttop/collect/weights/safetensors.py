"""The header of a safetensors file, and the numbers of experts of a model's config.json.

Source: the safetensors format: eight bytes with the length of a JSON object, then the object: name to
`dtype`, `shape` and `data_offsets`.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import msgspec

from agenttop.collect.weights.sizes import Weights, add_up

LONGEST_HEADER = 100 * 1000**2
"""The format's own limit."""
LONGEST_CONFIG = 4 * 1024**2
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
USED = ("num_experts_per_tok", "moe_topk", "num_experts_per_token")


class NotSafetensorsError(Exception):
    """The file is none, or is damaged: one clause."""


def read(file: BinaryIO, size: int) -> dict[str, int]:
    """Tensor to bytes of one file of `size` bytes. Raises NotSafetensorsError, OSError."""
    head = file.read(8)
    if len(head) != 8:
        raise NotSafetensorsError("it is too short")
    length: int = struct.unpack("<Q", head)[0]
    if not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise NotSafetensorsError("its header has an impossible length")
    try:
        found = msgspec.json.decode(file.read(length), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotSafetensorsError("its header is no JSON object") from None
    room = size - 8 - length
    tensors: dict[str, int] = {}
    for name, told in found.items():
        if name == "__metadata__":
            continue
        size_of = _size(told.get("data_offsets") if isinstance(told, dict) else None, room)
        if size_of is None:
            raise NotSafetensorsError("a tensor of it lies outside of the file")
        tensors[name] = size_of
    return tensors


def _size(told: Any, room: int) -> int | None:
    """From begin and end within the data; None for what is no such pair."""
    if not isinstance(told, list) or len(told) != 2 or not all(type(each) is int for each in told):
        return None
    begin, end = told
    return end - begin if 0 <= begin <= end <= room else None


def experts(config: bytes) -> tuple[int | None, int | None]:
    """(experts of a layer, used by a token); None where the file does not say."""
    try:
        found = msgspec.json.decode(config, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, None
    inner = found.get("text_config")
    places = [found, inner if isinstance(inner, dict) else {}]
    numbers = []
    for names in (EXPERTS, USED):
        values = [place.get(name) for place in places for name in names]
        numbers.append(next((value for value in values if type(value) is int and 0 < value < 10**6), None))
    return numbers[0], numbers[1]


def is_quantised(config: bytes) -> bool:
    """Whether the files themselves hold quantised weights."""
    return b'"quantization_config"' in config or b'"compression_config"' in config


def weigh(tensors: dict[str, int], config: bytes) -> Weights:
    """The sizes of a model, from all its files together."""
    return add_up(tensors, *experts(config), "safetensors")
