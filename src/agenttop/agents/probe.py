"""Probes: facts planted in a long prompt, asked for later, and what the answers show. Pure.

A document holds one fact at each depth and decoys that look alike. Every number belongs to a band of its
agent and to one document of it, so an answer tells where it comes from: the right fact, another region of the
same document, an earlier document, or another agent's prompt, which no slot or cache must ever let through.

    book = Book("salt")
    probe = Probe(settings, book, 3)
    lines = probe.plant()                # (depth, line) for the document
    asked = probe.ask()                  # Question: its text, and what is expected
    verdict, detail = judge(asked, book, text, finish_reason)
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import msgspec

NUMBERS = 32
"""A document holds fewer numbers than this: facts and decoys."""

_BANDS = 9_000
_BODIES = 100_000
"""A number is a band of four digits (1000 to 9999) and a body of five. Made-up digits hit one that may have
been planted with a chance of (agents + 64) x (documents + 2) x numbers in 900 million: for 256 agents with 10
documents of nine numbers each, one nine-digit number in 26,000. Generated text holds none of nine digits."""

_STRIDE = 7919
"""Prime to `_BANDS`, so that no two of 9000 agents share a band."""

_BACK = pow(_STRIDE, -1, _BANDS)

_AGENTS_AHEAD = 64
_DOCUMENTS_AHEAD = 2
"""Other driver processes may be ahead of this one by so much."""

RIGHT, WRONG_REGION, LEAKED, TRUNCATED, NO_ANSWER = (
    "right", "wrong-region", "leaked", "truncated", "no-answer"
)  # fmt: skip
VERDICTS = (RIGHT, WRONG_REGION, LEAKED, TRUNCATED, NO_ANSWER)

_PLACE_LIST = (
    "amber basalt cedar delta ember fjord garnet harbor indigo juniper kestrel lagoon meadow nectar onyx "
    "prairie quartz raven saffron tundra umber violet willow xenon yarrow zephyr alder birch cobalt dune elm"
)
PLACES = _PLACE_LIST.split()

LINE_CHARS = 56
"""A planted line is no longer."""

ROOM = 4
"""A document is at least so many times as long as the lines planted in it."""

_NINE = re.compile(r"(?<!\d)\d{9}(?!\d)")
_GROUPED = re.compile(r"(?<!\d)(\d{3})([ ,._\u00a0\u202f'-])(\d{3})\2(\d{3})(?!\d)")
_LAST_DIGITS = re.compile(r"(\d{3,8})\s*$")


DEFAULT_ASK = "What is the access code of station {name}? Answer with the number only."


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[probe]` of a profile."""

    depths: tuple[float, ...] = (0.15, 0.5, 0.85)
    """Where facts stand in a document, as shares of its length."""
    decoys: int = 6
    """Lines that look like a fact and are none."""
    every: int = 3
    """A fact is asked for in every so many turns; 1: with the document itself, too."""
    output: int = 32
    """Tokens the answer may have."""
    ask: str = DEFAULT_ASK
    """The question; `{name}` stands for the place that is asked about."""


class Owner(msgspec.Struct, frozen=True):
    """Whose a number is."""

    agent: int
    document: int
    index: int
    """Among the numbers of the document: first the facts by depth, then the decoys."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that is asked for."""

    text: str
    depth: float
    number: str
    owner: Owner
    facts: int
    """How many of the document's numbers are facts."""
    numbers: int
    """How many it holds."""
    depths: tuple[float, ...]


class Book:
    """All numbers of a session. The same in every driver process: it is computed, not kept."""

    def __init__(self, salt: str) -> None:
        rng = random.Random(f"agenttop:{salt}:probe")
        self._offset = rng.randrange(_BANDS)
        self._factor = rng.randrange(10_001, 99_999, 10)  # ends in 1: prime to _BODIES
        self._shift = rng.randrange(_BODIES)
        self._inverse = pow(self._factor, -1, _BODIES)
        self.agents = 0
        """The highest number of an agent that has planted something here."""
        self.documents = 0
        """The most documents an agent has planted here."""

    def number(self, owner: Owner) -> str:
        """Nine digits. Two owners have different numbers, up to 9000 agents with 3125 documents each."""
        band = (owner.agent * _STRIDE + self._offset) % _BANDS + 1000
        place = (owner.document * NUMBERS + owner.index) % _BODIES
        return f"{band:04d}{(place * self._factor + self._shift + band) % _BODIES:05d}"

    def planted(self, owner: Owner) -> None:
        """Keep in mind how far the agents are."""
        self.agents = max(self.agents, owner.agent)
        self.documents = max(self.documents, owner.document + 1)

    def owner(self, number: str, numbers: int) -> Owner | None:
        """Whose a number is; None when none of the agents can have planted it. `numbers`: in a document."""
        band, body = int(number[:4]), int(number[4:])
        if not 1000 <= band < 1000 + _BANDS:
            return None
        agent = (band - 1000 - self._offset) * _BACK % _BANDS
        document, index = divmod((body - self._shift - band) * self._inverse % _BODIES, NUMBERS)
        if agent > self.agents + _AGENTS_AHEAD or document >= self.documents + _DOCUMENTS_AHEAD:
            return None
        return Owner(agent, document, index) if index < numbers else None


