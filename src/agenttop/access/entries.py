"""`engines.toml`: how single engines are reached, one `[[engine]]` for each.

    [[engine]]
    url = "https://box2:8443"
    api-key-file = "box2.key"        # or api-key-env = "BOX2_KEY"
    ca-file = "~/our-ca.pem"
    proxy = false
    metrics = false
    weights = "5.5 GB"               # of its model, where its files cannot be seen
    active-weights = "5.1 GB"        # read to decode one token: less than all of a mixture of experts

The keys themselves do not stand in it: such files are copied, shown and put under version control.
"""

from __future__ import annotations

import difflib
import re
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec

from agenttop.access.key import is_name
from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.model.url import normalise, origin_of
from agenttop.oslayer import at_home
from agenttop.smallfile import read_text
from agenttop.wire import toml
from agenttop.wire.toml import Problem

_TEXTS = ("url", "api-key-env", "api-key-file", "ca-file")
_FLAGS = ("proxy", "metrics")
_SIZES = ("weights", "active-weights")
_KEYS = (*_TEXTS, *_FLAGS, *_SIZES)
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?(GB|GiB|MB|MiB)")
_UNITS = {"GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20}
_UNCHECKED = ("insecure", "verify", "tls-verify", "skip-verify")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[engine]]`. Paths are absolute."""

    origin: str
    """`scheme://host:port` that it is for."""
    where: str
    """`FILE:LINE`."""
    api_key_env: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    proxy: bool | None = None
    metrics: bool | None = None
    weights_bytes: int | None = None
    active_weights_bytes: int | None = None


def read(file: Path) -> list[Entry]:
    """The entries of a file; none when there is no such file.

    Raises UsageError with one line for each mistake: file, line, key, and what is wrong.
    """
    if not file.exists() and not file.is_symlink():
        return []
    text = read_text(file, "a list of engines")
    _refuse_writable(file)
    try:
        data = toml.read(text)
    except toml.NotTomlError as error:
        raise UsageError(error.problem.sentence(str(file))) from None
    reader = _Reader(file, toml.lines_of(text))
    entries = reader.entries(data)
    if reader.problems:
        raise UsageError("\n".join(problem.sentence(str(file)) for problem in reader.problems))
    return entries


def _refuse_writable(file: Path) -> None:
    """Whoever may write it says which file's first line is sent to which server."""
    if sys.platform != "win32" and file.stat().st_mode & stat.S_IWOTH:
        raise UsageError(f"{file}: anybody may write to it", f"chmod o-w {file}")


class _Reader:
    """Walks the parsed file; gathers problems."""

    def __init__(self, file: Path, lines: dict[str, int]) -> None:
        self._file = file
        self._lines = lines
        self.problems: list[Problem] = []

    def entries(self, data: dict[str, Any]) -> list[Entry]:
        """What stands under `engine`."""
        for name in data:
            if name != "engine":
                self._report(name, "not a key of this file; expected [[engine]]", name)
        tables = data.get("engine", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._report("engine", "expected [[engine]], in two pairs of brackets", "engine")
            return []
        found: dict[str, Entry] = {}
        for number, table in enumerate(tables):
            entry = self._entry(table, f"engine.{number}")
            if entry is None:
                continue
            if entry.origin in found:
                earlier = found[entry.origin].where.rpartition(":")[2]
                text = f"there is an entry for {entry.origin} already, in line {earlier}"
                self._report("url", text, f"engine.{number}.url")
            found[entry.origin] = entry
        return list(found.values())

    def _entry(self, table: dict[str, Any], path: str) -> Entry | None:
        before = len(self.problems)
        for key, value in table.items():
            problem = _wrong(key, value)
            if problem is not None:
                self._report(key, problem, f"{path}.{key}")
        if "url" not in table:
            self._report("url", 'missing; expected the address of an engine, "https://box2:8443"', path)
        if "api-key-env" in table and "api-key-file" in table:
            self._report(
                "api-key-file", "stands beside api-key-env: one key is enough", f"{path}.api-key-file"
            )
        if "active-weights" in table and "weights" not in table:
            self._report("active-weights", "stands without weights", f"{path}.active-weights")
        if len(self.problems) > before:
            return None
        try:
            origin = origin_of(normalise(table["url"]))
        except UsageError as error:
            self._report("url", str(error), f"{path}.url")
            return None
        return Entry(
            origin=origin,
            where=f"{self._file}:{toml.line_near(self._lines, path) or 1}",
            api_key_env=table.get("api-key-env"),
            api_key_file=self._place(table.get("api-key-file")),
            ca_file=self._place(table.get("ca-file")),
            proxy=table.get("proxy"),
            metrics=table.get("metrics"),
            weights_bytes=_bytes(table.get("weights")),
            active_weights_bytes=_bytes(table.get("active-weights")),
        )

    def _place(self, written: str | None) -> str | None:
        """A path of the file: it counts from where the file lies."""
        if written is None:
            return None
        return str((self._file.parent / at_home(written)).absolute())

    def _report(self, key: str, text: str, path: str) -> None:
        self.problems.append(Problem(toml.line_near(self._lines, path), clean(key, 60), text))


def _bytes(written: str | None) -> int | None:
    """`5.5 GB` in bytes; the text has been checked."""
    match = _SIZE.fullmatch(written or "")
    return round(float(match[1]) * _UNITS[match[2]]) if match is not None else None


def _wrong(key: str, value: Any) -> str | None:
    """What is wrong with one line; None: nothing. A value is not repeated: it may be a key."""
    if key == "api-key":
        return "a key does not stand in this file: put it into a file of its own, api-key-file = FILE"
    if key.lower() in _UNCHECKED:
        return "certificates are always checked: name the CA with ca-file = FILE"
    if key not in _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.6)
        return "not a key of an engine" + (
            f"; nearest: {near[0]}" if near else f"; known: {', '.join(_KEYS)}"
        )
    if key in _FLAGS:
        return None if isinstance(value, bool) else "expected true or false"
    if not isinstance(value, str) or not value.strip():
        return "expected text in quotes"
    if key in _SIZES:
        return None if _bytes(value) else 'expected a size like "5.5 GB", in GB, GiB, MB or MiB'
    if key == "api-key-env" and not is_name(value):
        return "expected the name of an environment variable, which a key is not"
    try:
        at_home(value if key.endswith("-file") else "")
    except UsageError:
        return "it begins with ~ and a name, and there is no home folder of that name"
    return None
