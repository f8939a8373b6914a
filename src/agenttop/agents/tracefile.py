"""The file of a trace: what recorded agents did, in sizes and pauses. A line for the head, one a session.

    {"agenttop_trace":1,"format":["claude-code"],"sessions":2,"turns":41, ...}
    {"session":"s1","system":15100,"turns":[{"in":24400,"out":216,"kind":"human"}, ...]}

`in` is the whole prompt, not what a turn adds to it: so every figure can be recomputed, and a replay that
drifts (a model that answers shorter than the recorded one did) finds back by itself. There are no names, no
absolute times and, unless asked for, no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from agenttop.errors import UsageError
from agenttop.model.text import clean

VERSION = 1

MOST_TOKENS = 4_000_000
"""A size beyond this is a mistake, not a prompt."""

LONGEST_PAUSE_S = 86_400.0
"""As in a profile. Who comes back after a weekend has a new day before him, not a pause behind."""

KINDS = ("tool", "human", "compact")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[trace]` of a profile: a recording of agents that is replayed."""

    file: str
    """The trace; in a profile's file relative to that."""
    subagents: bool = False
    """Sub-agents are sessions too: each is replayed as an agent of its own. Else they are left out."""
    size_factor: float = 1.0
    """On all sizes. Set when the profile is fitted to an engine, not in a file."""
    pause_factor: float = 1.0
    """On all pauses. Set when the load is hastened, not in a file."""


class TraceTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a recorded agent."""

    prompt: int = msgspec.field(name="in")
    """Tokens of the whole prompt."""
    output: int = msgspec.field(name="out")
    pause_s: float | None = None
    """Before it, since the end of the reply before; None: the source does not tell."""
    kind: str = "tool"
    """What the pause before was for: tool, human; or compact: the context was shortened before this turn."""
    cached: int | None = None
    """Prompt tokens that came from the prefix cache of the recorded engine."""
    text: str | None = None
    """What was added to the conversation, word for word; only on request."""


class TraceSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded conversation."""

    session: str
    turns: list[TraceTurn]
    system: int | None = None
    """Tokens of system prompt and tool schemas, where the source tells or lets them be estimated."""
    parent: str | None = None
    """The session that spawned this sub-agent."""


class TraceHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a trace comes from."""

    agenttop_trace: int
    format: list[str]
    sessions: int
    """Without sub-agents."""
    turns: int
    subagents: int = 0
    files: int = 1
    skipped: int = 0
    """Lines and requests of the source that could not be used."""
    sizes: str = "counted"
    """counted (by the recorded engine), or estimated (from the length of text)."""
    text: bool = False
    agenttop: str = ""
    notes: list[str] = []


_head = msgspec.json.Decoder(TraceHead)
_session = msgspec.json.Decoder(TraceSession)


class TraceFile:
    """A trace that lies in a file: where each session begins. Sessions are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError when it cannot be read, or is no trace."""
        self.path = path
        self.head: TraceHead
        self._main: list[int] = []
        self._all: list[int] = []
        try:
            with path.open("rb") as stream:
                self.head = _decode_head(path, stream.readline())
                self._index(stream)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
        if not self._main:
            raise UsageError(f"{path}: a trace without sessions")

    def __len__(self) -> int:
        """Sessions, without sub-agents."""
        return len(self._main)

    def session(self, number: int, subagents: bool = False) -> TraceSession:
        """Session `number` modulo their count, from 0. Raises UsageError when its line is damaged."""
        offsets = self._all if subagents else self._main
        with self.path.open("rb") as stream:
            stream.seek(offsets[number % len(offsets)])
            return _decode_session(self.path, stream.readline())

    def sessions(self) -> Iterator[TraceSession]:
        """All of them, sub-agents too, in the order of the file."""
        with self.path.open("rb") as stream:
            for offset in self._all:
                stream.seek(offset)
                yield _decode_session(self.path, stream.readline())

    def _index(self, stream: object) -> None:
        offset = stream.tell()  # type: ignore[attr-defined]
        for line in stream:  # type: ignore[attr-defined]
            if line.strip():
                session = _decode_session(self.path, line)
                self._all.append(offset)
                if session.parent is None:
                    self._main.append(offset)
            offset += len(line)


def _decode_head(path: Path, line: bytes) -> TraceHead:
    try:
        head = _head.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError(
            f"{path}: not a trace of agenttop", "`agenttop profile import FILE` makes one"
        ) from None
    if head.agenttop_trace > VERSION:
        raise UsageError(f"{path}: a trace of a newer agenttop (format {head.agenttop_trace})")
    return head


def _decode_session(path: Path, line: bytes) -> TraceSession:
    try:
        session = _session.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: a damaged session: {clean(str(error), 120)}") from None
    if not session.turns:
        raise UsageError(f"{path}: session {clean(session.session, 40)} has no turns")
    for turn in session.turns:
        sizes = 0 < turn.prompt <= MOST_TOKENS and 0 < turn.output <= MOST_TOKENS
        if not sizes or turn.kind not in KINDS or not 0 <= (turn.pause_s or 0) <= LONGEST_PAUSE_S:
            raise UsageError(f"{path}: session {clean(session.session, 40)} holds a turn beyond reason")
    return session


@lru_cache(maxsize=4)
def _opened(path: str, changed_ns: int, size: int) -> TraceFile:
    return TraceFile(Path(path))


def opened(path: str) -> TraceFile:
    """The trace at `path`, indexed once for all agents of a process. Raises UsageError."""
    try:
        found = Path(path).stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    return _opened(path, found.st_mtime_ns, found.st_size)
