"""Prometheus text to values, without I/O.

Reads the text format 0.0.4 and the samples of an OpenMetrics body alike: families and TYPE lines are ignored,
a sample is its name and its labels. (Fed with the other format, strict parsers split `x_total` off its
family or refuse the body.) What is no sample is skipped: comments, HTML, JSON, a line cut short.

A server is read again and again, and all but the values of its lines stays the same: a `Reader` keeps what
stands before the values (`HEADS` lines at most), so that from the second time on a line costs one look into
that and one number. `docs/benchmarks.md` has the figures.
"""

from __future__ import annotations

import re
from collections.abc import Collection

Labels = dict[str, str]
"""Shared between samples and replies: not to be changed."""
Samples = dict[str, list[tuple[Labels, float]]]
"""Sample name to its series. Values may be NaN or infinite, as the server wrote them."""

HEADS = 20_000
"""Lines of which a reader keeps what stands before the value; beyond that it begins anew."""
LONGEST_HEAD = 600

# A label value in quotes may hold `}`, `,` and `#`; exemplars (`# {...} 1`) come after the value and are
# never reached. The look-behind wants a blank or the closing brace before the value, so that a name
# without a value does not lend its last letters to one.
_SAMPLE = re.compile(
    r"([a-zA-Z_:][\w:]*)"
    r'(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]*(?<=[}\s])([^\s{}]+)'
)
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")

_LABEL = re.compile(r'([a-zA-Z_][\w.]*|"(?:[^"\\]|\\.)*")\s*=\s*"((?:[^"\\]|\\.)*)"')

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
# The newer syntax for names with any characters: {"a.b", label="x"} 1
_QUOTED = re.compile(rf"\{{\s*({_TEXT})\s*,?((?:[^\"}}\n]|{_TEXT})*)\}}[ \t]*(\S+)")

_ESCAPE = re.compile(r"\\(.)")


_Head = tuple[str, Labels, str | None]
"""Name, labels, and the value where it is not what comes after the last blank."""


class Reader:
    """Reads one server's replies for the samples that are wanted."""

    def __init__(self, wanted: str | Collection[str] | None = None) -> None:
        """`wanted`: a prefix of names (a string), exact names (a collection), or None for all."""
        self._prefix = wanted if isinstance(wanted, str) else None
        self._names = None if wanted is None or isinstance(wanted, str) else frozenset(wanted)
        self._heads: dict[str, _Head | None] = {}
        self._labels: dict[str, Labels] = {}

    def read(self, text: str) -> Samples:
        """Name to [(labels, value)], in the order of the text.

        Never raises: a value that is no number drops its line.
        """
        found: Samples = {}
        known = self._heads
        for line in text.split("\n"):
            head, _, value_text = line.rpartition(" ")
            hit = known[head] if head in known else self._new(line, head, value_text)
            if hit is None:
                continue
            name, labels, other = hit
            try:
                value = float(value_text if other is None else other)
            except ValueError:
                continue
            if name in found:
                found[name].append((labels, value))
            else:
                found[name] = [(labels, value)]
        return found

    def _new(self, line: str, head: str, tail: str) -> _Head | None:
        """What a line that is read for the first time begins with; None where it is not wanted."""
        match = name = None
        if line.startswith("{"):
            match = _QUOTED.match(line)
            name = _unescape(match[1][1:-1]) if match else None
        elif begin := _NAME.match(line):
            name = begin[0]
            if not self._is_wanted(name):
                if begin.end() < len(head):
                    self._keep(head, None)
                return None
            match = _SAMPLE.match(line)
        elif head.startswith("#"):
            self._keep(head, None)
        if match is None or name is None or not self._is_wanted(name):
            return None
        labels = self._labelled(match[2] or "")
        if match[3] != tail:  # a time stamp or an exemplar comes after the value
            return name, labels, match[3]
        self._keep(head, (name, labels, None))
        return name, labels, None

    def _keep(self, head: str, what: _Head | None) -> None:
        if len(head) <= LONGEST_HEAD:
            if len(self._heads) >= HEADS:
                self._heads.clear()
            self._heads[head] = what

    def _is_wanted(self, name: str) -> bool:
        if self._names is not None:
            return name in self._names
        return self._prefix is None or name.startswith(self._prefix)

    def _labelled(self, text: str) -> Labels:
        labels = self._labels.get(text)
        if labels is None:
            labels = {_plain(key): _unescape(value) for key, value in _LABEL.findall(text)}
            if len(text) <= LONGEST_HEAD:
                if len(self._labels) >= HEADS:
                    self._labels.clear()
                self._labels[text] = labels
        return labels


def parse(text: str, wanted: str | Collection[str] | None = None) -> Samples:
    """All samples of one text, or those `wanted`; see `Reader`, which is faster when it reads again."""
    return Reader(wanted).read(text)


def total(samples: Samples, name: str) -> float | None:
    """The sum of all series of `name` (one per engine, rank or replica); None when there are none."""
    series = samples.get(name)
    return sum(value for _, value in series) if series else None


def _plain(key: str) -> str:
    return _unescape(key[1:-1]) if key.startswith('"') else key


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
