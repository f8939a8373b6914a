"""What every reader gets and gives: JSON values of a file, requests, and what could not be used."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from agenttop.agents.tracefile import MOST_TOKENS
from agenttop.errors import AgenttopError
from agenttop.model.text import clean

Values = Iterator[tuple[str, dict[str, Any]]]
"""Where each object of a file stands, and the object."""

LONGEST_LINE = 64 * 2**20
"""Bytes of one line, or of one element of an array, that are held in memory."""

LONGEST_DOCUMENT = 512 * 2**20
"""Bytes of a file that is a single JSON object."""

ABSENT_S = 366 * 86_400.0
"""A pause beyond this is a mistake."""

LONGEST_BLANK = 2**20
"""Bytes of nothing before the first object."""

FIRST_FEW = 5
"""So many lines that could not be used are named; the others are counted."""

BYTES_PER_TOKEN = 4.0
"""Where a source holds text and no counts. UTF-8 bytes, not characters, so that scripts with more tokens per
character come out larger. A rule of thumb, off by a third either way."""

MESSAGE_TOKENS = 4
"""What a chat template adds to a message, about."""


class UnusableError(ValueError):
    """A line or a request that cannot be used; the message says why."""


@dataclass
class Request:
    """One request as the source tells it. Times are seconds on any clock of its own."""

    prompt: int
    output: int
    kind: str = "tool"
    ready_s: float | None = None
    """When it was sent, or could have been."""
    end_s: float | None = None
    """When its reply had ended."""
    pause_s: float | None = None
    """Before it, where the source says so itself."""
    cached: int | None = None
    text: str | None = None
    compacted: bool = False
    """The source says that the context was shortened before it."""


@dataclass
class Recorded:
    """One conversation as the source tells it."""

    name: str
    requests: list[Request] = field(default_factory=list)
    system: int | None = None
    parent: str | None = None


@dataclass
class Report:
    """What was read, and what could not be used."""

    skipped: int = 0
    named: list[str] = field(default_factory=list)
    """The first few: `file:line: reason`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Whole things that are left out on purpose, and how many."""
    notes: list[str] = field(default_factory=list)
    estimated: bool = False
    """Sizes come from the length of text."""

    def skip(self, place: str, reason: str) -> None:
        """Something damaged at `place` is not used."""
        self.skipped += 1
        if len(self.named) < FIRST_FEW:
            self.named.append(f"{clean(place, 160)}: {clean(reason, 120)}")

    def leave_out(self, what: str, count: int = 1) -> None:
        """Something sound that is not part of a conversation."""
        if count:
            self.left_out[what] = self.left_out.get(what, 0) + count

    def note(self, text: str) -> None:
        """Said once, however often it applies."""
        if text not in self.notes:
            self.notes.append(text)


class Source:
    """A file as a sequence of JSON objects, with the place of each. gzip is recognised by its first bytes."""

    def __init__(self, path: Path, report: Report) -> None:
        self.path = path
        self.report = report

    def values(self) -> Generator[tuple[str, dict[str, Any]], None, None]:
        """(place, object) of each line, of each element of an array, or of the one document.

        Damage is reported and passed over. Raises AgenttopError when the file cannot be opened.
        """
        with _opened(self.path) as stream:
            try:
                yield from self._values(stream)
            except (OSError, EOFError, zlib.error) as error:
                self.report.skip(str(self.path), f"cannot be read to its end: {error}")

    def _values(self, stream: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        head = _first_bytes(stream)
        if not head:
            return
        if head.startswith(b"["):
            yield from self._elements(stream, head)
            return
        lines = _lines(stream, head)
        number, first = next(((n, line) for n, line in lines if line is None or line.strip()), (0, b""))
        if first is not None and first.lstrip().startswith(b"{") and not _is_json(first):
            whole = self._document(first, lines)
            if whole is not None:
                yield str(self.path), whole
                return
            number, first = 0, None
            stream.seek(0)
            lines = _lines(stream, _first_bytes(stream))
        if number:
            yield from self._line(number, first)
        for number, line in lines:
            yield from self._line(number, line)

    def _document(self, first: bytes, lines: Iterator[tuple[int, bytes | None]]) -> dict[str, Any] | None:
        """The file as one JSON object over several lines; None when it is not."""
        parts, size = [first], len(first)
        for _, line in lines:
            if line is None or size > LONGEST_DOCUMENT or (len(parts) == 1 and _is_object(line)):
                return None  # the last: lines of which the first is damaged
            parts.append(line)
            size += len(line)
        try:
            value = msgspec.json.decode(b"".join(parts))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _line(self, number: int, line: bytes | None) -> Iterator[tuple[str, dict[str, Any]]]:
        place = f"{self.path}:{number}"
        if line is None:
            self.report.skip(place, f"longer than {LONGEST_LINE // 2**20} MiB")
        elif line.strip():
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.report.skip(place, "not JSON")
                return
            if isinstance(value, dict):
                yield place, value
            else:
                self.report.skip(place, "not a JSON object")

    def _elements(self, stream: IO[bytes], head: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        """The objects of an array that need not fit into memory as a whole."""
        decoder = json.JSONDecoder()
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        text = utf8.decode(head)[1:]
        number, wanted = 0, 2**16
        while True:
            text = text.lstrip(" \t\r\n,")
            if text.startswith("]"):
                return
            try:
                if not text:
                    raise ValueError
                value, end = decoder.raw_decode(text)
            except (ValueError, RecursionError) as error:
                more = utf8.decode(stream.read(wanted))
                wanted = min(wanted * 2, LONGEST_LINE)
                if more and len(text) <= LONGEST_LINE and not isinstance(error, RecursionError):
                    text += more
                    continue
                self.report.skip(f"{self.path} element {number + 1}", "not JSON; the rest cannot be read")
                return
            text, wanted = text[end:], 2**16
            number += 1
            if isinstance(value, dict):
                yield f"{self.path} element {number}", value
            else:
                self.report.skip(f"{self.path} element {number}", "not a JSON object")


def _opened(path: Path) -> IO[bytes]:
    try:
        if path.exists() and not path.is_file():
            raise AgenttopError(f"{path}: not a regular file")  # a device may never end
        stream = path.open("rb")
        if stream.read(2) == b"\x1f\x8b":
            stream.close()
            return cast(IO[bytes], gzip.open(path, "rb"))
        stream.seek(0)
        return stream
    except FileNotFoundError:
        raise AgenttopError(f"{path}: no such file") from None
    except OSError as error:
        raise AgenttopError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _first_bytes(stream: IO[bytes]) -> bytes:
    """The first non-blank byte and what was read with it, without a byte order mark.

    Empty where a file is blank, or for so long that nobody has written it.
    """
    head = stream.read(4096).removeprefix(b"\xef\xbb\xbf")
    while not head.strip():
        more = stream.read(4096)
        if not more or len(head) > LONGEST_BLANK:
            return b""
        head += more
    return head.lstrip() if head.lstrip().startswith(b"[") else head


def _lines(stream: IO[bytes], head: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(number, line) with numbers from 1; None for a line too long to hold."""
    number = 0
    rest = head
    while True:
        line, mark, rest = rest.partition(b"\n")
        if not mark:
            line += stream.readline(LONGEST_LINE)
            rest = b""
        if not line and not mark:
            return
        number += 1
        if len(line) >= LONGEST_LINE and not line.endswith(b"\n"):
            while (more := stream.readline(LONGEST_LINE)) and not more.endswith(b"\n"):
                pass
            yield number, None
            continue
        yield number, line


