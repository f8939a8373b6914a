"""`agenttop stream`: frames as JSON lines, for pipes."""

from __future__ import annotations

import argparse
import sys

from agenttop.commands.arguments import watch_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `stream`."""
    watch_arguments(parser)
    parser.add_argument(
        "--for", dest="duration", metavar="T", help="end after this long, e.g. 10s (else at Ctrl-C)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print every frame until the time is up. Records only when --out is given."""
    import msgspec

    from agenttop.commands.gather import started
    from agenttop.commands.settings import from_arguments
    from agenttop.errors import AgenttopError
    from agenttop.model.clock import SystemClock
    from agenttop.model.units import parse_duration
    from agenttop.wire.codec import encode

    settings = from_arguments(arguments)
    settings = msgspec.structs.replace(settings, record=settings.out is not None)
    clock = SystemClock()
    until = clock.monotonic() + parse_duration(arguments.duration) if arguments.duration else None
    with started(settings) as source:
        try:
            while until is None or clock.monotonic() < until:
                source.wait(0.2)
                batch = source.take()
                for frame in batch.frames:
                    sys.stdout.buffer.write(encode(frame))
                sys.stdout.buffer.flush()
                if batch.ended:
                    raise AgenttopError(batch.ended)
        except KeyboardInterrupt:
            pass
    return 0
