"""Write a small llama-architecture model with random weights: a GGUF file, by the standard library alone.

Layout of a GGUF v3 file, everything little-endian:

    "GGUF" | version u32 = 3 | tensor count u64 | metadata count u64
    metadata:  key string | value type u32 | value           (once per pair)
    tensors:   name string | dimensions u32 | size u64 each | element type u32 | offset u64
    padding up to a multiple of 32
    tensor data, each tensor padded to a multiple of 32; offsets count from here

A string is its length in bytes (u64) and its UTF-8 bytes; an array is element type u32, length u64 and the
elements. The first size of a tensor is the one that lies contiguous in memory: a matrix that maps `a`
values to `b` values is (a, b), stored as b rows of a.

Random weights alone would babble control characters and end each reply after a few tokens. So one channel of
the residual stream carries a constant: every embedding puts it there, the blocks neither read nor write
it, and the output matrix turns it into one fixed bias per token. The bias is the logarithm of how frequent a
letter is in English, and very low for all else, end of text included. What comes out is letters,
spaces and full stops without meaning, one character per token, until the request's limit is reached.
"""

from __future__ import annotations

import math
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agenttop.errors import AgenttopError

_ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
"""Metadata value types."""
_TENSOR_F32, _TENSOR_F16 = 0, 1
"""Tensor element types."""

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_END_OF_TEXT, _END_OF_TURN = 0, 2
_NORMAL_TOKEN, _CONTROL_TOKEN = 1, 3
VOCABULARY = len(_SPECIAL) + 256
"""Tokens: three special ones and one for each byte."""

_CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# How often each character comes in a hundred characters of English, roughly.
_FREQUENCY = {
    " ": 18.0, "e": 10.2, "t": 7.4, "a": 6.6, "o": 6.1, "i": 5.7, "n": 5.7, "s": 5.2, "r": 4.9, "h": 4.9,
    "l": 3.3, "d": 3.4, "u": 2.3, "c": 2.2, "m": 2.0, "f": 1.8, "w": 1.9, "g": 1.6, "y": 1.6, "p": 1.5,
    "b": 1.2, "v": 0.8, "k": 0.6, "x": 0.14, "j": 0.11, "q": 0.09, "z": 0.06, ",": 1.0, ".": 1.0, "\n": 0.4,
}  # fmt: skip
_NEVER = -40.0
"""Logit of a token that must not come."""
_SPREAD = 1.0
"""Standard deviation of the random part of a logit, so that the text depends on the context."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a model. The defaults give 26 MB and a pace that an eye can follow.

    One undisturbed core of a 2022 server CPU decodes four streams at 110 tokens a second each, and prefills
    800 tokens a second; on a laptop, or with other work around, it is half of that.
    """

    width: int = 384
    """Length of the residual stream; `heads` divides it into heads of an even length."""
    layers: int = 8
    heads: int = 6
    kv_heads: int = 2
    """Key and value heads; divides `heads`. The KV cache takes 4 * layers * kv_heads * width / heads bytes
    a token."""
    feed_forward: int = 1024
    context: int = 32768
    """Context length the model claims to be trained for, in tokens."""

    @property
    def head_width(self) -> int:
        """Values a head works on."""
        return self.width // self.heads


TINY = Shape(width=64, layers=2, heads=4, kv_heads=2, feed_forward=160)
"""A model for tests: under 1 MB, hundreds of tokens a second on one core."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One tensor: its sizes, contiguous one first, and what makes its rows of values."""

    name: str
    sizes: tuple[int, ...]
    rows: Callable[[random.Random], Iterator[bytes]]

    @property
    def element(self) -> int:
        """Vectors are stored in full precision, as llama.cpp wants them; matrices in half."""
        return _TENSOR_F32 if len(self.sizes) == 1 else _TENSOR_F16

    @property
    def length(self) -> int:
        """Bytes of data, without padding."""
        return math.prod(self.sizes) * (4 if self.element == _TENSOR_F32 else 2)


