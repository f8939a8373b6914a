"""The model file, read back by an independent reading of the GGUF description."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agenttop.demo.gguf import TINY, VOCABULARY, Shape, write_tiny_gguf
from agenttop.errors import AgenttopError

_SCALARS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}


def unpack(file: BinaryIO, layout: str) -> Any:
    (value,) = struct.unpack(layout, file.read(struct.calcsize(layout)))
    return value


def read_string(file: BinaryIO) -> str:
    return file.read(unpack(file, "<Q")).decode()


def read_value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return read_string(file)
    if kind == 9:
        element, length = unpack(file, "<I"), unpack(file, "<Q")
        return [read_value(file, element) for _ in range(length)]
    return unpack(file, _SCALARS[kind])


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, bytes]]]:
    """Metadata, and per tensor its sizes, element type and data."""
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
        assert unpack(file, "<I") == 3
        tensors, pairs = unpack(file, "<Q"), unpack(file, "<Q")
        metadata = {read_string(file): read_value(file, unpack(file, "<I")) for _ in range(pairs)}
        infos = []
        for _ in range(tensors):
            name, rank = read_string(file), unpack(file, "<I")
            sizes = tuple(unpack(file, "<Q") for _ in range(rank))
            infos.append((name, sizes, unpack(file, "<I"), unpack(file, "<Q")))
        start = file.tell() + -file.tell() % 32
        data = {}
        for name, sizes, element, offset in infos:
            assert offset % 32 == 0
            length = 4 if element == 0 else 2
            for size in sizes:
                length *= size
            file.seek(start + offset)
            data[name] = (sizes, element, file.read(length))
            assert len(data[name][2]) == length
        assert not file.read().strip(b"\0")
    return metadata, data


def test_the_file_describes_the_shape(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "model.gguf", TINY)
    metadata, tensors = read_gguf(tmp_path / "model.gguf")
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.context_length"] == 32768
    assert metadata["llama.block_count"] == 2
    assert len(metadata["tokenizer.ggml.tokens"]) == len(set(metadata["tokenizer.ggml.tokens"])) == VOCABULARY
    assert metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.eos_token_id"]] == "<|im_end|>"
    assert len(tensors) == 3 + 9 * TINY.layers
    assert tensors["blk.1.ffn_down.weight"][:2] == ((160, 64), 1)
    assert tensors["blk.1.attn_k.weight"][:2] == ((64, 32), 1)
    assert tensors["output_norm.weight"][:2] == ((64,), 0)


def test_the_blocks_leave_the_constant_channel_alone(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "model.gguf", TINY)
    _, tensors = read_gguf(tmp_path / "model.gguf")
    width = TINY.width
    for layer in range(TINY.layers):
        for norm in ("attn_norm", "ffn_norm"):
            assert struct.unpack_from("<2f", tensors[f"blk.{layer}.{norm}.weight"][2]) == (0.0, 1.0)
        for name, row in (("attn_output", width), ("ffn_down", TINY.feed_forward)):
            data = tensors[f"blk.{layer}.{name}.weight"][2]
            assert not any(data[: 2 * row])
            assert any(data[2 * row : 4 * row])
    embeddings = struct.unpack(f"<{width * VOCABULARY}e", tensors["token_embd.weight"][2])
    assert len(set(embeddings[::width])) == 1
    biases = struct.unpack(f"<{width * VOCABULARY}e", tensors["output.weight"][2])[::width]
    assert biases[3 + ord(" ")] > biases[3 + ord("z")] > biases[3 + ord("\x1b")] == biases[2]


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tiny_gguf(tmp_path / name, TINY, seed)
    first, second, third = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == second
    assert first != third
    assert len(first) == len(third)


def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(AgenttopError, match=r"cannot write the demo model .*taken: .*AGENTTOP_CACHE"):
        write_tiny_gguf(tmp_path / "taken", TINY)
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    "shape", [Shape(width=100, heads=8), Shape(width=72, heads=8), Shape(heads=8, kv_heads=3)]
)
def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path, shape: Shape) -> None:
    with pytest.raises(ValueError, match="heads"):
        write_tiny_gguf(tmp_path / "model.gguf", shape)
    assert not list(tmp_path.iterdir())