def _is_object(line: bytes) -> bool:
    return line.startswith(b"{") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# Values of foreign objects


def tokens(value: dict[str, Any], key: str, default: int | None = None) -> int:
    """A count of tokens. Raises UnusableError when it is missing, or no number a prompt could have."""
    found = value.get(key)
    if found is None and default is not None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise UnusableError(f"{key}: expected a number of tokens, found {_shown(found)}")
    if not 0 <= found <= MOST_TOKENS:
        raise UnusableError(f"{key}: {found:.12g} is not a number of tokens")
    return round(found)


def seconds(value: dict[str, Any], key: str, unit_s: float = 1.0) -> float | None:
    """A time; None when it is not told. Raises UnusableError when it is no number."""
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise UnusableError(f"{key}: expected a number, found {_shown(found)}")
    return float(found) * unit_s


def pause(value: dict[str, Any], key: str, unit_s: float = 1.0) -> float | None:
    """A pause; None when it is not told. Raises UnusableError when it is negative or beyond reason."""
    found = seconds(value, key, unit_s)
    if found is not None and not 0 <= found <= ABSENT_S:
        raise UnusableError(f"{key}: {found:g} s is not a pause")
    return found


def objects(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects. Raises UnusableError when it is something else."""
    found = value.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UnusableError(f"{key}: expected a list of objects")
    return found


def text_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def content_text(content: Any) -> str:
    """The text of a message: a string, or parts of which some have text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            inner = part.get("text", part.get("content"))
            parts.append(inner if isinstance(inner, str) else content_text(inner))
    return "\n".join(part for part in parts if part)


def compact_json(value: Any) -> str:
    """A JSON value as text, for its length."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _shown(value: Any) -> str:
    return "nothing" if value is None else clean(str(value), 40)