def write_tiny_gguf(path: Path, shape: Shape | None = None, seed: int = 0) -> None:
    """Write the model to `path` in one step: whoever opens it sees a whole file or none.

    The same shape and seed give the same bytes. Takes about a second for the default shape.

    Raises:
        AgenttopError: the file cannot be written; nothing is left behind.
        ValueError: the shape does not fit together.
    """
    shape = shape or Shape()
    _check(shape)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            tensors = _tensors(shape)
            file.write(_header(shape, tensors))
            source = random.Random(seed)
            for tensor in tensors:
                for row in tensor.rows(source):
                    file.write(row)
                file.write(_padding(tensor.length))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise AgenttopError(
            f"cannot write the demo model {path}: {reason}",
            "the demo's takes 26 MB; AGENTTOP_CACHE names another directory",
        ) from error


def _check(shape: Shape) -> None:
    if shape.width % shape.heads or shape.head_width % 2:
        raise ValueError(f"{shape.heads} heads do not divide a width of {shape.width} into even parts")
    if shape.heads % shape.kv_heads:
        raise ValueError(f"{shape.kv_heads} key-value heads do not divide {shape.heads} heads")


# --- header ---------------------------------------------------------------------------------------


def _header(shape: Shape, tensors: Sequence[_Tensor]) -> bytes:
    metadata = _metadata(shape)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata)), *metadata]
    offset = 0
    for tensor in tensors:
        sizes = struct.pack(f"<I{len(tensor.sizes)}Q", len(tensor.sizes), *tensor.sizes)
        parts.append(_string(tensor.name) + sizes + struct.pack("<IQ", tensor.element, offset))
        offset += tensor.length + len(_padding(tensor.length))
    header = b"".join(parts)
    return header + _padding(len(header))


def _metadata(shape: Shape) -> list[bytes]:
    """What llama.cpp needs to build the network, the tokenizer and the chat prompt."""
    tokens = [*_SPECIAL, *_byte_tokens()]
    kinds = [_CONTROL_TOKEN] * len(_SPECIAL) + [_NORMAL_TOKEN] * 256
    return [
        _text("general.architecture", "llama"),
        _text("general.name", "agenttop demo (random weights)"),
        _number("general.file_type", 1),
        _number("llama.context_length", shape.context),
        _number("llama.embedding_length", shape.width),
        _number("llama.block_count", shape.layers),
        _number("llama.feed_forward_length", shape.feed_forward),
        _number("llama.attention.head_count", shape.heads),
        _number("llama.attention.head_count_kv", shape.kv_heads),
        _string("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", _F32, 1e-5),
        _number("llama.rope.dimension_count", shape.head_width),
        _number("llama.vocab_size", len(tokens)),
        _text("tokenizer.ggml.model", "gpt2"),
        _text("tokenizer.ggml.pre", "gpt-2"),
        _array("tokenizer.ggml.tokens", _STRING, b"".join(map(_string, tokens)), len(tokens)),
        _array("tokenizer.ggml.token_type", _I32, struct.pack(f"<{len(kinds)}i", *kinds), len(kinds)),
        # llama.cpp insists on merges. This one makes no token of the vocabulary, so bytes stay single.
        _array("tokenizer.ggml.merges", _STRING, _string("Ġ Ġ"), 1),
        _number("tokenizer.ggml.bos_token_id", _END_OF_TEXT),
        _number("tokenizer.ggml.eos_token_id", _END_OF_TURN),
        _string("tokenizer.ggml.add_bos_token") + struct.pack("<I?", _BOOL, False),
        _text("tokenizer.chat_template", _CHAT_TEMPLATE),
    ]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", _STRING) + _string(value)


def _number(key: str, value: int) -> bytes:
    return _string(key) + struct.pack("<II", _U32, value)


def _array(key: str, element: int, data: bytes, length: int) -> bytes:
    return _string(key) + struct.pack("<IIQ", _ARRAY, element, length) + data


def _padding(length: int) -> bytes:
    return bytes(-length % _ALIGNMENT)


