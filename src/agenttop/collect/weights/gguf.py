"""The header of a GGUF file: names and sizes of its tensors, and how many experts there are.

Source: the GGUF specification of ggml. A size follows from a tensor's type, and has to fit the offsets: for a
type that is not known, or means something else in the build that wrote the file, the distance to the next
tensor counts, padding and all.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple

from agenttop.collect.weights import ggml_types
from agenttop.collect.weights.sizes import Weights, add_up

MAGIC = b"GGUF"
LONGEST_HEADER = 256 * 1024**2
"""A vocabulary of a million words takes some 30 MB."""
MOST_TENSORS, MOST_KEYS, MOST_VALUES = 100_000, 10_000, 5_000_000
LONGEST_NAME = 4096
MOST_DIMENSIONS = 8
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

    def skip_texts(self, count: int) -> None:
        """Read over a list of texts: a vocabulary has some hundred thousand."""
        read, most = self._file.read, LONGEST_HEADER
        for _ in range(count):
            head = read(8)
            length = int.from_bytes(head, "little")
            self.at += 8 + length
            if self.at > most:
                raise NotGgufError("its header is longer than any")
            if len(head) != 8 or len(read(length)) != length:
                raise NotGgufError("it ends in the middle of its header")

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
    placed: list[_Placed] = []
    for _ in range(tensors):
        name = reader.text()
        dimensions = reader.number("<I")
        if dimensions > MOST_DIMENSIONS:
            raise NotGgufError("a tensor of it has too many dimensions")
        sizes = struct.unpack(f"<{dimensions}Q", reader.take(8 * dimensions))
        kind = reader.number("<I")
        placed.append(_Placed(reader.number("<Q"), name, ggml_types.size_of(kind, sizes)))
    step = _alignment(facts)
    return _sizes(placed, step, size - -(-reader.at // step) * step), facts


class _Placed(NamedTuple):
    """A tensor: where its data begin, and how long they are by its type."""

    offset: int
    name: str
    length: int | None


def _alignment(facts: Mapping[str, int | str]) -> int:
    told = facts.get("general.alignment", 32)
    return told if isinstance(told, int) and 0 < told <= 1 << 20 else 32


def _sizes(placed: list[_Placed], step: int, room: int) -> dict[str, int]:
    """Tensor to bytes, `room` for all of their data. Raises NotGgufError where they do not fit in."""
    placed.sort(key=lambda each: each.offset)
    found: dict[str, int] = {}
    for index, (offset, name, length) in enumerate(placed):
        last = index + 1 == len(placed)
        end = room if last else placed[index + 1].offset
        if offset > room or (last and length is not None and length > room - offset):
            raise NotGgufError("it ends before its last tensor does")
        if name in found:
            raise NotGgufError("two tensors of it have one name")
        distance = end - offset
        fits = length is not None and (last or length <= distance < length + step)
        found[name] = length if fits and length is not None else distance
    return found


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
    elif inner == STRING:
        reader.skip_texts(count)
    else:
        for _ in range(count):
            _value(reader, inner, depth + 1)
    return None


def weigh(
    tensors: Mapping[str, int], facts: Mapping[str, int | str], experts_used: int | None = None
) -> Weights:
    """The sizes of a model, from all its files together.

    Args:
        tensors: name to bytes.
        facts: of the first file.
        experts_used: what the server was told to use instead of what the file says.
    """
    experts, used, blocks, ahead = (
        _count(facts, name)
        for name in ("expert_count", "expert_used_count", "block_count", "nextn_predict_layers")
    )
    first_unused = blocks - ahead if blocks and ahead and ahead < blocks else None
    return add_up(tensors, experts, experts_used or used, "gguf", layers=first_unused)


def _count(facts: Mapping[str, int | str], name: str) -> int | None:
    """A number of the model's architecture, above 0."""
    told = facts.get(f"{facts.get('general.architecture', '')}.{name}")
    return told if isinstance(told, int) and 0 < told < 10**6 else None
