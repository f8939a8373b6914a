"""A profile file to a Profile, or to the list of everything that is wrong with it."""

from __future__ import annotations

import difflib
import math
import re
from typing import Any

import msgspec
import tomli

from agenttop.agents.distribution import KINDS, Distribution
from agenttop.agents.keys import BY_PATH, KEYS, SECTIONS, Key
from agenttop.agents.settings import Profile
from agenttop.model.text import clean


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a profile file. `line` counts from 1; None when it belongs to the whole file."""

    line: int | None
    key: str | None
    text: str

    def sentence(self, file: str) -> str:
        """`file:line: key: what is wrong`."""
        where = file if self.line is None else f"{file}:{self.line}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


def parse(text: str, name: str) -> tuple[Profile | None, list[Problem]]:
    """The profile in `text`, or None and every problem found, in the order of the file."""
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else max(1, len(text.splitlines()))
        return None, [Problem(line, None, f"not TOML: {clean(str(error))}")]
    except RecursionError:
        return None, [Problem(None, None, "not TOML: nested too deeply")]
    reader = _Reader(_lines(text))
    reader.read(data)
    if reader.problems:
        return None, sorted(reader.problems, key=lambda problem: problem.line or 0)
    start = reader.values["start"]
    if start.get("kind") == "at-once":
        start.setdefault("stagger_s", 0.0)
    profile = msgspec.convert({"name": name, "agents": 4, **reader.values}, Profile)
    problems = _contradictions(profile, reader)
    return (None, problems) if problems else (profile, [])


class _Reader:
    """Walks the parsed file; gathers values section by section, and problems."""

    def __init__(self, lines: dict[str, int]) -> None:
        self._lines = lines
        self.problems: list[Problem] = []
        self.values: dict[str, Any] = {section: {} for section in SECTIONS}

    def report(self, key: str, text: str) -> None:
        self.problems.append(Problem(self.line(key), clean(key, 80), text))

    def line(self, key: str) -> int | None:
        """The line of a key, or of the nearest thing around it that has one."""
        while key:
            if key in self._lines:
                return self._lines[key]
            key = key.rpartition(".")[0]
        return None

    def read(self, data: dict[str, Any]) -> None:
        seen: set[str] = set()
        for name, value in data.items():
            if name in SECTIONS:
                if not isinstance(value, dict):
                    self.report(name, f"expected a section [{name}]")
                    continue
                for inner, inner_value in value.items():
                    self._take(f"{name}.{inner}", inner_value, seen)
            else:
                self._take(name, value, seen)
        for key in KEYS:
            if key.required and key.path not in seen:
                self.report(key.path, f"missing; expected {key.expected()} ({key.doc.lower()})")

    def _take(self, path: str, value: Any, seen: set[str]) -> None:
        key = BY_PATH.get(path)
        if key is None:
            near = _nearest(path)
            self.report(path, "not a key of a profile" + (f"; nearest: {near}" if near else ""))
            return
        seen.add(path)
        problem, parsed = _value(key, value)
        if problem:
            self.report(path, problem)
            return
        section, _, name = path.rpartition(".")
        (self.values[section] if section else self.values)[name] = parsed


def _nearest(path: str) -> str | None:
    known = [*BY_PATH, *SECTIONS]
    close = difflib.get_close_matches(path, known, n=1, cutoff=0.6)
    if not close:  # right name, wrong section
        close = [key for key in BY_PATH if key.rpartition(".")[2] == path.rpartition(".")[2]]
    return close[0] if close else None


def _value(key: Key, value: Any) -> tuple[str | None, Any]:
    """(problem, None) or (None, value)."""
    wrong = f"expected {key.expected()}, found {_show(value)}"
    if key.kind == "text":
        return (None, clean(value)) if isinstance(value, str) and value.strip() else (wrong, None)
    if key.kind == "choice":
        return (None, value) if value in key.choices else (wrong, None)
    if key.kind == "flag":
        return (None, value) if isinstance(value, bool) else (wrong, None)
    if key.kind == "spread" and isinstance(value, dict):
        return _distribution(value, key)
    number = _number(value)
    if number is None or not key.low <= number <= key.high:
        return wrong, None
    if key.kind == "spread":
        return None, {"kind": "constant", "value": number}
    if key.kind == "whole":
        return (None, int(number)) if number == int(number) else (wrong, None)
    return None, number


def _number(value: Any) -> float | None:
    """A number; sizes may be written `"32k"`."""
    if isinstance(value, str) and (short := re.fullmatch(r"(\d+(?:\.\d+)?)([kM])", value)):
        return float(short[1]) * (1e3 if short[2] == "k" else 1e6)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _distribution(value: dict[str, Any], key: Key) -> tuple[str | None, Any]:
    kind = value.get("kind")
    if kind not in KINDS:
        names = ", ".join(f'"{name}"' for name in KINDS)
        return f"kind: expected one of {names}, found {_show(kind)}", None
    allowed = {*KINDS[kind], *(() if kind == "constant" else ("min", "max"))}
    fields: dict[str, Any] = {"kind": kind}
    for name, raw in value.items():
        if name == "kind":
            continue
        if name not in allowed:
            return f"{name}: not a figure of {kind}; expected {', '.join(sorted(allowed))}", None
        number = _number(raw)
        if number is None or (name not in ("mu", "sigma") and not 0 <= number <= key.high):
            return f"{name}: expected a number from 0 to {key.high:.12g}, found {_show(raw)}", None
        if (name == "sigma" and not 0 <= number <= 10) or (name == "mu" and abs(number) > 30):
            return f"{name}: {number:g} is not a sensible figure of a log-normal", None
        fields[name] = number
    missing = [name for name in KINDS[kind] if name not in fields]
    if missing:
        return f"{kind} needs {' and '.join(missing)}", None
    if fields.get("min", 0) > fields.get("max", math.inf):
        return f"min ({fields['min']:g}) is above max ({fields['max']:g})", None
    return None, msgspec.to_builtins(msgspec.convert(fields, Distribution))


def _contradictions(profile: Profile, reader: _Reader) -> list[Problem]:
    """What no single key shows."""
    context, compaction = profile.context, profile.compaction
    found: list[Problem] = []

    def note(key: str, text: str) -> None:
        found.append(Problem(reader.line(key), key, text))

    target = compaction.to_fraction * context.limit
    if target <= context.system:
        note(
            "compaction.to_fraction",
            f"{target:.0f} tokens after a compaction is not more than the system prompt ({context.system})",
        )
    if context.system + context.first.lowest >= context.limit:
        note("context.system", f"system prompt and first message do not fit into the limit ({context.limit})")
    if target + profile.turn.input.lowest + profile.turn.output.lowest >= context.limit:
        note("turn.input", f"not one turn fits between a compaction and the limit ({context.limit})")
    if compaction.summary >= context.limit:
        note("compaction.summary", f"not below context.limit ({context.limit})")
    if profile.start.kind == "at-once" and profile.start.stagger_s > 0:
        note("start.stagger_s", "contradicts start.kind at-once")
    if profile.pacing.tool_turns is not None and profile.pacing.human_pause_s is None:
        note("pacing.tool_turns", "means nothing without pacing.human_pause_s")
    return found


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'"{clean(value, 40)}"'
    if isinstance(value, bool):
        return str(value).lower()
    return clean(str(value), 40)


_SECTION = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")


def _lines(text: str) -> dict[str, int]:
    """The line on which each section and key stands. TOML parsers do not tell."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _SECTION.match(line):
            section = match[1].replace('"', "").replace("'", "").replace(" ", "")
            found.setdefault(section, number)
        elif match := _KEY.match(line):
            name = match[1].replace('"', "").replace("'", "").replace(" ", "")
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found