def _byte_tokens() -> list[str]:
    """The 256 bytes as GPT-2 spells them: a printable character each, those without one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


# --- weights --------------------------------------------------------------------------------------


def _tensors(shape: Shape) -> list[_Tensor]:
    width, kv_width, inner = shape.width, shape.kv_heads * shape.head_width, shape.feed_forward
    tensors = [
        _Tensor("token_embd.weight", (width, VOCABULARY), lambda source: _embedding_rows(source, shape)),
        _Tensor("output_norm.weight", (width,), lambda _: _ones(width)),
        _Tensor("output.weight", (width, VOCABULARY), lambda source: _output_rows(source, shape)),
    ]
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        tensors += [
            _Tensor(f"{block}.attn_norm.weight", (width,), lambda _: _deaf_ones(width)),
            _matrix(f"{block}.attn_q.weight", width, width),
            _matrix(f"{block}.attn_k.weight", width, kv_width),
            _matrix(f"{block}.attn_v.weight", width, kv_width),
            _matrix(f"{block}.attn_output.weight", width, width, mute=True),
            _Tensor(f"{block}.ffn_norm.weight", (width,), lambda _: _deaf_ones(width)),
            _matrix(f"{block}.ffn_gate.weight", width, inner),
            _matrix(f"{block}.ffn_up.weight", width, inner),
            _matrix(f"{block}.ffn_down.weight", inner, width, mute=True),
        ]
    return tensors


def _matrix(name: str, inputs: int, outputs: int, mute: bool = False) -> _Tensor:
    """Random weights that keep the variance of their input; `mute` leaves the constant channel alone."""

    def rows(source: random.Random) -> Iterator[bytes]:
        draw = _normal_halves(source, 1 / math.sqrt(inputs), inputs)
        for output in range(outputs):
            yield bytes(2 * inputs) if mute and output == 0 else draw()

    return _Tensor(name, (inputs, outputs), rows)


def _ones(width: int) -> Iterator[bytes]:
    yield struct.pack(f"<{width}f", *[1.0] * width)


def _deaf_ones(width: int) -> Iterator[bytes]:
    """A norm that hides the constant channel from what follows."""
    yield struct.pack(f"<{width}f", 0.0, *[1.0] * (width - 1))


def _constant(shape: Shape) -> float:
    """Value of the constant channel: three times the length of what the blocks pile up beside it.

    Each embedding has variance 1 a channel and each layer adds about 1, so after the last norm the constant
    is 0.95 sqrt(width) and the other channels have a standard deviation of about 0.3.
    """
    return 3.0 * math.sqrt(shape.width * (1 + shape.layers))


def _embedding_rows(source: random.Random, shape: Shape) -> Iterator[bytes]:
    draw = _normal_halves(source, 1.0, shape.width)
    constant = struct.pack("<e", _constant(shape))
    for _ in range(VOCABULARY):
        yield constant + draw()[2:]


def _output_rows(source: random.Random, shape: Shape) -> Iterator[bytes]:
    draw = _normal_halves(source, _SPREAD / (0.3 * math.sqrt(shape.width)), shape.width)
    for bias in _token_biases():
        yield struct.pack("<e", bias / (0.95 * math.sqrt(shape.width))) + draw()[2:]


def _token_biases() -> Iterator[float]:
    for _ in _SPECIAL:
        yield _NEVER
    for byte in range(256):
        frequency = _FREQUENCY.get(chr(byte))
        yield _NEVER if frequency is None else math.log(frequency)


def _normal_halves(source: random.Random, deviation: float, count: int) -> Callable[[], bytes]:
    """A function that gives `count` normally distributed halves at each call.

    Drawing each weight by itself would take half a minute for the default shape, so the rows are
    slices, from random places, of one pool of 16384 weights: a different one for each tensor.
    """
    size = 16384
    drawn = struct.pack(f"<{size}e", *(source.gauss(0.0, deviation) for _ in range(size)))
    pool = drawn * (1 + -(-count // size))

    def draw() -> bytes:
        start = 2 * source.randrange(size)
        return pool[start : start + 2 * count]

    return draw
