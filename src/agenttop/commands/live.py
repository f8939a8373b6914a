"""`agenttop`: watch this host."""

from __future__ import annotations

import argparse


def run(arguments: argparse.Namespace) -> int:
    """Open the console; where there is no terminal for it, print one look as plain text."""
    from agenttop.commands.console import full_screen, watch
    from agenttop.commands.settings import from_arguments

    settings = from_arguments(arguments)
    if full_screen():
        return watch(settings)
    from agenttop.commands.once import print_once

    return print_once(settings, window_s=2.0, as_json=False)
