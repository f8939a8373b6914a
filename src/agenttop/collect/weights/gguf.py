"""The header of a GGUF file: names and sizes of its tensors, and how many experts there are.

Source: the GGUF specification of ggml. A size is the distance to the next tensor's offset, so that no table
of the many quantisations is needed; what is lost is the padding, 32 bytes a tensor.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from agenttop.collect.weights.sizes import Weights, add_up

MAGIC = b"GGUF"
LONGEST_HEADER = 256 * 1024**2
"""A vocabulary of a million words takes some 30 MB."""
MOST_TENSORS, MOST_KEYS, MOST_VALUES = 100_000, 10_000, 5_000_000
LONGEST_NAME = 4096
STRING, ARRAY = 8, 9
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Type of a value to its bytes."""
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}


class NotGgufError(Exception):
    """The file is none, or is damaged: one clause."""


class _Reader:
    """Reads on, and never beyond what a header may take."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        if count < 0 or self.at > LONGEST_HEADER:
            raise NotGgufError("its header is longer than any")
        found = self._file.read(count)
        if len(found) != count:
            raise NotGgufError("it ends in the middle of its header")
        return found

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        length = self.number("<Q")
        if length > LONGEST_NAME:
            self.skip(length)
            return ""
        return self.take(length).decode(errors="replace")

    def skip(self, count: int) -> None:
        while count > 0:
            step = min(count, 1 << 20)
            self.take(step)
            count -= step


def read(file: BinaryIO, size: int) -> tuple[dict[str, int], dict[str, int | str]]:
    """(tensor to bytes, key to value for numbers and texts) of one file of `size` bytes.

    Raises NotGgufError, OSError.
    """
    reader = _Reader(file)
    if reader.take(4) != MAGIC:
        raise NotGgufError("it is no GGUF file")
    version = reader.number("<I")
    if version not in (2, 3):
        raise NotGgufError(f"its version {version} is not known")
    tensors, keys = reader.number("<Q"), reader.number("<Q")
    if tensors > MOST_TENSORS or keys > MOST_KEYS:
        raise NotGgufError("its counts make no sense")
    facts: dict[str, int | str] = {}
    for _ in range(keys):
        key = reader.text()
        value = _value(reader, reader.number("<I"))
        if value is not None:
            facts[key] = value
    offsets: list[tuple[int, str]] = []
    for _ in range(tensors):
        name = reader.text()
        dimensions = reader.number("<I")
        if dimensions > 8:
            raise NotGgufError("a tensor of it has too many dimensions")
        reader.take(8 * dimensions + 4)
        offsets.append((reader.number("<Q"), name))
    alignment = facts.get("general.alignment", 32)
    step = alignment if isinstance(alignment, int) and 0 < alignment <= 1 << 20 else 32
    begin = -(-reader.at // step) * step
    offsets.sort()
    ends = [*(offset for offset, _ in offsets[1:]), max(0, size - begin)]
    if offsets and offsets[-1][0] > ends[-1]:
        raise NotGgufError("it ends before its last tensor")
    return {name: end - offset for (offset, name), end in zip(offsets, ends, strict=True)}, facts


def _value(reader: _Reader, kind: int, depth: int = 0) -> int | str | None:
    """A number or a text; None for what is read over."""
    if kind == STRING:
        return reader.text()
    if kind in NUMBERS:
        return reader.number(NUMBERS[kind])
    if kind in SCALARS:
        reader.take(SCALARS[kind])
        return None
    if kind != ARRAY or depth > 2:
        raise NotGgufError(f"a value of it has the unknown type {kind}")
    inner, count = reader.number("<I"), reader.number("<Q")
    if count > MOST_VALUES:
        raise NotGgufError("a list in it is longer than any")
    if inner in SCALARS:
        reader.skip(count * SCALARS[inner])
    else:
        for _ in range(count):
            _value(reader, inner, depth + 1)
    return None


def weigh(tensors: dict[str, int], facts: dict[str, int | str]) -> Weights:
    """The sizes of a model, from all its files together; `facts` of the first."""
    architecture = facts.get("general.architecture", "")
    counts = [facts.get(f"{architecture}.{name}") for name in ("expert_count", "expert_used_count")]
    experts, used = (count if isinstance(count, int) and count > 0 else None for count in counts)
    return add_up(tensors, experts, used, "gguf")
