"""What the commands that open the console share: start it, and part from the session in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agenttop.errors import AgenttopError
from agenttop.model.clock import SystemClock
from agenttop.model.commands import Command, Leave, Quit
from agenttop.node.settings import NodeSettings

if TYPE_CHECKING:
    from agenttop.stream.base import FrameSource
    from agenttop.stream.lines import ChildSource
    from agenttop.stream.rewind import Deck

QUIT_S = 20.0
"""How long a node may take to stop its agents, its engine and its recording."""


def full_screen() -> bool:
    """Whether this terminal can show the console; else output is plain text.

    Textual draws on stderr: a console whose stderr goes to a file would be seen by nobody.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    # A descriptor that was closed before the start has no stream at all.
    all_terminals = all(stream is not None and stream.isatty() for stream in streams)
    return all_terminals and os.environ.get("TERM", "") not in ("", "dumb")


def watch(
    settings: NodeSettings, first: Sequence[Command] = (), *, figures: bool = False, slo: str | None = None
) -> int:
    """Start a node, open the console on it, and part from it as the user wishes.

    `figures`: print the levels of the recording, and what a search found, once the session has ended;
    with `slo` also how far they meet it.
    """
    from agenttop.stream.lines import ChildSource

    source = ChildSource(settings.argv(), SystemClock())
    for command in first:
        source.send(command)
    deck = new_deck(source)
    return part(source, deck, show(deck, figures=figures), figures=figures, slo=slo)


def new_deck(source: FrameSource) -> Deck:
    """The deck of a live session: rewinding reads its recording."""
    from agenttop.stream.rewind import Deck

    return Deck(source, SystemClock())


def show(deck: Deck, *, attached: bool = False, figures: bool = False) -> str:
    """Run the console; `figures`: quitting prints those of the run.

    Returns how the user left: quit or leave.
    """
    from agenttop.tui.app import run_console

    return run_console(deck, attached=attached, figures=figures)


def part(source: ChildSource, deck: Deck, how: str, *, figures: bool = False, slo: str | None = None) -> int:
    """End the session, or leave it running, and say where the recording is."""
    session = deck.session
    recording = session.recording if session is not None else None
    ended = source.accepts
    failure: str | None = None
    # A demo always ends with its console.
    if how == "leave" and session is not None and ended is None and not session.demo:
        source.send(Leave())
        source.close()
        sys.stdout.write(f"left running: agenttop attach {session.session}\n")
    else:
        source.send(Quit())
        code = source.wait_exit(QUIT_S)
        source.close()
        if code is None:
            failure = f"the node (pid {source.process.pid}) is still stopping after {QUIT_S:.0f} s"
        elif code != 0 or session is None:
            failure = ended or "the node did not start"
    if recording and Path(recording).exists():
        if figures and failure is None and source.accepts is not None:
            sys.stdout.write(_figures(Path(recording), slo))
        sys.stdout.write(f"recording: {recording}\n")
    if failure is not None:
        raise AgenttopError(failure)
    return 0


def _figures(recording: Path, slo: str | None) -> str:
    from agenttop.commands.figures import Figures

    return Figures.of(recording, slo=slo).as_text() + "\n"
