"""`agenttop node`: the node itself, on stdin and stdout."""

from __future__ import annotations

import argparse
from pathlib import Path

from agenttop.commands.arguments import watch_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the node; the console starts it with them (`NodeSettings.argv`)."""
    watch_arguments(parser)
    parser.add_argument("--no-discovery", action="store_true", help="watch only the engines named with --url")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between looks (1)")
    parser.add_argument("--demo", action="store_true", help="start a demo engine and end with the console")
    parser.add_argument("--demo-agents", type=int, default=4, help=argparse.SUPPRESS)
    parser.add_argument("--set", dest="overrides", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--sim-host", help=argparse.SUPPRESS)
    parser.add_argument("--sim-model", default="", help=argparse.SUPPRESS)
    parser.add_argument("--sim-speedup", type=float, default=1.0, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serve one session; ends when its last console has gone and no agents run."""
    import msgspec

    from agenttop.agents.overrides import read_settings
    from agenttop.commands.settings import from_arguments
    from agenttop.node.main import main

    settings = from_arguments(arguments)
    settings = msgspec.structs.replace(
        settings,
        discover=not arguments.no_discovery,
        interval_s=max(0.1, arguments.interval),
        demo=arguments.demo,
        demo_agents=arguments.demo_agents,
        demo_overrides=read_settings(arguments.overrides) if arguments.overrides else {},
        sim_host=arguments.sim_host,
        sim_model=arguments.sim_model,
        sim_speedup=arguments.sim_speedup,
        out=Path(arguments.out) if arguments.out else None,
    )
    return main(settings)
