"""Code-like text of a wanted size in tokens, without a tokenizer.

How many characters a token has is learnt from the engine's own counts of the prompts it was sent. The
text itself is drawn from a pool of lines: no request ever costs more than joining a few of them.
"""

from __future__ import annotations

import random

_VERB_LIST = (
    "read parse merge check build send write index split match fetch store apply reduce encode resolve"
)
_NOUN_LIST = (
    "header buffer record request session column cursor packet policy bucket matrix symbol handle region"
)
_TEXT = (
    "keeps the order of the input and skips what was seen before when the caller asks for a retry of the "
    "last block so that no lock is held while the file is moved unless the limit has been reached already"
)
_VERBS, _NOUNS, _WORDS = _VERB_LIST.split(), _NOUN_LIST.split(), _TEXT.split()
_TYPES = ("int", "str", "bytes", "float", "list[int]", "dict[str, int]", "Path")

_POOL_SIZE = 4096
_BLOCK_LINES = 16
_BLOCKS = 1024
_BIG_CHARS = 20_000
"""From here on text is made of blocks of lines: 64,000 tokens within a fraction of a millisecond."""


def _line(rng: random.Random) -> str:
    verb, noun, other = rng.choice(_VERBS), rng.choice(_NOUNS), rng.choice(_NOUNS)
    number = rng.randrange(10_000)
    shape = rng.randrange(8)
    if shape == 0:
        return f"def {verb}_{noun}(self, {other}: {rng.choice(_TYPES)}, limit: int = {number}) -> bool:\n"
    if shape == 1:
        return f"    {noun} = self.{verb}_{other}({noun}[{number % 97}:{number}], strict=True)\n"
    if shape == 2:
        return f"    if {noun}.{other}_id != {number} and not {other}.closed:\n"
    if shape == 3:
        return f"        raise ValueError('{noun} {number}: cannot {verb} {other}')\n"
    if shape == 4:
        return f"    # {' '.join(rng.choices(_WORDS, k=9))}\n"
    if shape == 5:
        return f"src/{noun}/{verb}_{other}.py:{number}: {rng.choice(_WORDS)} {rng.choice(_WORDS)}\n"
    if shape == 6:
        return f'    {{"{noun}": {number}, "{other}": "{verb}-{number % 311}", "ok": true}},\n'
    return f"    return [{verb}({other}) for {other} in {noun}s if {other} > {number}]\n"


class TextSource:
    """Lines of one agent: the same seed gives the same text, different salts never the same beginning."""

    def __init__(self, salt: str, number: int | str) -> None:
        self._rng = random.Random(f"agenttop:{salt}:{number}:text")
        self.name = f"{salt}-{number}"
        """What no other agent of any session has."""
        self._first = f"# task {self.name}\n"

    def opening(self, chars: int) -> str:
        """Text that begins with a line no other agent and no other run has: nothing of it is cached."""
        return (self._first + self.text(max(0, chars - len(self._first))))[: max(chars, 1)]

    def text(self, chars: int) -> str:
        """Exactly `chars` characters of code-like text."""
        lines, blocks, mean = _pool()
        parts: list[str] = []
        size = 0
        if chars > _BIG_CHARS:
            parts = self._rng.choices(blocks, k=int(chars / mean / _BLOCK_LINES * 0.9))
            size = sum(map(len, parts))
        while size < chars:
            more = self._rng.choices(lines, k=int((chars - size) / mean) + 2)
            parts += more
            size += sum(map(len, more))
        return "".join(parts)[:chars]

    def word(self) -> str:
        """A name such as a function or a tool has."""
        return f"{self._rng.choice(_VERBS)}_{self._rng.choice(_NOUNS)}"

    def path(self) -> str:
        """The path of a source file."""
        return f"src/{self._rng.choice(_NOUNS)}/{self.word()}_{self._rng.randrange(10_000)}.py"


_cached: tuple[list[str], list[str], float] | None = None


def _pool() -> tuple[list[str], list[str], float]:
    """The lines, blocks of them, and the mean length of a line, made once a process."""
    global _cached
    if _cached is None:
        rng = random.Random("agenttop:lines")
        lines = [_line(rng) for _ in range(_POOL_SIZE)]
        blocks = ["".join(rng.choices(lines, k=_BLOCK_LINES)) for _ in range(_BLOCKS)]
        _cached = (lines, blocks, sum(map(len, lines)) / len(lines))
    return _cached


SAMPLE_CHARS = 4000


def sample() -> str:
    """A piece of typical text for an engine that counts tokens on request."""
    return TextSource("sample", 0).text(SAMPLE_CHARS)
