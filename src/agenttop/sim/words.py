"""The output of a simulated engine: code-like text, four bytes a token, the same for one seed and prompt.

Every token is exactly one token of `sim.prompt` too: an answer that comes back in the next prompt has as many
tokens there as it had here.
"""

from __future__ import annotations

import random

import msgspec

from agenttop.sim.prompt import BYTES_PER_TOKEN

_RING_TOKENS = 1 << 13
_VERBS = "open load scan push pull emit bind walk trim join"
_NOUNS = "node edge page view slot lane task unit flag span"
_SHAPES = (
    "def {v}_{n}({m}: int, limit: int = {k}) -> bool:\n    ",
    "for {n} in self.{v}_{m}(limit={k}):\n        ",
    "if {n}.{m} != {k}:\n        return {v}_{n}({m})\n    ",
    "{n} = {v}({m}, step={k})\n    ",
    "# {v} the {n} before the {m} is read again\n    ",
    'raise ValueError("no {n} to {v} in {m} {k}")\n\n',
)


class Words:
    """The ring of tokens that all replies of one engine are cut from."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"agenttop-sim:{seed}")
        self._seed = seed
        size = _RING_TOKENS * BYTES_PER_TOKEN
        self._text = _ring(rng, size)
        tokens = (self._text[at : at + BYTES_PER_TOKEN] for at in range(0, size, BYTES_PER_TOKEN))
        self._escaped = [msgspec.json.encode(token.decode("ascii"))[1:-1] for token in tokens]

    def start(self, mark: int) -> int:
        """Where the reply to a prompt begins (`Prompt.mark`)."""
        return random.Random(f"{self._seed}:{mark}").randrange(_RING_TOKENS)

    def text(self, start: int, count: int) -> bytes:
        """`count` tokens as ASCII."""
        parts = []
        at = start % _RING_TOKENS
        while count > 0:
            piece = min(count, _RING_TOKENS - at)
            parts.append(self._text[at * BYTES_PER_TOKEN : (at + piece) * BYTES_PER_TOKEN])
            count -= piece
            at = 0
        return b"".join(parts)

    def escaped(self, position: int) -> bytes:
        """One token as it stands inside a JSON string."""
        return self._escaped[position % _RING_TOKENS]


def _ring(rng: random.Random, size: int) -> bytes:
    verbs, nouns = _VERBS.split(), _NOUNS.split()
    parts: list[str] = []
    length = 0
    while length < size:
        shape = rng.choice(_SHAPES)
        line = shape.format(
            v=rng.choice(verbs), n=rng.choice(nouns), m=rng.choice(nouns), k=rng.randrange(100)
        )
        parts.append(line)
        length += len(line)
    return "".join(parts).encode("ascii")[:size]
