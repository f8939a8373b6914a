"""`agenttop export`: a recording for other programs, or the readable rest of a damaged one."""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from agenttop.errors import AgenttopError, UsageError

if TYPE_CHECKING:
    from agenttop.record.read import Recording
    from agenttop.record.schema import Table

FORMATS = ("csv", "jsonl", "parquet", "agenttop")

CHUNK_S = 600.0
"""So much of a recording is held in memory at once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `export`."""
    parser.add_argument("file", metavar="FILE", help="a recording (*.agenttop)")
    parser.add_argument(
        "--to",
        choices=FORMATS,
        required=True,
        help="what to write; agenttop: a new recording with whatever can be read of a damaged one",
    )
    parser.add_argument("--table", metavar="NAME", help="only this kind of frame, e.g. turns (else all)")
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="file, or folder for all tables; - is the standard output (default for one text)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the export; says on stderr what was written. Refuses to overwrite."""
    from agenttop.commands.tables import table_named
    from agenttop.record.read import Recording

    source = Path(arguments.file)
    if arguments.to == "agenttop":
        return _rescue(source, arguments)
    table = table_named(arguments.table) if arguments.table else None
    out = None if arguments.out in (None, "-") else Path(arguments.out)
    if arguments.out == "-" and (arguments.to == "parquet" or (arguments.to == "csv" and table is None)):
        raise UsageError(
            "several tables, or Parquet, do not go to the standard output", "name a place with --out"
        )
    with Recording(source) as recording:
        try:
            if arguments.to == "jsonl":
                with _opened(out) as stream:
                    _jsonl(recording, table, stream)
            elif arguments.to == "csv" and table is not None:
                with _opened(out) as stream:
                    _csv(recording, table, stream)
            else:
                _files(recording, table, arguments.to, out, source.stem)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = error.filename or out or "the standard output"
            raise AgenttopError(f"cannot write {where}: {(error.strerror or str(error)).lower()}") from error
    return 0


def _rescue(source: Path, arguments: argparse.Namespace) -> int:
    from agenttop.record.rescue import rescue

    if arguments.table or arguments.out in (None, "-"):
        raise UsageError(
            "--to agenttop writes one whole recording", "name it with --out, and leave out --table"
        )
    rescued = rescue(source, Path(arguments.out))
    lost = f", with {rescued.gaps} gaps where rows are lost" if rescued.gaps else ", nothing is lost"
    sys.stderr.write(f"wrote {rescued.frames} frames to {arguments.out}{lost}\n")
    return 0


@contextlib.contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    _refuse(out)
    with out.open("x", encoding="utf-8", newline="") as stream:
        yield stream
    sys.stderr.write(f"wrote {out}\n")


def _jsonl(recording: Recording, table: Table | None, stream: TextIO) -> None:
    """The lines a live session would have sent, in the order of t."""
    from agenttop.wire.codec import encode

    everything = 1 << 62  # no row counts as late: the whole file is read once
    after = -math.inf
    until = min(0.0, recording.duration)
    span = CHUNK_S
    while after < recording.duration:
        frames = recording.news(after, until, everything)[0]
        for frame in frames:
            if table is None or type(frame) is table.frame_type:
                stream.write(encode(frame).decode())
        span = CHUNK_S if frames else span * 2  # a single wrong time may lie ages away
        after, until = until, until + span


def _csv(recording: Recording, table: Table, stream: TextIO) -> int:
    from agenttop.commands.cells import csv_cell
    from agenttop.commands.tables import batches, column_name, csv_columns, plain_values

    columns = csv_columns(table)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column_name(table, column) for column in columns])
    written = 0
    for frames in batches(recording, table):
        writer.writerows([csv_cell(value) for value in plain_values(columns, frame)] for frame in frames)
        written += len(frames)
    return written


def _files(recording: Recording, table: Table | None, to: str, out: Path | None, stem: str) -> None:
    from agenttop.record.schema import TABLES

    if table is not None:
        path = out or Path(f"{stem}.{table.kind}.{to}")
        _refuse(path)
        _file(recording, table, to, path)
        sys.stderr.write(f"wrote {path}\n")
        return
    folder = out or Path(f"{stem}-{to}")
    _refuse(folder)
    folder.mkdir(parents=True)
    written = [kind for kind in TABLES.values() if recording.count(kind.frame_type)]
    for kind in written:
        _file(recording, kind, to, folder / f"{kind.kind}.{to}")
    sys.stderr.write(f"wrote {len(written)} tables into {folder}{os.sep}\n")


def _file(recording: Recording, table: Table, to: str, path: Path) -> None:
    if to == "parquet":
        from agenttop.commands.tables import write_parquet

        write_parquet(recording, table, str(path))
    else:
        with path.open("x", encoding="utf-8", newline="") as stream:
            _csv(recording, table, stream)


def _refuse(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} exists already", "remove it, or choose another place with --out")
