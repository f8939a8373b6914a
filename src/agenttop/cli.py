"""The command line: names and one-line helps. A command's own module is imported when it is chosen.

Imports little more than argparse: `agenttop --help` must answer at once, so nothing heavy may be reached
from here.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import agenttop
from agenttop.commands.arguments import watch_arguments
from agenttop.errors import AgenttopError

COMMANDS = {
    "demo": ("demo", "an engine, real or simulated, agents on it, and the console"),
    "run": ("run", "run a profile of agents, level by level, and record it"),
    "replay": ("replay", "play a recorded session in the console"),
    "compare": ("compare", "tables of recordings, one row per level"),
    "knee": ("knee", "knee, cliff and capacity, from recordings or from a published table"),
    "export": ("export", "a recording as CSV, JSON lines or Parquet"),
    "list": ("list_", "sessions that run and recordings that exist"),
    "attach": ("attach", "open the console on a session that already runs"),
    "stream": ("stream", "frames as JSON lines"),
    "once": ("once", "one look at host, GPUs and engines, as text or JSON"),
    "doctor": ("doctor", "what agenttop can see here, what it cannot, and why"),
    "profile": ("profile", "list, show, check or import agent profiles"),
    "calibrate": ("calibrate", "how much load this machine can make before the client is the limit"),
    "sim": ("sim", "a simulated engine: real HTTP, figures from a model of a host"),
    "node": ("node", "the part that samples and records, on stdin and stdout"),
}

EPILOG = """\
without a command: watch this host live; engines are found by themselves or named with --url

exit codes: 0 fine, 1 the run or check failed, 2 wrong usage
"""


class _Parser(argparse.ArgumentParser):
    """A parser that fetches its arguments from its command's module when it is first used."""

    module: str | None = None

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self.module is not None:
            module, self.module = self.module, None
            command = importlib.import_module(f"agenttop.commands.{module}")
            command.add_arguments(self)
            self.set_defaults(run=command.run)
        return super().parse_known_args(args, namespace)


def build_parser() -> argparse.ArgumentParser:
    """The whole tree, without the arguments of the commands."""
    parser = _Parser(
        prog="agenttop",
        description="Watch one LLM inference host and the agents running against it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"agenttop {agenttop.__version__}")
    watch_arguments(parser)
    parser.set_defaults(
        url=[],
        api_key_env=None,
        api_key_file=None,
        ca_file=None,
        no_metrics=False,
        out=None,
        no_record=False,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
        )
        command.module = module
    return parser


def _chosen(arguments: Any) -> Callable[[Any], int]:
    """The function behind the command line: without a command, the live console."""
    if not hasattr(arguments, "run"):
        from agenttop.commands import live

        return live.run
    chosen: Callable[[Any], int] = arguments.run
    return chosen


_PLAINER = "agenttop-plainer"
_PLAIN = {"✓": "+", "✗": "x", "–": "-", "·": ".", "…": "~", "→": ">", "≥": ">", "█": "#", "─": "-"}


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """As `errors="replace"`, but marks that differ stay different."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _ready_streams() -> None:
    """Make output possible where it cannot be taken for granted."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    codecs.register_error(_PLAINER, _plainer)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a locale without our glyphs gets plainer ones. LC_ALL=C asks for "surrogateescape".
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors=_PLAINER)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; errors are one line on stderr."""
    _ready_streams()
    arguments: Any = build_parser().parse_args(argv)
    try:
        code = int(_chosen(arguments)(arguments))
        sys.stdout.flush()  # here, where a full disk still gets its sentence
        return code
    except AgenttopError as error:
        from agenttop.model.text import printable

        sys.stderr.write(f"agenttop: {printable(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if os.environ.get("AGENTTOP_DEBUG"):
            raise
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"agenttop: {error.strerror or error}{where}\n")
        return 1
    except Exception as error:  # the last border: a fault of ours is one line too, unless asked for
        if os.environ.get("AGENTTOP_DEBUG"):
            raise
        sys.stderr.write(
            f"agenttop: internal error: {type(error).__name__}: {error} (AGENTTOP_DEBUG=1 shows where)\n"
        )
        return 1
