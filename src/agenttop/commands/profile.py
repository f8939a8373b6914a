"""`agenttop profile`: list, show or check agent profiles."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `profile`."""
    plain = argparse.ArgumentParser
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=plain)
    listing = actions.add_parser("list", help="profiles that come with agenttop, and your own")
    show = actions.add_parser("show", help="what a profile says, in words")
    show.add_argument("profile", metavar="NAME", help="a name from the list, or a .toml file")
    show.add_argument(
        "--context", type=int, metavar="TOKENS", help="as fitted to an engine with this context per request"
    )
    check = actions.add_parser("check", help="look for mistakes in profile files")
    check.add_argument("files", nargs="+", metavar="FILE", help="a .toml file, or the name of a profile")
    for action in (listing, show, check):
        action.add_argument("--json", action="store_true", help="one JSON object, schema 1")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 when a checked file has mistakes, 2 when there is nothing to show or check."""
    work = {"list": _list, "show": _show, "check": _check}[arguments.action]
    code, value, text = work(arguments)
    if arguments.json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **value}), indent=2).decode() + "\n"
    sys.stdout.write(text)
    return code


Result = tuple[int, dict[str, Any], str]
"""Exit code, JSON value, text."""


def _list(_: argparse.Namespace) -> Result:
    from agenttop import paths
    from agenttop.agents import profile as profiles
    from agenttop.errors import UsageError

    entries: list[dict[str, Any]] = []
    lines: list[str] = []
    own = paths.user_profiles()
    for name, file in profiles.found().items():
        entry: dict[str, Any] = {"name": name, "path": str(file), "own": file.parent == own}
        try:
            profile = profiles.read(file)
        except UsageError as error:
            first = str(error).splitlines()[0]
            entry["error"] = first
            lines.append(f"{name:<14} {'–':>6}  cannot be used: {first}")
        else:
            entry |= {"agents": profile.agents, "description": profile.description}
            lines.append(f"{name:<14} {profile.agents:>6}  {profile.description}")
        entries.append(entry)
    head = f"{'profile':<14} {'agents':>6}  what it imitates"
    foot = f"\nyour own profiles go to {own}"
    return 0, {"profiles": entries}, "\n".join([head, *lines, foot]) + "\n"


def _show(arguments: argparse.Namespace) -> Result:
    from agenttop.agents import profile as profiles

    name = arguments.profile
    profile = profiles.load(name)
    notes: list[str] = []
    if arguments.context is not None:
        scaled = profiles.scale(profile, arguments.context)
        profile, notes = scaled.profile, scaled.notes
    settings = profile.settings()
    lines = [f"{profile.name}: {profile.description}", ""]
    lines += [f"  {path:<24} {value:<56} {doc}".rstrip() for path, value, doc in _in_words(profile)]
    lines += ["", *notes] if notes else []
    return 0, {"profile": settings, "notes": notes}, "\n".join(lines) + "\n"


def _in_words(profile: Any) -> list[tuple[str, str, str]]:
    """Every key in the order of its documentation: path, value, meaning."""
    from agenttop.agents.keys import KEYS
    from agenttop.agents.profile import Distribution

    rows: list[tuple[str, str, str]] = []
    for key in KEYS:
        if key.path == "description":
            continue
        value: Any = profile
        for part in key.path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, Distribution):
            shown = value.describe()
        elif value is None:
            shown = "–"
        elif isinstance(value, bool):
            shown = str(value).lower()
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
        rows.append((key.path, shown, key.doc))
    return rows


def _check(arguments: argparse.Namespace) -> Result:
    from agenttop.agents import profile as profiles
    from agenttop.errors import UsageError

    reports: list[dict[str, Any]] = []
    lines: list[str] = []
    for name in arguments.files:
        if not Path(name).is_file():
            name = str(profiles.locate(name))
        try:
            profile = profiles.read(Path(name))
        except UsageError as error:
            problems = str(error).splitlines()
            lines += problems
        else:
            problems = []
            lines.append(f"{name}: fine ({profile.agents} agents: {profile.description})")
        reports.append({"file": name, "problems": problems})
    bad = any(report["problems"] for report in reports)
    return (1 if bad else 0), {"files": reports}, "\n".join(lines) + "\n"
