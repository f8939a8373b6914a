"""`agenttop profile`: list, show, check or import agent profiles."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agenttop.commands import profile_import
from agenttop.commands.arguments import set_argument

SCHEMA = 1

MOST_DRAWN = 256
"""Agents in a timeline."""


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
    show.add_argument("--agents", type=int, metavar="N", help="draw the plan of N agents as a timeline")
    show.add_argument("--for", dest="duration", metavar="T", help="length of the timeline (10m)")
    show.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same plan (0)")
    show.add_argument(
        "--prefill-rate", type=float, metavar="TOK_S", help="assumed speed of prefill, tok/s (2000)"
    )
    show.add_argument(
        "--decode-rate", type=float, metavar="TOK_S", help="assumed speed of decode per agent, tok/s (50)"
    )
    show.add_argument("--toml", action="store_true", help="print it as a profile file")
    check = actions.add_parser("check", help="look for mistakes in profile files")
    check.add_argument("files", nargs="+", metavar="FILE", help="a .toml file, or the name of a profile")
    for action in (show, check):
        set_argument(action)
    imported = actions.add_parser("import", help="a profile from recorded agents")
    profile_import.add_arguments(imported)
    for action in (listing, show, check, imported):
        action.add_argument("--json", action="store_true", help="one JSON object, schema 1")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 when a checked file has mistakes, 2 when there is nothing to show or check."""
    work = {"list": _list, "show": _show, "check": _check, "import": profile_import.run}[arguments.action]
    code, value, text = work(arguments)
    if arguments.json:
        from agenttop.commands.cells import json_text

        text = json_text({"schema": SCHEMA, **value})
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
    from agenttop.agents.overrides import read_settings

    profile = profiles.load(arguments.profile, read_settings(arguments.overrides))
    notes: list[str] = []
    if arguments.context is not None:
        scaled = profiles.scale(profile, arguments.context)
        profile, notes = scaled.profile, scaled.notes
    if arguments.agents is not None:
        return _timeline(arguments, profile, notes)
    settings = profile.settings()
    if arguments.toml:
        return 0, {"profile": settings, "notes": notes}, profiles.as_toml(profile)
    width = _width()
    lines = [*_wrapped([f"{profile.name}: {profile.description}"], width), ""]
    lines += _aligned(_in_words(profile), width)
    lines += ["", *_wrapped(notes, width)] if notes else []
    return 0, {"profile": settings, "notes": notes}, "\n".join(lines) + "\n"


def _width() -> int:
    """Columns of the terminal; of a pipe or a file 120."""
    return max(40, min(200, shutil.get_terminal_size((120, 24)).columns))


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    """Each on as many lines as it takes; legends keep the two blanks between their parts."""
    return [
        line
        for text in texts
        for line in textwrap.wrap(text, width, break_on_hyphens=False, subsequent_indent="  ") or [""]
    ]


LEAST_DOC = 40
"""Columns beside a value that its meaning needs; else it stands on the lines below."""


def _aligned(rows: Sequence[tuple[str, str, str]], width: int) -> list[str]:
    """Path, value and meaning of every key, none cut, no line longer than `width`."""
    path_cells = max(25, *(len(path) + 1 for path, _, _ in rows))
    value_cells = min(max(len(value) for _, value, _ in rows), max(20, width - path_cells - 3))
    beside = width - path_cells - value_cells - 4
    indent = " " * (path_cells + 2)
    lines: list[str] = []
    for path, value, doc in rows:
        first = f"  {path:<{path_cells}}"
        if beside >= LEAST_DOC:
            docs = textwrap.wrap(doc, beside) or [""]
            lines.append(f"{first}{value:<{value_cells}}  {docs[0]}".rstrip())
            lines += [f"{indent}{'':<{value_cells}}  {text}" for text in docs[1:]]
            continue
        values = textwrap.wrap(value, width - len(indent)) or [""]
        lines += [f"{first}{values[0]}", *(indent + text for text in values[1:])]
        lines += [indent + "  " + text for text in textwrap.wrap(doc, width - len(indent) - 2)]
    return lines


def _timeline(arguments: argparse.Namespace, profile: Any, notes: list[str]) -> Result:
    """The plan of some agents, drawn."""
    import msgspec

    from agenttop.agents.starts import DECODE_TOK_S, PREFILL_TOK_S
    from agenttop.agents.timeline import Speeds, planned
    from agenttop.commands import timeline
    from agenttop.errors import UsageError
    from agenttop.model.units import parse_duration

    for_s = parse_duration(arguments.duration or "10m")
    prefill = PREFILL_TOK_S if arguments.prefill_rate is None else arguments.prefill_rate
    decode = DECODE_TOK_S if arguments.decode_rate is None else arguments.decode_rate
    if not 1 <= arguments.agents <= MOST_DRAWN:
        raise UsageError(f"--agents {arguments.agents} is out of range", f"1 to {MOST_DRAWN}")
    if for_s <= 0:
        raise UsageError("--for 0 leaves nothing to draw", "e.g. --for 10m")
    for name, rate in (("--prefill-rate", prefill), ("--decode-rate", decode)):
        if not 0.1 <= rate <= 1e7:  # not a number fails this too
            raise UsageError(f"{name} {rate:g} is out of range", "0.1 to 10000000 tok/s")
    speeds = Speeds(prefill=prefill, decode=decode)
    rows = planned(profile, arguments.seed, arguments.agents, for_s, speeds)
    width = _width()
    told = [timeline.about(profile.name, arguments.agents, arguments.seed, for_s, speeds), *notes]
    lines = [*_wrapped(told, width), ""]
    lines += timeline.draw(rows, profile.context.limit, for_s, width)
    ends = [timeline.LEGEND, timeline.totals(rows, profile.context.limit, for_s)]
    lines += ["", *_wrapped(ends, width)]
    value = {
        "profile": profile.name,
        "seed": arguments.seed,
        "for_s": for_s,
        "assumed": msgspec.to_builtins(speeds),
        "notes": notes,
        "agents": [
            {
                **msgspec.to_builtins(row),
                "turns": row.turns(for_s),
                "compactions": row.compactions(for_s),
            }
            for row in rows
        ],
    }
    return 0, value, "\n".join(lines) + "\n"


def _in_words(profile: Any) -> list[tuple[str, str, str]]:
    """Every key in the order of its documentation: path, value, meaning."""
    from agenttop.agents.keys import KEYS, OPTIONAL_SECTIONS
    from agenttop.agents.profile import Distribution

    rows: list[tuple[str, str, str]] = []
    for key in KEYS:
        absent = key.section in OPTIONAL_SECTIONS and getattr(profile, key.section) is None
        if absent or key.path == "description":
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
    from agenttop.agents.overrides import read_settings
    from agenttop.errors import UsageError

    reports: list[dict[str, Any]] = []
    lines: list[str] = []
    overrides = read_settings(arguments.overrides)
    for name in arguments.files:
        if not Path(name).is_file():
            name = str(profiles.locate(name))
        try:
            profile = profiles.read(Path(name), overrides)
        except UsageError as error:
            problems = str(error).splitlines()
            lines += problems
        else:
            problems = []
            lines.append(f"{name}: fine ({profile.agents} agents: {profile.description})")
        reports.append({"file": name, "problems": problems})
    bad = any(report["problems"] for report in reports)
    return (1 if bad else 0), {"files": reports}, "\n".join(lines) + "\n"