class Probe:
    """The facts of one agent: planted document by document, asked for in turn."""

    def __init__(self, settings: Probes, book: Book, agent: int, seed: int = 0) -> None:
        self._settings = settings
        self._book = book
        self._agent = agent
        self._document = -1
        self._rng = random.Random(f"agenttop:{seed}:{agent}:probe")
        self._names: list[str] = []
        self._order: list[int] = []
        self._since = 0

    def plant(self) -> list[tuple[float, str]]:
        """(depth, line) for a new document; those of the one before are no longer asked for."""
        settings = self._settings
        self._document += 1
        self._since = 0
        count = len(settings.depths) + settings.decoys
        self._names = self._rng.sample(PLACES, count)
        for index in range(len(settings.depths), count, 2):  # the same place, another code
            self._names[index] = self._names[index % len(settings.depths)]
        self._order = []
        lines = [(depth, self._line(index)) for index, depth in enumerate(settings.depths)]
        lines += [
            (self._rng.uniform(0.02, 0.98), self._line(len(settings.depths) + index))
            for index in range(settings.decoys)
        ]
        return lines

    @property
    def size_chars(self) -> int:
        """About what the lines of a document come to."""
        return LINE_CHARS * (len(self._settings.depths) + self._settings.decoys)

    def lose(self) -> None:
        """The document has left the context: nothing can be asked until another one is planted."""
        self._names = []

    @property
    def wants_document(self) -> bool:
        """Nothing is planted now."""
        return not self._names

    def due(self) -> bool:
        """One more turn is about to be made, that of the document being the first: whether it is to ask."""
        self._since += 1
        return bool(self._names) and self._since % self._settings.every == 0

    def ask(self) -> Question:
        """The next question; every depth comes up before one comes up again."""
        settings = self._settings
        if not self._order:
            self._order = self._rng.sample(range(len(settings.depths)), len(settings.depths))
        index = self._order.pop()
        owner = Owner(self._agent, self._document, index)
        return Question(
            text=settings.ask.replace("{name}", self._names[index]),
            depth=settings.depths[index],
            number=self._book.number(owner),
            owner=owner,
            facts=len(settings.depths),
            numbers=len(settings.depths) + settings.decoys,
            depths=settings.depths,
        )

    def _line(self, index: int) -> str:
        owner = Owner(self._agent, self._document, index)
        self._book.planted(owner)
        what = "code" if index < len(self._settings.depths) else self._rng.choice(("spare code", "old code"))
        return f"# station {self._names[index]}: access {what} {self._book.number(owner)}"


def judge(
    asked: Question, book: Book, text: str, finish_reason: str | None, reasoned: bool = False
) -> tuple[str, str]:
    """(verdict, detail) of an answer. The first number that somebody planted decides.

    `reasoned`: reasoning came before the text, and may have used up what was allowed.
    """
    depth = f"depth {asked.depth:.0%}"
    for number in _numbers(text):
        if number == asked.number:
            return RIGHT, depth
        owner = book.owner(number, asked.numbers)
        if owner is None:
            continue
        if owner.agent != asked.owner.agent:
            return LEAKED, f"{depth}: the number is agent {owner.agent}'s"
        if owner.document > asked.owner.document:
            continue  # made up: nothing has been planted there yet
        return WRONG_REGION, f"{depth}: {_region(owner, asked)}"
    if finish_reason == "length":
        if not text.strip() and reasoned:
            return TRUNCATED, f"{depth}: reasoning used up the answer"
        cut = _LAST_DIGITS.search(text)
        if cut is not None and asked.number.startswith(cut[1]) and not _breaks_off_elsewhere(text, cut):
            return TRUNCATED, f"{depth}: cut off after {len(cut[1])} digits"
    return NO_ANSWER, depth if text.strip() else f"{depth}: empty"


def _breaks_off_elsewhere(text: str, cut: re.Match[str]) -> bool:
    """Whether the digits are the end of a longer run, or of a number of another kind."""
    before = text[: cut.start(1)]
    return bool(before) and before[-1] in "0123456789.,"


def _numbers(text: str) -> Iterator[str]:
    """Numbers of nine digits, as such or in groups of three, in the order they stand."""
    found = [(match.start(), match[0]) for match in _NINE.finditer(text)]
    found += [(match.start(), match[1] + match[3] + match[4]) for match in _GROUPED.finditer(text)]
    yield from (number for _, number in sorted(found))


def _region(owner: Owner, asked: Question) -> str:
    if owner.document != asked.owner.document:
        return "a number of an earlier document of this agent"
    if owner.index >= asked.facts:
        return f"decoy {owner.index - asked.facts + 1}"
    return f"the fact of depth {asked.depths[owner.index]:.0%}"
