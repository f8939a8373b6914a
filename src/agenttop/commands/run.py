"""`agenttop run PROFILE`: levels of agents against an engine, recorded, and their figures at the end."""

from __future__ import annotations

import argparse

from agenttop.commands.arguments import watch_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `run`."""
    parser.add_argument("profile", metavar="PROFILE", help="name of a profile, or a TOML file")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--agents", type=int, metavar="N", help="one level of N agents (else as the profile says)"
    )
    number.add_argument("--levels", metavar="N,N,…", help="levels of agents one after another, e.g. 4,8,16")
    parser.add_argument(
        "--for", dest="duration", default="5m", metavar="T", help="duration of each level (5m)"
    )
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
    from agenttop.model.commands import RunPlan
    from agenttop.model.units import parse_duration

    settings = from_arguments(arguments)
    seconds = parse_duration(arguments.duration)
    if seconds <= 0:
        raise UsageError("--for 0 leaves no time for a level", "e.g. --for 22m")
    if not 0.01 <= arguments.pace <= 1000:  # not a number fails this too
        raise UsageError(f"--pace {arguments.pace:g} is out of range", "0.01 to 1000")
    plan = RunPlan(
        engine=_engine(settings.urls),
        profile=_profile_reference(arguments.profile),
        levels=_levels(arguments),
        seconds=seconds,
        stagger_s=parse_duration(arguments.stagger) if arguments.stagger else None,
        seed=arguments.seed,
        pace=arguments.pace,
    )
    if not settings.record:
        raise UsageError("a run is always recorded", "leave out --no-record")
    if arguments.headless or arguments.json or not full_screen():
        from agenttop.commands.headless import run_plan

        return run_plan(settings, plan, as_json=arguments.json)
    return watch(settings, [plan], figures=True)


def _engine(urls: list[str]) -> str:
    """The engine that gets the load: it must be named, and be one."""
    from agenttop.errors import UsageError

    if len(urls) != 1:
        raise UsageError(
            "a run needs exactly one engine", "name it with --url, e.g. --url http://127.0.0.1:8080"
        )
    return urls[0]


def _profile_reference(name: str) -> str:
    """The profile, checked before anything is started; a path is made absolute for the node."""
    from pathlib import Path

    from agenttop.agents.profile import load

    load(name)
    return str(Path(name).absolute()) if name.endswith(".toml") else name


def _levels(arguments: argparse.Namespace) -> list[int]:
    from agenttop.agents.profile import load
    from agenttop.errors import UsageError
    from agenttop.node.director import MOST_AGENTS

    if arguments.levels is None:
        levels = [arguments.agents if arguments.agents is not None else load(arguments.profile).agents]
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
