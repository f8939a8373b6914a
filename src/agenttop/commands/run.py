"""`agenttop run PROFILE`: levels of agents, or a search for the knee; recorded and judged."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agenttop.commands.arguments import set_argument, watch_arguments

if TYPE_CHECKING:
    from agenttop.model.commands import FindKnee, RunPlan

AT_MOST = "10m"
BUDGET = "40m"
MAX_AGENTS = 64

DESCRIPTION = """\
levels: --agents or --levels. A level ends as soon as its figures can be trusted: all agents run and are warm,
each has had full turns, and no trend is left; at the latest after --at-most. With --for it lasts that long.
search: --find-knee climbs by itself, refines round the knee, stops past the cliff, and prints three figures.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `run`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("profile", metavar="PROFILE", help="name of a profile, or a TOML file")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--agents", type=int, metavar="N", help="one level of N agents (else as the profile says)"
    )
    number.add_argument("--levels", metavar="N,N,…", help="levels of agents one after another, e.g. 4,8,16")
    number.add_argument(
        "--find-knee", action="store_true", help="search for the knee, the cliff and the capacity"
    )
    parser.add_argument("--for", dest="duration", metavar="T", help="every level lasts T, e.g. 22m")
    parser.add_argument(
        "--at-most", metavar="T", help=f"without --for: the longest a level may take to settle ({AT_MOST})"
    )
    parser.add_argument(
        "--cold", action="store_true", help="new agents, unknown to any cache, on every level"
    )
    parser.add_argument(
        "--max-agents", type=int, metavar="N", help=f"the search goes no higher ({MAX_AGENTS})"
    )
    parser.add_argument("--budget", metavar="T", help=f"the search takes no longer ({BUDGET})")
    parser.add_argument(
        "--slo", metavar="GOAL", help="also find the most agents that meet it, e.g. 'decode>=20,ttft<=10s'"
    )
    set_argument(parser)
    parser.add_argument(
        "--stagger", metavar="T", help="time between the starts of agents (else as the profile says)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same plan (0)")
    parser.add_argument("--pace", type=float, default=1.0, metavar="X", help="pauses X times shorter (1)")
    parser.add_argument("--headless", action="store_true", help="without a console: progress on stderr")
    parser.add_argument("--json", action="store_true", help="end with one JSON object (headless)")
    watch_arguments(parser, recording="always")


def run(arguments: argparse.Namespace) -> int:
    """Run. Exit code 1 when no level could be judged."""
    from agenttop.commands.console import full_screen, watch
    from agenttop.commands.settings import from_arguments
    from agenttop.errors import UsageError

    settings = from_arguments(arguments)
    if not 0.01 <= arguments.pace <= 1000:  # not a number fails this too
        raise UsageError(f"--pace {arguments.pace:g} is out of range", "0.01 to 1000")
    plan = (
        _search(arguments, settings.urls) if arguments.find_knee else _levels_plan(arguments, settings.urls)
    )
    if not settings.record:
        raise UsageError("a run is always recorded", "leave out --no-record")
    slo = _slo(arguments)
    if arguments.headless or arguments.json or not full_screen():
        from agenttop.commands.headless import run_plan

        return run_plan(settings, plan, as_json=arguments.json, slo=slo)
    return watch(settings, [plan], figures=True, slo=slo)


def _levels_plan(arguments: argparse.Namespace, urls: list[str]) -> RunPlan:
    """What the node is told for a run of given levels."""
    from agenttop.errors import UsageError
    from agenttop.model.commands import RunPlan
    from agenttop.model.units import parse_duration

    for name, value in (("--max-agents", arguments.max_agents), ("--budget", arguments.budget)):
        if value is not None:
            raise UsageError(f"{name} belongs to a search", "add --find-knee, or leave it out")
    if arguments.duration is not None and arguments.at_most is not None:
        raise UsageError(
            "--for and --at-most exclude each other", "--for fixes the time, --at-most bounds it"
        )
    settle = arguments.duration is None
    name, text = ("--at-most", arguments.at_most or AT_MOST) if settle else ("--for", arguments.duration)
    seconds = parse_duration(text)
    if seconds <= 0:
        raise UsageError(f"{name} 0 leaves no time for a level", f"e.g. {name} 22m")
    overrides = _overrides(arguments)
    return RunPlan(
        engine=_engine(urls),
        profile=_profile_reference(arguments.profile, overrides),
        levels=_levels(arguments, overrides),
        seconds=seconds,
        stagger_s=parse_duration(arguments.stagger) if arguments.stagger else None,
        seed=arguments.seed,
        pace=arguments.pace,
        overrides=overrides,
        settle=settle,
        cold=arguments.cold,
    )


