"""`agenttop calibrate`: how much load this machine's client can make before it is the limit itself."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agenttop.agents.calibrate import Calibration

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `calibrate`."""
    parser.description = (
        "Measure the driver, the part that plays the agents, against a stub engine on this machine. "
        "Close other programs first: they are measured along."
    )
    parser.add_argument("--streams", type=int, default=256, metavar="N", help="agents at once (256)")
    parser.add_argument("--rate", type=float, default=50.0, metavar="R", help="tok/s of each (50)")
    parser.add_argument("--for", dest="duration", default="10s", metavar="T", help="length of a round (10s)")
    parser.add_argument("--json", action="store_true", help="as JSON, schema 1")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print. Exit code 1 when a round could not be measured."""
    from agenttop.agents.calibrate import calibrate
    from agenttop.agents.driver import KERNEL_STAMPED
    from agenttop.errors import UsageError
    from agenttop.model.units import parse_duration

    try:
        seconds = parse_duration(arguments.duration)
    except ValueError as error:
        raise UsageError(f"--for {arguments.duration}: {error}") from error
    if not 1 <= arguments.streams <= 1024:
        raise UsageError(f"--streams {arguments.streams} is out of range", "1 to 1024")
    if not 1 <= arguments.rate <= 1000:
        raise UsageError(f"--rate {arguments.rate:g} is out of range", "1 to 1000 tok/s")
    if not 3 <= seconds <= 300:
        raise UsageError(f"--for {arguments.duration} is out of range", "3s to 5m")

    def told(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{text} ...\n")

    found = calibrate(arguments.streams, arguments.rate, seconds, KERNEL_STAMPED, told)
    if arguments.json:
        import msgspec

        from agenttop.commands.cells import json_text

        report = {"schema": SCHEMA, **msgspec.to_builtins(found), "agents_per_process": carried(found)}
        sys.stdout.write(json_text(report))
    else:
        sys.stdout.write("\n".join(lines(found)) + "\n")
    return 0


def carried(found: Calibration) -> int | None:
    """Agents of this rate that one driver process carries before its CPU condemns a level."""
    from agenttop.agents.meter import CPU_LIMIT

    cpu = found.usual.cpu_fraction
    if not cpu:
        return None
    by_cpu = CPU_LIMIT / (cpu / found.streams)
    return int(min(by_cpu, CPU_LIMIT * found.full_speed_tok_s / found.rate_tok_s))


def lines(found: Calibration) -> list[str]:
    """The report in words."""
    import os

    from agenttop.model import units

    usual, rate = found.usual, f"{found.rate_tok_s:g} tok/s"
    cpu = usual.cpu_fraction
    each = f", {cpu / (found.streams * found.rate_tok_s) * 1e6:.1f} CPU s per million tokens" if cpu else ""
    out = [
        f"client of this machine ({units.plural(os.cpu_count() or 1, 'core')}) against a stub engine on it",
        "",
        f"usual load    {found.streams} agents at {rate}: {units.percent(cpu)} of a core{each}",
        f"time stamps   late by {_ms(usual.p50_s)} (p50), {_ms(usual.p99_s)} (p99)",
        f"with kernel   {_kernel(found)}",
        f"cold start    {found.streams} requests due in one moment left within {_ms(found.cold_spread_s)}",
        f"full speed    {found.full_speed_tok_s:,.0f} tok/s, "
        f"{found.full_speed_cpu_s_per_million:.1f} CPU s per million tokens",
        "",
    ]
    if found.limited is not None:
        out.append(f"At this load the client is the limit here: {found.limited}.")
        out.append(
            "A level like it would be marked INVALID. Use fewer agents, or a machine with more to spare."
        )
        return out
    agents = carried(found)
    if agents is not None:
        out.append(
            f"One driver process carries about {agents} agents at {rate}; beyond that, levels would be"
        )
        out.append("marked INVALID because the client is the limit. agenttop takes more processes by itself.")
    return out


def _kernel(found: Calibration) -> str:
    from agenttop.model import units

    if found.kernel is None:
        return "not to be had on this system"
    stamps = found.kernel
    cost = f"{units.percent(stamps.cpu_fraction)} of a core"
    return f"late by {_ms(stamps.p50_s)} (p50), {_ms(stamps.p99_s)} (p99); {stamps.agents} agents, {cost}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
