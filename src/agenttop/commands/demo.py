"""`agenttop demo`: a real llama.cpp server on a generated model, four agents, and the console."""

from __future__ import annotations

import argparse
import importlib.util

from agenttop.errors import AgenttopError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `demo`."""
    parser.add_argument("--agents", type=int, default=4, metavar="N", help="agents to start (4)")
    parser.add_argument("--headless", action="store_true", help="without a console; needs --for")
    parser.add_argument(
        "--for", dest="duration", metavar="T", help="end after this long, e.g. 30s (headless only)"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object (headless)")
    recording = parser.add_mutually_exclusive_group()
    recording.add_argument("--out", default=argparse.SUPPRESS, metavar="FILE", help="record to FILE")
    recording.add_argument(
        "--no-record", action="store_true", default=argparse.SUPPRESS, help="do not record"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Everything it starts ends with it."""
    from agenttop.commands.console import full_screen, watch
    from agenttop.commands.settings import new_file
    from agenttop.errors import UsageError
    from agenttop.model.units import parse_duration
    from agenttop.node.director import MOST_AGENTS
    from agenttop.node.settings import NodeSettings

    if importlib.util.find_spec("xllamacpp") is None:
        raise AgenttopError("the demo engine is not installed", "pip install 'agenttop[demo]'")
    out = new_file(arguments.out)
    if not 0 <= arguments.agents <= MOST_AGENTS:
        raise UsageError(f"--agents {arguments.agents} is out of range", f"0 to {MOST_AGENTS}")
    settings = NodeSettings(
        demo=True, demo_agents=arguments.agents, discover=False, record=not arguments.no_record, out=out
    )
    if arguments.headless or not full_screen():
        if arguments.duration is None:
            raise UsageError("without a terminal the demo needs an end", "add --headless --for 30s")
        from agenttop.commands.headless import run_for

        return run_for(settings, parse_duration(arguments.duration), as_json=arguments.json)
    return watch(settings)