def _search(arguments: argparse.Namespace, urls: list[str]) -> FindKnee:
    """What the node is told for a search."""
    from agenttop.errors import UsageError
    from agenttop.model.commands import FindKnee
    from agenttop.model.units import parse_duration
    from agenttop.node.director import MOST_AGENTS

    for name, value in (("--for", arguments.duration), ("--at-most", arguments.at_most)):
        if value is not None:
            raise UsageError(
                f"{name} does not go with --find-knee", "a search divides its --budget by itself"
            )
    if arguments.cold:
        raise UsageError("--cold does not go with --find-knee", "it uses new agents wherever it goes down")
    most = MAX_AGENTS if arguments.max_agents is None else arguments.max_agents
    if not 1 <= most <= MOST_AGENTS:
        raise UsageError(f"--max-agents {most} is out of range", f"1 to {MOST_AGENTS}")
    budget_s = parse_duration(arguments.budget or BUDGET)
    if budget_s <= 0:
        raise UsageError("--budget 0 leaves no time for a search", f"e.g. --budget {BUDGET}")
    overrides = _overrides(arguments)
    return FindKnee(
        engine=_engine(urls),
        profile=_profile_reference(arguments.profile, overrides),
        most=most,
        budget_s=budget_s,
        slo=_slo(arguments),
        stagger_s=parse_duration(arguments.stagger) if arguments.stagger else None,
        seed=arguments.seed,
        pace=arguments.pace,
        overrides=overrides,
    )


def _engine(urls: list[str]) -> str:
    """The engine that gets the load: it must be named, and be one."""
    from agenttop.errors import UsageError

    if len(urls) != 1:
        raise UsageError(
            "a run needs exactly one engine", "name it with --url, e.g. --url http://127.0.0.1:8080"
        )
    return urls[0]


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    if not arguments.overrides:
        return {}
    from agenttop.agents.overrides import read_settings

    return read_settings(arguments.overrides)


def _slo(arguments: argparse.Namespace) -> str | None:
    """The SLO as written, once it has been understood."""
    if arguments.slo is None:
        return None
    from agenttop.analyse.slo import parse_slo

    parse_slo(arguments.slo)
    return str(arguments.slo)


def _profile_reference(name: str, overrides: dict[str, str]) -> str:
    """The profile, checked before anything is started; a path is made absolute for the node."""
    from pathlib import Path

    from agenttop.agents.profile import load

    load(name, overrides) if overrides else load(name)
    return str(Path(name).absolute()) if name.endswith(".toml") else name


def _levels(arguments: argparse.Namespace, overrides: dict[str, str]) -> list[int]:
    from agenttop.agents.profile import load
    from agenttop.errors import UsageError
    from agenttop.node.director import MOST_AGENTS

    if arguments.levels is None:
        number = arguments.agents
        if number is None:
            name = arguments.profile
            number = (load(name, overrides) if overrides else load(name)).agents
        levels = [number]
    else:
        try:
            levels = [int(part) for part in arguments.levels.split(",")]
        except ValueError:
            raise UsageError(
                f"--levels '{arguments.levels}' is not a list of numbers", "write 4,8,16"
            ) from None
    if not levels or any(level < 1 for level in levels):
        raise UsageError("every level needs at least one agent")
    if max(levels) > MOST_AGENTS:
        raise UsageError(f"{max(levels)} agents are too many", f"at most {MOST_AGENTS}")
    return levels
