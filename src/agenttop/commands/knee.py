"""`agenttop knee`: the three figures of recordings, or of a table that somebody published."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agenttop.model.text import printable

if TYPE_CHECKING:
    from agenttop.analyse.points import LevelPoint
    from agenttop.analyse.report import KneeReport
    from agenttop.analyse.slo import Slo

MOST_BYTES = 10_000_000
"""No table of levels is larger."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `knee`."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="recordings (*.agenttop); without one the newest there is"
    )
    parser.add_argument("--file", action="append", default=[], metavar="FILE", help="the same as FILE")
    parser.add_argument(
        "--table",
        metavar="CSV",
        help="a table of levels instead: columns agents, decode_tok_s and optionally decode_tok_s_per_agent,"
        " prefill_tok_s, completions_per_min, wait_s, preemptions and more (- reads it from stdin)",
    )
    parser.add_argument(
        "--slo", metavar="TEXT", help="what users are promised, e.g. 'decode>=20,ttft<=10s@95%%'"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="take the levels of all recordings as one curve, e.g. one recording per number of slots",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--no-chart", action="store_true", help="leave out the chart")


def run(arguments: argparse.Namespace) -> int:
    """Print one report per recording or table. Raises AgenttopError for what cannot be read or judged."""
    from agenttop.analyse.slo import parse_slo
    from agenttop.errors import UsageError

    slo = parse_slo(arguments.slo) if arguments.slo is not None else None
    files = [*arguments.files, *arguments.file]
    if arguments.table is not None and files:
        raise UsageError("--table does not go with recordings", "give either")
    if arguments.table is not None:
        named = [Levels(arguments.table, _of_table(arguments.table))]
    else:
        named = [_of_recording(name) for name in files or [_newest()]]
        if arguments.together:
            told = sorted({levels.simulated for levels in named if levels.simulated})
            together = [point for levels in named for point in levels.points]
            named = [Levels("all together", together, ", ".join(told) or None)]
    return _print(named, slo, arguments)


class Levels(NamedTuple):
    """What one report is made of."""

    name: str
    points: list[LevelPoint]
    simulated: str | None = None
    """`RTX 5090, 20x` where the engine was none; None where the figures were measured."""


def _print(named: Sequence[Levels], slo: Slo | None, arguments: argparse.Namespace) -> int:
    from agenttop.analyse.knee import analyse
    from agenttop.commands.cells import json_text
    from agenttop.commands.knee_text import report_text

    reports = [(levels, analyse(levels.points, slo=slo)) for levels in named]
    if arguments.json:
        plain: object = _as_json(*reports[0])
        if len(reports) > 1:
            plain = {
                "schema": 1,
                "reports": [{"file": levels.name, **_as_json(levels, found)} for levels, found in reports],
            }
        sys.stdout.write(json_text(plain))
        return 0
    texts = [
        report_text(found, levels.points, chart=not arguments.no_chart, simulated=levels.simulated)
        for levels, found in reports
    ]
    if len(texts) > 1:
        texts = [
            f"{printable(Path(levels.name).name)}\n{text}" for levels, text in zip(named, texts, strict=True)
        ]
    sys.stdout.write("\n".join(texts))
    return 0


def _as_json(levels: Levels, found: KneeReport) -> dict[str, object]:
    return {**found.as_json(), "simulated": levels.simulated}


def _of_recording(name: str) -> Levels:
    from agenttop.analyse.material import of_recording
    from agenttop.analyse.points import points_of
    from agenttop.commands.list_ import RECENT_S, simulated_host
    from agenttop.errors import AgenttopError
    from agenttop.model.frames import EngineSample
    from agenttop.record.read import Recording

    with Recording(Path(name)) as recording:
        points = points_of(of_recording(recording))
        session = recording.session
        host = simulated_host(session, recording.of(EngineSample, recording.duration - RECENT_S))
    if not points:
        raise AgenttopError(f"{name} has no level: no agents ran while it was recorded")
    return Levels(name, points, f"{host}, {session.speedup:g}x" if host is not None else None)


def _of_table(name: str) -> list[LevelPoint]:
    from agenttop.analyse.published import read_table
    from agenttop.errors import UsageError

    shown = "the table on stdin" if name == "-" else name
    if name == "-":
        raw = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise UsageError(
            f"{shown} is too large for a table of levels", f"at most {MOST_BYTES // 1_000_000} MB"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 text", "save it as CSV in UTF-8") from error
    table = read_table(text, shown)
    for note in table.notes:
        sys.stderr.write(f"agenttop: {printable(note)}\n")
    return table.points


def _newest() -> str:
    from agenttop import paths
    from agenttop.errors import UsageError

    found = sorted(paths.recordings().glob("*.agenttop"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError("there is no recording yet", "name one, or give a table with --table levels.csv")
    sys.stderr.write(f"agenttop: {printable(str(found[-1]))}\n")
    return str(found[-1])
