"""A recording while it is made: frames to rows, one commit about once a second.

Rules
- Append only, in SQLite's write-ahead mode: what a commit has written survives `kill -9` and power loss,
  and anyone may read the file meanwhile.
- Trouble with the disk stops the recording, never the session: nothing raises after construction,
  `failure` says what happened, and what was written before stays whole.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from agenttop.errors import AgenttopError, UsageError
from agenttop.model import units
from agenttop.model.frames import SCHEMA, Frame, Session
from agenttop.model.text import clean
from agenttop.record.repeats import Repeats
from agenttop.record.schema import APPLICATION_ID, COMMITS, KEEP_UNKNOWN, TABLES, UNKNOWN, Table
from agenttop.wire.codec import Unknown

CHECKPOINT_COMMITS = 10
"""Commits between two checkpoints: with one commit a second the side file stays below 10 s of rows."""

BUSY_S = 1.0
"""How long a commit waits for somebody else's lock on the file; the rows are tried again at the next."""

CLOSE_BUSY_S = 2.0

MOST_WAITING = 200_000
"""Frames held back while the file is locked by somebody else, before that counts as a failure."""

SPARE_BYTES = 1 << 20
"""With less than this free the disk counts as full, whatever the system's error says."""

ELSEWHERE = "choose another place with --out"

_INT64 = 1 << 63


class Recorder:
    """Writes one session into a new file.

    `add` only queues; `commit` does all the work and may wait for the disk, so it may be called in
    a thread while `add` goes on. Raises UsageError when the file exists or has no directory, AgenttopError
    when the disk refuses it.
    """

    def __init__(self, path: Path, session: Session) -> None:
        self.path = path
        self.failure: str | None = None
        """One sentence once recording has stopped by itself; None while all is well."""
        self._lock = threading.Lock()
        self._session = session
        self._repeats = Repeats()
        self._pending: deque[Frame | Unknown] = deque()
        self._seq = 0
        self._commits = 0
        self._newest = 0.0
        self._closed = False
        _claim(path)
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._inode = path.stat().st_ino
            _lay_out(self._database)
            self._insert([session])
        except (sqlite3.Error, OSError) as error:
            reason = _reason(path, error)
            self._database.close()
            for left in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                left.unlink(missing_ok=True)
            raise AgenttopError(f"cannot record to {path}: {reason}", ELSEWHERE) from error

    def add(self, frame: Frame | Unknown) -> None:
        """Queue a frame for the next commit, unless the recording holds what it says. Never blocks."""
        if self.failure is not None or self._closed or frame == self._session:
            return
        if not self._repeats.has(frame):
            self._pending.append(frame)

    def commit(self) -> None:
        """Write everything queued; it is in the file, for good, when this returns without a `failure`."""
        with self._lock:
            if self.failure is None and not self._closed:
                self._commit()

    def close(self) -> None:
        """Commit, and leave one single file behind."""
        with self._lock:
            if self._closed:
                return
            if self.failure is None:
                self._commit()
            self._closed = True
            if self.failure is None:
                self._fold_up()
            with contextlib.suppress(sqlite3.Error):
                self._database.close()

    @property
    def size_bytes(self) -> int:
        """What the recording takes on disk now."""
        size = 0
        for path in (self.path, Path(f"{self.path}-wal")):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return size

    def _commit(self) -> None:
        pending = [self._pending.popleft() for _ in range(len(self._pending))]
        if not pending:
            return
        try:
            self._insert(pending)
        except (sqlite3.Error, OSError) as error:
            self._undo()
            if _is_busy(error) and len(pending) < MOST_WAITING:
                self._pending.extendleft(reversed(pending))
            else:
                self._fail(_reason(self.path, error))
            return
        self._commits += 1
        if self._commits % CHECKPOINT_COMMITS == 0:
            try:
                self._check_place()
                self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except (sqlite3.Error, OSError) as error:
                self._fail(_reason(self.path, error))

    def _insert(self, frames: list[Frame | Unknown]) -> None:
        """One transaction with all frames, and the row of `commits` that finds them again."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        seq = self._seq
        for frame in frames:
            seq += 1
            if isinstance(frame, Unknown):
                rows.setdefault(KEEP_UNKNOWN, []).append((seq, frame.t, frame.kind, frame.line))
            else:
                table = TABLES[type(frame)]
                rows.setdefault(table.insert, []).append((seq, *_values(table, frame)))
        times = [frame.t for frame in frames]
        self._database.execute("BEGIN IMMEDIATE")
        for statement, some in rows.items():
            self._insert_rows(statement, some)
        self._database.execute('INSERT INTO "commits" VALUES (?, ?, ?)', (seq, min(times), max(times)))
        self._database.execute("COMMIT")
        self._seq = seq
        self._newest = max(self._newest, *times)

    def _insert_rows(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            self._database.executemany(statement, rows)
        except (OverflowError, UnicodeEncodeError):
            # A number beyond 64 bits or half a surrogate pair: only that value is lost. Rows that went
            # in before it are overwritten with themselves.
            repaired = [tuple(map(_storable, row)) for row in rows]
            self._database.executemany(statement.replace("INSERT", "INSERT OR REPLACE", 1), repaired)

    def _check_place(self) -> None:
        """A file that was deleted or replaced would take rows that nobody ever sees again."""
        try:
            here = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            here = False
        if not here:
            raise FileNotFoundError("the file was moved or deleted")

    def _undo(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _fail(self, reason: str) -> None:
        self.failure = f"{reason}; {self.path} is whole up to {units.clock(self._newest)}"
        self._pending.clear()
        with contextlib.suppress(sqlite3.Error):
            self._database.close()

    def _fold_up(self) -> None:
        """Move the side file's rows into the recording and leave write-ahead mode."""
        with contextlib.suppress(sqlite3.Error):
            self._database.execute(f"PRAGMA busy_timeout={int(CLOSE_BUSY_S * 1000)}")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # Refused while somebody reads: the file then stays whole in write-ahead mode.
            self._database.execute("PRAGMA journal_mode=DELETE")


