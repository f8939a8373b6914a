"""`agenttop attach`: open the console on a session that already runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `attach`."""
    parser.add_argument(
        "session", nargs="?", metavar="SESSION", help="its name or the beginning of it (see `list`)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Attach; quitting ends the session only if the user says so."""
    from agenttop.commands.console import full_screen, new_deck, show
    from agenttop.commands.doors import find
    from agenttop.errors import UsageError
    from agenttop.model.clock import SystemClock
    from agenttop.model.commands import Leave, Quit
    from agenttop.stream.lines import AttachSource

    door = find(arguments.session)
    if not full_screen():
        raise UsageError("attach needs a terminal", "for a pipe use `agenttop stream`")
    source = AttachSource(door, SystemClock())
    how = show(new_deck(source), attached=True)
    if how == "leave" or source.accepts is not None:
        if source.accepts is None:
            sys.stdout.write(f"left running: agenttop attach {door.session}\n")
        source.send(Leave())
    else:
        source.send(Quit())
        clock = SystemClock()
        until = clock.monotonic() + 20
        while source.take().ended is None and clock.monotonic() < until:
            source.wait(0.2)
    source.close()
    if door.recording and Path(door.recording).exists():
        sys.stdout.write(f"recording: {door.recording}\n")
    return 0
