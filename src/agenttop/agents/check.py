"""A profile file to a Profile, or to the list of everything that is wrong with it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agenttop.agents import overrides as user
from agenttop.agents.distribution import KINDS, Distribution
from agenttop.agents.keys import BY_PATH, KEYS, MOST_SHARES, OPTIONAL_SECTIONS, SECTIONS, Key
from agenttop.agents.probe import LINE_CHARS, PLACES, ROOM
from agenttop.agents.settings import Children, Profile, child_profile
from agenttop.model.text import clean
from agenttop.wire import toml
from agenttop.wire.toml import Problem


def parse(
    text: str, name: str, overrides: Mapping[str, str] | None = None
) -> tuple[Profile | None, list[Problem]]:
    """The profile in `text`, or None and every problem found, in the order of the file.

    `overrides`: keys set by the user, as written (`agenttop.agents.overrides`).
    """
    try:
        data = toml.read(text)
    except toml.NotTomlError as error:
        return None, [error.problem]
    reader = _Reader(toml.lines_of(text), overrides or {})
    reader.read(data)
    if reader.problems:
        return None, sorted(reader.problems, key=lambda problem: problem.line or 0)
    start = reader.values["start"]
    if start.get("kind") in ("at-once", "spread", "steady"):
        start.setdefault("stagger_s", 0.0)
    absent = OPTIONAL_SECTIONS - data.keys()
    values = {key: value for key, value in reader.values.items() if key not in absent}
    profile = msgspec.convert({"name": name, "agents": 4, **values}, Profile)
    problems = _contradictions(profile, reader)
    return (None, problems) if problems else (profile, [])


class _Reader:
    """Walks the parsed file; gathers values section by section, and problems."""

    def __init__(self, lines: dict[str, int], overrides: Mapping[str, str]) -> None:
        self._lines = lines
        self._overrides = overrides
        self.problems: list[Problem] = []
        self.values: dict[str, Any] = {section: {} for section in SECTIONS}

    def report(self, key: str, text: str) -> None:
        self.problems.append(self.problem(key, text))

    def problem(self, key: str, text: str) -> Problem:
        """A problem where it stands: in a line of the file, or in what the user has set."""
        name = clean(key, 80)
        if any(path == key or path.startswith(f"{key}.") for path in self._overrides):
            return Problem(None, name, text, set=True)
        return Problem(self.line(key), name, text)

    def contradiction(self, key: str, text: str) -> Problem:
        """As `problem`, with what the user has set, since that may be the other half of it."""
        problem = self.problem(key, text)
        if not self._overrides or problem.set:
            return problem
        chosen = ", ".join(f"{path}={value}" for path, value in self._overrides.items())
        return msgspec.structs.replace(problem, text=f"{text}, with --set {clean(chosen, 120)}")

    def line(self, key: str) -> int | None:
        """The line of a key, or of the nearest thing around it that has one."""
        return toml.line_near(self._lines, key)

    def read(self, data: dict[str, Any]) -> None:
        seen: set[str] = set()
        for path, text in user.apply(data, self._overrides, _value):
            self.report(path, text)
        for name, value in data.items():
            if name in SECTIONS:
                if not isinstance(value, dict):
                    self.report(name, f"expected a section [{name}]")
                    continue
                for inner, inner_value in value.items():
                    self._take(f"{name}.{inner}", inner_value, seen)
            else:
                self._take(name, value, seen)
        truncates = self.values["compaction"].get("kind") == "truncate"
        for key in KEYS:
            absent = key.section in OPTIONAL_SECTIONS and key.section not in data
            if absent or (truncates and key.path == "compaction.summary"):
                continue
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
        shown = clean(value) if isinstance(value, str) else ""
        return (None, shown) if shown.strip() else (wrong, None)
    if key.kind == "file":
        return (None, value) if isinstance(value, str) and value.strip() else (wrong, None)
    if key.kind == "shares":
        shares = [_number(item) for item in value] if isinstance(value, list) else []
        good = [share for share in shares if share is not None and 0 <= share <= 1]
        return (None, good) if good and len(good) == len(shares) <= MOST_SHARES else (wrong, None)
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
    allowed |= _LISTS if kind == "empirical" else set()
    fields: dict[str, Any] = {"kind": kind}
    for name, raw in value.items():
        if name == "kind":
            continue
        if name in allowed & _LISTS:
            problem, fields[name] = _list(name, raw, key)
            if problem:
                return problem, None
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
    if kind == "empirical" and (problem := _odd_lists(fields)):
        return problem, None
    if fields.get("min", 0) > fields.get("max", math.inf):
        return f"min ({fields['min']:g}) is above max ({fields['max']:g})", None
    return None, msgspec.to_builtins(msgspec.convert(fields, Distribution))


_LISTS = {"values", "weights", "quantiles"}
_MOST_VALUES = 10_000


def _list(name: str, raw: Any, key: Key) -> tuple[str | None, list[float]]:
    """A list of figures of an empirical distribution."""
    most = math.inf if name == "weights" else key.high
    numbers = [_number(item) for item in raw] if isinstance(raw, list) else []
    good = [number for number in numbers if number is not None and 0 <= number <= most]
    if not good or len(good) < len(numbers) or len(good) > _MOST_VALUES:
        return f"{name}: expected a list of 1 to {_MOST_VALUES} numbers from 0 to {most:.12g}", []
    return None, good


def _odd_lists(fields: dict[str, Any]) -> str | None:
    """What is wrong with the lists of an empirical distribution as a whole."""
    values, weights, quantiles = (fields.get(name) for name in ("values", "weights", "quantiles"))
    if (values is None) == (quantiles is None):
        return "empirical needs either values or quantiles"
    if weights is not None and (values is None or len(weights) != len(values) or sum(weights) <= 0):
        return "weights: expected one for each of values, not all 0"
    if quantiles is not None and (len(quantiles) < 2 or quantiles != sorted(quantiles)):
        return "quantiles: expected at least two, in rising order"
    return None


def _contradictions(profile: Profile, reader: _Reader) -> list[Problem]:
    """What no single key shows."""
    context, compaction = profile.context, profile.compaction
    found: list[Problem] = []

    def note(key: str, text: str) -> None:
        found.append(reader.contradiction(key, text))

    if compaction.summary >= context.limit:
        note("compaction.summary", f"not below context.limit ({context.limit})")
    target = context.fixed + compaction.summary
    if context.fixed + context.shared_document + context.first.lowest >= context.limit:
        note("context.system", f"system prompt and first message do not fit into the limit ({context.limit})")
    if target + profile.turn.input.lowest + profile.turn.output.lowest >= context.limit:
        what = f"{target} tokens of system prompt, tools and summary"
        note("turn.input", f"not one turn fits between {what} and the limit ({context.limit})")
    if profile.start.kind in ("at-once", "spread") and profile.start.stagger_s > 0:
        note("start.stagger_s", f"contradicts start.kind {profile.start.kind}")
    if profile.start.cycle_s is not None and profile.start.kind != "spread":
        note("start.cycle_s", "means nothing without start.kind spread")
    if profile.start.kind == "steady" and context.turns is not None:
        note("start.kind", "steady needs contexts that grow to their limit, not new ones (context.turns)")
    if context.shared_document and not context.shared_system:
        note("context.shared_document", "can be shared only behind a system prompt that is (shared_system)")
    if profile.pacing.tool_turns is not None and profile.pacing.human_pause_s is None:
        note("pacing.tool_turns", "means nothing without pacing.human_pause_s")
    for key, text in [*_trace_contradictions(profile), *_probe_contradictions(profile)]:
        note(key, text)
    if profile.children is not None:
        for key, text in _child_contradictions(profile, profile.children):
            note(f"children.{key}", text)
    return found


def _trace_contradictions(profile: Profile) -> list[tuple[str, str]]:
    """What does not go with a replay: (key, text)."""
    if profile.trace is None:
        return []
    found = []
    if profile.start.kind == "steady":
        found.append(("start.kind", "steady does not go with a trace, which starts where the recording did"))
    if profile.children is not None:
        found.append(("children.count", "a replay sends out no sub-agents; see trace.subagents"))
    return found


CHARS_PER_TOKEN = 3.0
"""Of generated text, about: how many is learnt from the engine, but not before it is asked."""


def _probe_contradictions(profile: Profile) -> list[tuple[str, str]]:
    """What does not fit about probes: (key, text)."""
    probes = profile.probe
    if probes is None:
        return []
    found = []
    if len(probes.depths) + probes.decoys > len(PLACES):
        found.append(("probe.decoys", f"facts and decoys are more than {len(PLACES)}"))
    lines = len(probes.depths) + probes.decoys
    needed = math.ceil(ROOM * LINE_CHARS * lines / CHARS_PER_TOKEN)
    if profile.context.first.median < needed:
        found.append(
            ("context.first", f"too short for {lines} planted lines: their document needs {needed} tokens")
        )
    if "{name}" not in probes.ask:
        found.append(("probe.ask", "does not say what is asked about: {name} is missing"))
    return found


def _child_contradictions(profile: Profile, children: Children) -> list[tuple[str, str]]:
    """What does not fit about sub-agents: (key within the section, text)."""
    found: list[tuple[str, str]] = []
    if (children.every is None) == (children.chance is None):
        found.append(("every", "expected either every or chance"))
    child = child_profile(profile)
    context = child.context
    if context.fixed >= child.compacted:
        found.append(("system", f"not below what a compaction leaves ({child.compacted} tokens)"))
    if context.fixed + context.shared_document + context.first.lowest >= context.limit:
        found.append(("first", f"does not fit into the limit with the system prompt ({context.limit})"))
    if children.shared_document and not profile.context.shared_system:
        found.append(("shared_document", "can be shared only behind a system prompt that is (shared_system)"))
    return found


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'"{clean(value, 40)}"'
    if isinstance(value, bool):
        return str(value).lower()
    return clean(str(value), 40)
