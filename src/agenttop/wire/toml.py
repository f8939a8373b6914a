"""TOML text to its values and the lines they stand on: for files that people write."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import tomli

from agenttop.model.text import clean


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a file. `line` counts from 1; None when it belongs to the whole file."""

    line: int | None
    key: str | None
    text: str
    set: bool = False
    """The key does not stand in the file: the user has set it."""

    def sentence(self, file: str) -> str:
        """`file:line: key: what is wrong`."""
        where = "--set" if self.set else file if self.line is None else f"{file}:{self.line}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


class NotTomlError(ValueError):
    """The text is no TOML; `problem` says where."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


def read(text: str) -> dict[str, Any]:
    """The values. Raises NotTomlError."""
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else max(1, len(text.splitlines()))
        raise NotTomlError(Problem(line, None, f"not TOML: {clean(str(error))}")) from None
    except RecursionError:
        raise NotTomlError(Problem(None, None, "not TOML: nested too deeply")) from None


_SECTION = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_ITEM = re.compile(r"\s*\[\[\s*([^\[\]]+?)\s*\]\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")


def lines_of(text: str) -> dict[str, int]:
    """The line on which each section and key stands. TOML parsers do not tell.

    Sections of a list, `[[engine]]`, are counted: `engine.0`, `engine.1`, with their keys `engine.0.url`.
    """
    found: dict[str, int] = {}
    section = ""
    items: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _ITEM.match(line):
            name = _bare(match[1])
            section = f"{name}.{items.get(name, 0)}"
            items[name] = items.get(name, 0) + 1
            found.setdefault(name, number)
            found.setdefault(section, number)
        elif match := _SECTION.match(line):
            section = _bare(match[1])
            found.setdefault(section, number)
        elif match := _KEY.match(line):
            name = _bare(match[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def line_near(lines: dict[str, int], key: str) -> int | None:
    """The line of a key, or of the nearest thing around it that has one."""
    while key:
        if key in lines:
            return lines[key]
        key = key.rpartition(".")[0]
    return None


def _bare(name: str) -> str:
    return name.replace('"', "").replace("'", "").replace(" ", "")
