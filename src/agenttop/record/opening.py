"""Opening a recording without changing it, whatever state it was left in.

Rules
- A recording that was closed in order is one file. One that is being written, or whose node was
  killed, has its newest rows in a side file (`-wal`) which SQLite reads along.
- Where that is not possible (a read-only folder, a full disk), a copy of both in a temporary folder is read.
- Whatever is wrong with a file is told in one sentence.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agenttop.errors import AgenttopError
from agenttop.model.frames import SCHEMA
from agenttop.model.text import clean
from agenttop.record.rows import clean_text
from agenttop.record.schema import APPLICATION_ID

BUSY_S = 5.0
"""Longest wait for a writer that is closing the file."""

READ_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises. The second is Python's, at an error message that quotes garbage."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

_NO_PLACE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
}
"""What SQLite says when it cannot put its index of the side file beside the recording."""


class OpenFile:
    """A connection that only reads, and what has to be tidied up after it."""

    def __init__(
        self, database: sqlite3.Connection, copy: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self.database = database
        self._copy = copy

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            self.database.close()
        if self._copy is not None:
            self._copy.cleanup()


@contextlib.contextmanager
def renamed(path: Path) -> Iterator[None]:
    """SQLite's own errors become one sentence about the file."""
    try:
        yield
    except READ_ERRORS as error:
        raise _explained(path, error) from error


def open_recording(path: Path) -> OpenFile:
    """Open a recording for reading. Raises AgenttopError when it is none, or cannot be read."""
    header = _header(path)
    try:
        opened = _connect(path)
    except READ_ERRORS as error:
        raise _explained(path, error) from error
    try:
        with renamed(path):
            _check(path, opened.database, header)
    except BaseException:
        opened.close()
        raise
    return opened


def closed_in_order(path: Path) -> bool:
    """Whether the recording was finished: its header is out of write-ahead mode. False when unreadable."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\1\1"
    except OSError:
        return False


def _header(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise AgenttopError(f"{path} is a folder, not a recording")
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise AgenttopError(f"{path} is not a regular file, so not a recording")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError as error:
        raise AgenttopError(
            f"there is no file {path}", "`agenttop list` shows the recordings of this host"
        ) from error
    except OSError as error:
        raise AgenttopError(
            f"{path} cannot be read: {clean(error.strerror or str(error)).lower()}"
        ) from error
    if not header:
        raise AgenttopError(f"{path} is empty, not a recording")
    if not header.startswith(_MAGIC[: len(header)]):
        raise AgenttopError(f"{path} is not an agenttop recording")
    if len(header) < _HEADER_BYTES:
        raise _truncated(path)
    if not _side_file(path):
        # Before SQLite gets to see a foreign file. With a side file the header is not the last word.
        if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
            raise AgenttopError(f"{path} is an SQLite file, but not an agenttop recording")
        pages, page_bytes = int.from_bytes(header[28:32], "big"), int.from_bytes(header[16:18], "big")
        if path.stat().st_size < pages * (page_bytes if page_bytes != 1 else 65536):
            raise _truncated(path)
    return header


def _connect(path: Path) -> OpenFile:
    try:
        return OpenFile(read_only(path))
    except sqlite3.OperationalError as error:
        if _kind(error) not in _NO_PLACE:
            raise
    if not _side_file(path):
        return OpenFile(read_only(path, "&immutable=1"))
    copy = tempfile.TemporaryDirectory(prefix="agenttop-")
    try:
        for name in (path.name, f"{path.name}-wal"):
            shutil.copyfile(path.with_name(name), Path(copy.name) / name)
        return OpenFile(read_only(Path(copy.name) / path.name), copy)
    except OSError as error:
        copy.cleanup()
        raise AgenttopError(f"{path} cannot be read where it is, nor copied: {clean(str(error))}") from error
    except BaseException:
        copy.cleanup()
        raise


def read_only(path: Path, more: str = "", *, lenient: bool = False) -> sqlite3.Connection:
    """A bare connection that only reads, and cleans every text. Raises sqlite3.Error.

    `lenient`: also open a file that is shorter than its header says.
    """
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro{more}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        database.text_factory = clean_text
        database.execute("PRAGMA trusted_schema=OFF")
        if lenient:
            # sqlite/src/btree.c, lockBtree: only then is a file with fewer pages than it should have opened.
            database.execute("PRAGMA writable_schema=ON")
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        database.close()
        raise
    return database


def _check(path: Path, database: sqlite3.Connection, header: bytes) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise AgenttopError(f"{path} is an SQLite file, but not an agenttop recording")
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    if schema > SCHEMA:
        raise AgenttopError(
            f"{path} was written by a newer agenttop (schema {schema}, this one reads {SCHEMA})",
            "upgrade agenttop",
        )
    if database.execute("SELECT 1 FROM sqlite_master WHERE type = 'view' LIMIT 1").fetchone():
        # A view may compute for ever.
        raise AgenttopError(f"{path} is no recording as agenttop writes it: it holds views")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "session" not in tables:
        if header[18] == 2 and not _side_file(path):
            raise AgenttopError(f"{path} lacks its side file {path.name}-wal, which holds its rows")
        raise _damaged(path)


def _side_file(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except OSError:
        return False


def _kind(error: Exception) -> int | None:
    """The primary result code; the upper bytes only refine it."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _explained(path: Path, error: Exception) -> AgenttopError:
    kind = _kind(error)
    if kind == sqlite3.SQLITE_NOTADB:
        return AgenttopError(f"{path} is not an agenttop recording")
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return AgenttopError(f"{path} is locked by another program", "try again when it has let go")
    if kind in _NO_PLACE:
        return AgenttopError(f"{path} cannot be read: {clean(str(error))}")
    return _damaged(path)


def _truncated(path: Path) -> AgenttopError:
    return AgenttopError(f"{path} is cut short: its end is missing", _recover(path))


def _damaged(path: Path) -> AgenttopError:
    return AgenttopError(f"{path} is damaged", _recover(path))


def _recover(path: Path) -> str:
    return f"what is left of it: agenttop export {path.name} --to agenttop --out rescued{path.suffix}"
