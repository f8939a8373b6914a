"""What can be read of a damaged or cut recording, written into a new one.

SQLite stops at the first page it cannot read. Rows are numbered across the file, so reading goes on behind
the gap: the distance doubles until a readable place is found. Nothing is made up, gaps stay gaps.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agenttop.errors import AgenttopError
from agenttop.model.frames import Frame, Session
from agenttop.record.opening import READ_ERRORS, read_only
from agenttop.record.rows import RowReader
from agenttop.record.schema import APPLICATION_ID, TABLES
from agenttop.record.write import Recorder

FARTHEST = 1 << 24
"""Rows beyond a gap that are still looked for: more than four days of a busy host."""

COMMIT_FRAMES = 1_000


@dataclass(frozen=True, slots=True)
class Rescued:
    """What came of it."""

    frames: int
    gaps: int
    """Places at which rows are missing; a frame on a page that is gone is not counted."""


def rescue(path: Path, out: Path) -> Rescued:
    """Write the readable rest of `path` to the new recording `out`. Changes nothing in `path`.

    Raises AgenttopError when it is no recording, or when not even its session can be read.
    """
    with tempfile.TemporaryDirectory(prefix="agenttop-") as folder:
        copy = _whole_copy(path, Path(folder))
        try:
            with contextlib.closing(read_only(copy, lenient=True)) as database:
                found, gaps = _all_rows(database)
        except READ_ERRORS as error:
            raise AgenttopError(f"nothing of {path} can be rescued: its first page is damaged") from error
    sessions = [frame for _, frame in found if isinstance(frame, Session)]
    if not sessions:
        raise AgenttopError(f"nothing of {path} can be rescued: it does not say which session it is of")
    recorder = Recorder(out, sessions[0])
    for number, (_, frame) in enumerate(found, start=1):
        recorder.add(frame)
        if number % COMMIT_FRAMES == 0:
            recorder.commit()
    recorder.close()
    if recorder.failure:
        raise AgenttopError(recorder.failure)
    return Rescued(frames=len(found), gaps=gaps)


def _whole_copy(path: Path, folder: Path) -> Path:
    """A copy without the page that was cut in two: half a page reads as rows of zeros."""
    if path.exists() and not path.is_file():  # a device may never end
        raise AgenttopError(f"{path} is not a regular file, so not a recording")
    try:
        copy = Path(shutil.copyfile(path, folder / path.name))
        side = path.with_name(f"{path.name}-wal")
        if side.exists():
            shutil.copyfile(side, folder / side.name)
        with copy.open("r+b") as file:
            header = file.read(100)
            if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
                raise AgenttopError(f"{path} is not an agenttop recording")
            page = int.from_bytes(header[16:18], "big") or 1
            file.truncate(copy.stat().st_size // page * page)
    except OSError as error:
        raise AgenttopError(f"{path} cannot be copied: {error.strerror or error}") from error
    return copy


def _all_rows(database: sqlite3.Connection) -> tuple[list[tuple[int, Frame]], int]:
    found: list[tuple[int, Frame]] = []
    gaps = 0
    plain = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in TABLES.values():
        if table.kind not in plain:  # a view may compute for ever
            continue
        present = {row[1] for row in database.execute(f'PRAGMA table_info("{table.kind}")')}
        reader = RowReader(table, present)
        if not reader.readable or "seq" not in present:
            continue
        for row in _rows(database, reader):
            if row is None:
                gaps += 1
            elif (frame := reader.frame(row)) is not None:
                found.append((row[0], frame))
    found.sort(key=lambda numbered: numbered[0])
    return found, gaps


def _rows(database: sqlite3.Connection, reader: RowReader) -> Iterator[tuple[Any, ...] | None]:
    """Rows in order; None for each gap."""
    after, skip = 0, 0
    while skip < FARTHEST:
        try:
            for row in database.execute(f'{reader.select} WHERE "seq" > ? ORDER BY "seq"', (after + skip,)):
                if row[0] <= after:
                    raise sqlite3.DatabaseError("rows run in a circle")
                if skip:
                    yield None
                    skip = 0
                after = row[0]
                yield row
        except READ_ERRORS:
            skip = max(1, skip * 2)
        else:
            break
    if skip:
        yield None