def _claim(path: Path) -> None:
    """Create the file, refusing to touch one that exists."""
    try:
        path.open("xb").close()
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", "choose another name with --out, or remove it") from error
    except FileNotFoundError as error:
        raise UsageError(f"there is no directory {path.parent}", f"create it, or {ELSEWHERE}") from error
    except OSError as error:
        reason = clean(error.strerror or str(error)).lower()
        raise AgenttopError(f"cannot record to {path}: {reason}", ELSEWHERE) from error


def _lay_out(database: sqlite3.Connection) -> None:
    for pragma in (
        f"application_id={APPLICATION_ID}",
        f"user_version={SCHEMA}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "wal_autocheckpoint=0",
    ):
        database.execute(f"PRAGMA {pragma}")
    database.execute("BEGIN")
    for table in TABLES.values():
        database.execute(table.create)
    database.execute(UNKNOWN)
    database.execute(COMMITS)
    database.execute("COMMIT")


def _values(table: Table, frame: Frame) -> tuple[Any, ...]:
    values = msgspec.structs.astuple(frame)
    if not table.has_json:
        return values
    return tuple(
        msgspec.json.encode(value).decode() if column.json and value is not None else value
        for column, value in zip(table.columns, values, strict=True)
    )


def _storable(value: Any) -> Any:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _reason(path: Path, error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:
        return "the disk is full"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(path.parent).free < SPARE_BYTES:
            return "the disk is full"
    if _is_busy(error):
        return "another program keeps the file locked"
    if isinstance(error, FileNotFoundError):
        return "the file was moved or deleted"
    if isinstance(error, sqlite3.Error):
        return f"the file cannot be written ({clean(str(error))})"
    return clean(str(error))
