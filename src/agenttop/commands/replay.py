"""`agenttop replay FILE`: a recorded session in the same console."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `replay`."""
    parser.add_argument("file", metavar="FILE", help="a recording (*.agenttop)")
    parser.add_argument("--at", default="0", metavar="T", help="where to begin: 90s, 12:34 or 1:02:03")
    parser.add_argument("--speed", type=float, default=1.0, metavar="S", help="how fast to play (1)")


def run(arguments: argparse.Namespace) -> int:
    """Open the console on a recording; without a terminal print the picture at `--at`."""
    from agenttop.commands.console import full_screen, show
    from agenttop.errors import UsageError
    from agenttop.model.clock import SystemClock
    from agenttop.model.units import parse_clock
    from agenttop.record.read import Recording
    from agenttop.stream.replay import ReplaySource
    from agenttop.stream.rewind import Deck

    at = parse_clock(arguments.at)
    if not 0.1 <= arguments.speed <= 64:
        raise UsageError(f"--speed {arguments.speed:g} is out of range", "0.1 to 64")
    with Recording(Path(arguments.file)) as recording:
        source = ReplaySource(recording, SystemClock(), at=at, speed=arguments.speed, playing=full_screen())
        if full_screen():
            show(Deck(source, SystemClock()))
            return 0
        from agenttop.view.store import Store
        from agenttop.view.text import picture

        batch = source.take()
        store = Store()
        store.feed(batch.frames, batch.now)
        sys.stdout.write(picture(store, 120, 40))
    return 0
