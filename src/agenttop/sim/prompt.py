"""Prompts as a simulated engine sees them: so many tokens, in blocks that equal prefixes share. No tokenizer.

A token is four bytes of UTF-8. A prompt is the byte string of all its messages, each with a marker of three
tokens before it and one after it, padded to whole tokens, cut into the blocks of the KV cache. The hash of a
block covers all that stands before it, so two prompts share exactly the blocks of their common beginning, as
in vLLM's prefix cache. Hashes are the same in every process: nothing here depends on Python's hash seed.

Conversations grow at their end. So what one message adds is kept by what stood before it, and the next
turn of a context of 100,000 tokens costs only its new messages.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

BYTES_PER_TOKEN = 4
"""The ratio of text to tokens, fixed; real tokenizers need 3 to 4.5 bytes for a token of code."""

MESSAGE_TOKENS = 4
"""What a message costs beyond its text: three tokens before it, one after it."""
_AFTER = b"\x01end"

_KEPT_BLOCKS = 1_500_000
"""What the memory of messages may hold: 8 bytes each."""


class Message(msgspec.Struct):
    """One message of a chat request; parts that are no text count by the size of their JSON."""

    role: str = "user"
    content: str | list[Any] | dict[str, Any] | None = None
    tool_calls: list[Any] | None = None

    def text(self) -> str:
        """All of it as one text."""
        if isinstance(self.content, str):
            text = self.content
        else:
            text = _parts(self.content) if self.content is not None else ""
        if self.tool_calls:
            text += msgspec.json.encode(self.tool_calls).decode()
        return text


def _parts(value: list[Any] | dict[str, Any]) -> str:
    """The text of a list of parts; of anything else its JSON."""
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        texts = [part.get("text") for part in value]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts)
    return msgspec.json.encode(value).decode()


class _State(msgspec.Struct, frozen=True, gc=False):
    """How far a prompt has been read: the chain over its whole blocks, and the bytes of the next one."""

    chain: int = 0
    tail: bytes = b""


class _Piece(msgspec.Struct, gc=False):
    """What one message adds."""

    blocks: array[int]
    state: _State
    tokens: int


class Prompt(msgspec.Struct):
    """One prompt, read."""

    tokens: int
    blocks: array[int]
    """Hashes of its whole blocks; the tokens of the last, incomplete one have none."""
    state: _State
    mark: int
    """The same for the same prompt in every process; picks the text of the reply."""


class PromptReader:
    """Reads prompts; remembers the messages it has seen."""

    def __init__(self, block_tokens: int = 16) -> None:
        """`block_tokens`: tokens of a KV block; 16 is vLLM's default."""
        self._cut = _Cut(block_tokens)
        self._seen: OrderedDict[tuple[_State, str, int, int], _Piece] = OrderedDict()
        self._kept = 0

    def chat(self, messages: Iterable[Message], tools: bytes = b"") -> Prompt:
        """A chat request: tool schemas, then its messages, up to the marker that the reply begins with."""
        pieces: list[_Piece] = []
        state = _State()
        if tools:
            state = self._add(pieces, state, "tools", tools.decode("utf-8", "replace"))
        text = ""
        for message in messages:
            text = message.text()
            state = self._add(pieces, state, message.role, text)
        pieces.append(self._cut.read(state, _before("assistant")))
        return _whole(pieces, text)

    def plain(self, text: str) -> Prompt:
        """A prompt of the older completions API: text and nothing else, at least one token."""
        data = _padded(text.encode("utf-8", "replace") or b" ")
        return _whole([self._cut.read(_State(), data)], text)

    def with_reply(self, prompt: Prompt, text: bytes) -> array[int]:
        """Hashes of the blocks of prompt and reply, `text` being the reply: what the next turn will find."""
        blocks = array("q", prompt.blocks)
        blocks.extend(self._cut.read(prompt.state, text).blocks)
        return blocks

    def _add(self, pieces: list[_Piece], state: _State, role: str, text: str) -> _State:
        key = (state, role, hash(text), len(text))
        piece = self._seen.get(key)
        if piece is None:
            data = _before(role) + _padded(text.encode("utf-8", "replace")) + _AFTER
            piece = self._seen[key] = self._cut.read(state, data)
            self._kept += len(piece.blocks) + 8
            while self._kept > _KEPT_BLOCKS and len(self._seen) > 1:
                _, oldest = self._seen.popitem(last=False)
                self._kept -= len(oldest.blocks) + 8
        else:
            self._seen.move_to_end(key)
        pieces.append(piece)
        return piece.state


def count(text: str) -> int:
    """Tokens of a bare text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def _whole(pieces: list[_Piece], text: str) -> Prompt:
    blocks = array("q")
    for piece in pieces:
        blocks.extend(piece.blocks)
    tokens = sum(piece.tokens for piece in pieces)
    state = pieces[-1].state
    mark = zlib.crc32(text[-4096:].encode("utf-8", "replace"), (state.chain ^ tokens) & 0xFFFFFFFF)
    return Prompt(tokens=tokens, blocks=blocks, state=state, mark=mark)


def _before(role: str) -> bytes:
    """The marker before a message: three tokens."""
    return b"\x01" + role.encode("utf-8", "replace")[:11].ljust(11)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % BYTES_PER_TOKEN)


class _Cut:
    """Cuts what is read into blocks."""

    def __init__(self, block_tokens: int) -> None:
        self._bytes = block_tokens * BYTES_PER_TOKEN
        words = f"<{self._bytes // 8}q" if self._bytes % 8 == 0 else f"<{block_tokens}i"
        self._each = struct.Struct(words).iter_unpack

    def read(self, state: _State, data: bytes) -> _Piece:
        """Append `data`, whole tokens, to what has been read."""
        chain = state.chain
        joined = state.tail + data
        whole = len(joined) - len(joined) % self._bytes
        blocks = array("q")
        append = blocks.append
        # Tuples of numbers hash alike in every process; 64 bits, so that no two blocks meet by accident.
        for words in self._each(memoryview(joined)[:whole]):
            chain = hash((chain, words))
            append(chain)
        return _Piece(blocks, _State(chain, joined[whole:]), len(data) // BYTES_PER_TOKEN)
