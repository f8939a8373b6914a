"""Keys of a profile set by the user: `context.limit=32k` and the like, applied to what a file says.

A value is written as in the file, or short: `32k`, `2m` (for a key in seconds), `every` without quotes,
`none` for a key that may be left out. What belongs to a distribution can be set by itself:
`turn.input.median=800` keeps its shape, `turn.input.max=4000` sets a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import tomli

from agenttop.agents.distribution import Distribution
from agenttop.agents.keys import BY_PATH, Key
from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.model.units import parse_duration

Check = Callable[[Key, Any], tuple[str | None, Any]]
"""(problem, None) or (None, the value as it is kept)."""


def read_settings(texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as overrides; a later one of the same key wins. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise UsageError(f"--set '{clean(text, 60)}' is not KEY=VALUE", "e.g. --set context.limit=32k")
        found[key.strip()] = value.strip()
    return found


def set_notes(overrides: Mapping[str, str]) -> list[str]:
    """What the user has set, in words, for the plan of a load."""
    if not overrides:
        return []
    chosen = ", ".join(f"{path} = {value}" for path, value in overrides.items())
    return [f"set by hand: {clean(chosen, 1000)}"]


def apply(data: dict[str, Any], overrides: Mapping[str, str], check: Check) -> list[tuple[str, str]]:
    """Put the overrides into `data`, a parsed profile file; returns (key, what is wrong) where that fails.

    Whether a value suits its key is left to the check of the whole file.
    """
    problems: list[tuple[str, str]] = []
    for path, text in overrides.items():
        value = _value(path, text)
        base, _, figure = path.rpartition(".")
        key = BY_PATH.get(path)
        if key is None and (spread := BY_PATH.get(base)) is not None and spread.kind == "spread":
            problem = _set_figure(data, spread, figure, value, check)
            if problem:
                problems.append((path, problem))
        elif value == "none" and key is not None and not key.required and key.kind != "choice":
            _table(data, base).pop(figure, None)
        else:
            _table(data, base)[figure] = value
    _let_go(data, overrides)
    return problems


def _let_go(data: dict[str, Any], overrides: Mapping[str, str]) -> None:
    """What the file says about a choice that the user has changed goes with it, unless it was set too."""
    start, pacing = _table(data, "start"), _table(data, "pacing")
    gone: list[tuple[dict[str, Any], str, str]] = []
    if "start.kind" in overrides:
        if start.get("kind") in ("at-once", "spread", "steady"):
            gone.append((start, "start", "stagger_s"))
        if start.get("kind") != "spread":
            gone.append((start, "start", "cycle_s"))
    if "pacing.human_pause_s" in overrides and "human_pause_s" not in pacing:
        gone.append((pacing, "pacing", "tool_turns"))
    for table, section, name in gone:
        if f"{section}.{name}" not in overrides:
            table.pop(name, None)


def _value(path: str, text: str) -> Any:
    """What was written, as TOML reads it; a word without quotes is text."""
    text = text.strip()
    try:
        value = tomli.loads(f"value = {text}")
    except (tomli.TOMLDecodeError, RecursionError):
        value = {"value": text}
    found = value["value"] if len(value) == 1 else text
    if isinstance(found, str) and path.endswith("_s"):
        try:
            return parse_duration(found)
        except UsageError:
            pass  # it is said with what would have been right
    return found


def _table(data: dict[str, Any], section: str) -> dict[str, Any]:
    """The section of a file, made if need be. Where no section may stand, a loose one: the check finds it."""
    if not section:
        return data
    inner = data.setdefault(section, {})
    return inner if isinstance(inner, dict) else {}


def _set_figure(data: dict[str, Any], key: Key, figure: str, value: Any, check: Check) -> str | None:
    """Set one figure of a distribution; returns what is wrong."""
    section, _, name = key.path.rpartition(".")
    table = _table(data, section)
    problem, standing = check(key, table.get(name, 0))
    if problem:
        return problem
    if figure != "median":
        table[name] = {**standing, figure: value}
        return None
    problem, wanted = check(key, value)
    if problem or wanted["kind"] != "constant":
        return f"expected a number from 0 to {key.high:.12g}"
    moved = msgspec.convert(standing, Distribution).with_median(wanted["value"])
    table[name] = _plain(moved, key.high)
    return None


def _plain(distribution: Distribution, high: float) -> dict[str, Any]:
    """As it stands in a file; bounds that moved out of what the key allows are drawn in."""
    plain: dict[str, Any] = msgspec.to_builtins(distribution)
    if "max" in plain:
        plain["max"] = min(plain["max"], high)
    return plain
