"""`agenttop demo`: an engine, four agents on it, and the console.

The engine is a real llama.cpp server on a generated model; with `--sim`, or where that server is not
installed, a simulated one.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING

from agenttop.commands.arguments import set_argument

if TYPE_CHECKING:
    from agenttop.node.settings import NodeSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `demo`."""
    parser.add_argument("--agents", type=int, default=4, metavar="N", help="agents to start (4)")
    parser.add_argument("--headless", action="store_true", help="without a console; needs --for")
    parser.add_argument(
        "--for", dest="duration", metavar="T", help="end after this long, e.g. 30s (headless only)"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object (headless)")
    set_argument(parser)
    recording = parser.add_mutually_exclusive_group()
    recording.add_argument("--out", default=argparse.SUPPRESS, metavar="FILE", help="record to FILE")
    recording.add_argument(
        "--no-record", action="store_true", default=argparse.SUPPRESS, help="do not record"
    )
    simulated = parser.add_argument_group("simulated engine", "names: agenttop sim --list")
    simulated.add_argument("--sim", action="store_true", help="run a simulated engine, not llama.cpp")
    simulated.add_argument("--host", metavar="PRESET", help="host it stands for (rtx-5090)")
    simulated.add_argument("--model", metavar="PRESET", help="model it serves (qwen3.5-9b-4bit)")
    simulated.add_argument("--speedup", type=float, metavar="K", help="K times faster than life (1)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Everything it starts ends with it."""
    from agenttop.commands.console import full_screen, watch
    from agenttop.errors import UsageError
    from agenttop.model.units import parse_duration

    settings = _settings(arguments)
    if arguments.headless or not full_screen():
        if arguments.duration is None:
            raise UsageError("without a terminal the demo needs an end", "add --headless --for 30s")
        from agenttop.commands.headless import run_for

        return run_for(settings, parse_duration(arguments.duration), as_json=arguments.json)
    return watch(settings)


def _settings(arguments: argparse.Namespace) -> NodeSettings:
    from agenttop.commands.settings import new_file
    from agenttop.errors import UsageError
    from agenttop.node.director import MOST_AGENTS
    from agenttop.node.settings import NodeSettings

    if not 0 <= arguments.agents <= MOST_AGENTS:
        raise UsageError(f"--agents {arguments.agents} is out of range", f"0 to {MOST_AGENTS}")
    settings = NodeSettings(
        demo=True,
        demo_agents=arguments.agents,
        demo_overrides=_overrides(arguments),
        discover=False,
        record=not arguments.no_record,
        out=new_file(arguments.out),
    )
    chosen = [name for name in ("host", "model", "speedup") if getattr(arguments, name) is not None]
    if arguments.sim:
        return _simulated(settings, arguments)
    if chosen:
        raise UsageError(f"--{chosen[0]} is of the simulated engine", "add --sim")
    if importlib.util.find_spec("xllamacpp") is None:
        sys.stderr.write(
            "agenttop: the simulated engine runs here, because llama.cpp is not installed "
            "(pip install 'agenttop[demo]')\n"
        )
        return _simulated(settings, arguments)
    return settings


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """What was set, checked before there is a screen."""
    if not arguments.overrides:
        return {}
    from agenttop.agents.overrides import read_settings
    from agenttop.agents.profile import load
    from agenttop.node.demo import PROFILE

    overrides = read_settings(arguments.overrides)
    load(PROFILE, overrides)
    return overrides


def _simulated(settings: NodeSettings, arguments: argparse.Namespace) -> NodeSettings:
    """With a simulated engine; what cannot work is told here, before there is a screen."""
    import msgspec

    from agenttop.errors import UsageError
    from agenttop.sim import memory, presets
    from agenttop.sim.options import EngineOptions

    host, model = arguments.host or "rtx-5090", arguments.model or "qwen3.5-9b-4bit"
    speedup = 1.0 if arguments.speedup is None else arguments.speedup
    memory.plan(presets.host(host), presets.model(model), EngineOptions())
    if not 0.01 <= speedup <= 10_000:
        raise UsageError(f"--speedup {speedup:g} is out of range", "0.01 to 10000")
    return msgspec.structs.replace(settings, sim_host=host, sim_model=model, sim_speedup=speedup)
