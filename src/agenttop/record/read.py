"""Reading a recording: frames of a span, the state at a moment, events, turns. Changes nothing.

A recording may be read while it is written: each query sees a whole number of commits.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

from agenttop.errors import AgenttopError
from agenttop.model.frames import Event, Frame, Session, Turn
from agenttop.model.identity import IDENTITY
from agenttop.record.commits import EVERYTHING, Commits
from agenttop.record.opening import closed_in_order, open_recording, renamed
from agenttop.record.rows import RowReader
from agenttop.record.schema import TABLES

F = TypeVar("F", bound=Frame)
Numbered = tuple[float, int, Frame]
"""(t, seq, frame): the order in which frames are played."""


class Recording:
    """One recording, open for reading. Raises AgenttopError: one sentence for whatever is wrong with it."""

    start = 0.0
    """Every moment from here on can be shown."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = open_recording(self.path)
        self._database = self._file.database
        self._commits = Commits()
        self._known: dict[type[Frame], dict[tuple[Any, ...], list[int]]] = {}
        self._scanned: dict[type[Frame], int] = {}
        try:
            with self._snapshot():
                self._readers = {kind: reader for kind, reader in self._find_tables() if reader.readable}
            self.session = self._read_session()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, so that its writer can finish it."""
        self._file.close()

    @property
    def duration(self) -> float:
        """Session time of the last frame; grows while the session is recorded."""
        with self._snapshot():
            if self._commits.newest is not None:
                return self._commits.newest
            tables = [reader.table.kind for reader in self._readers.values()]
            newest = [
                self._database.execute(f'SELECT max("t") FROM "{kind}"').fetchone()[0] for kind in tables
            ]
        return max((t for t in newest if isinstance(t, float) and math.isfinite(t)), default=0.0)

    @property
    def finished(self) -> bool:
        """Whether its writer closed it. False while it is written, and for good after a `kill -9`."""
        return closed_in_order(self.path)

    def frames(
        self, t0: float = -math.inf, t1: float = math.inf, kinds: Collection[type[Frame]] | None = None
    ) -> list[Frame]:
        """Frames with `t0` <= t <= `t1` in the order of t, those of one moment as they were written."""
        with self._snapshot():
            span = self._commits.rows(t0, t1)
            found = self._select(kinds, span, '"t" >= ? AND "t" <= ?', (t0, t1))
        return _in_order(found)

    def of(self, kind: type[F], t0: float = -math.inf, t1: float = math.inf) -> list[F]:
        """Frames of one kind with `t0` <= t <= `t1`, in order."""
        return cast("list[F]", self.frames(t0, t1, (kind,)))

    def events(self, t1: float = math.inf) -> list[Event]:
        """Everything that happened up to `t1`."""
        return self.of(Event, t1=t1)

    def turns(self) -> list[Turn]:
        """Every request that has ended, in the order in which they ended."""
        return self.of(Turn)

    def count(self, kind: type[Frame]) -> int:
        """How many frames of a kind there are."""
        if kind not in self._readers:
            return 0
        with self._snapshot():
            return int(self._database.execute(f'SELECT count(*) FROM "{TABLES[kind].kind}"').fetchone()[0])

    def largest(self, kind: type[Frame], field: str) -> float | None:
        """The largest value of a number field in all frames of a kind; None when there is none."""
        reader = self._readers.get(kind)
        if reader is None or all(column.name != field for column in reader.columns):
            return None
        with self._snapshot():
            (value,) = self._database.execute(f'SELECT max("{field}") FROM "{TABLES[kind].kind}"').fetchone()
        return value if isinstance(value, int | float) else None

    def rows(self, kind: type[Frame]) -> Iterator[Frame]:
        """Frames of one kind as they were written, without holding all of them in memory."""
        reader = self._readers.get(kind)
        if reader is None:
            return
        after = 0
        while True:
            with self._snapshot():
                some = self._database.execute(
                    f'{reader.select} WHERE "seq" > ? ORDER BY "seq" LIMIT 5000', (after,)
                ).fetchall()
                if some and some[-1][0] <= after:
                    raise sqlite3.DatabaseError("rows run in a circle")
            if not some:
                return
            after = some[-1][0]
            yield from filter(None, map(reader.frame, some))

    def unknown_kinds(self) -> dict[str, int]:
        """Kinds of frames that this version does not know, and how many of each were kept."""
        with (
            self._snapshot(),
            contextlib.suppress(sqlite3.OperationalError),
        ):  # a foreign file may lack the table
            return dict(
                self._database.execute('SELECT "kind", count(*) FROM "unknown" GROUP BY "kind"').fetchall()
            )
        return {}

    def latest_before(self, t: float) -> list[Frame]:
        """The newest frame of each identity at or before `t`, in order: the state of that moment."""
        with self._snapshot():
            return _in_order(self._newest(t))

    def state_at(self, t: float, window_s: float, most: int) -> tuple[list[Frame], int]:
        """Frames that bring an empty store to the state at `t`, and the number of the newest row there is.

        They are the newest of each identity, every event up to `t`, and all frames of the last `window_s`
        seconds; the window is shortened to its newest `most` rows.
        """
        with self._snapshot():
            first, last = self._commits.rows(t - window_s, t)
            if last != EVERYTHING[1]:
                first = max(first, last - most + 1)
            window = self._select(None, (first, last), '"t" >= ? AND "t" <= ?', (t - window_s, t))
            events = self._select((Event,), self._commits.rows(-math.inf, t), '"t" <= ?', (t,))
            found = {seq: (moment, seq, frame) for moment, seq, frame in (*self._newest(t), *events, *window)}
            mark = self._commits.last_seq
        return _in_order(found.values()), mark

    def news(self, after: float, until: float, mark: int) -> tuple[list[Frame], int]:
        """Frames with `after` < t <= `until`, and older ones written since row `mark`; the new mark."""
        with self._snapshot():
            span = self._commits.rows(after, until)
            found = self._select(None, span, '"t" > ? AND "t" <= ?', (after, until))
            newest = self._commits.last_seq
            if newest > mark:
                found += self._select(None, (mark + 1, newest), '"t" <= ?', (after,))
        return _in_order(found), newest

    def between(self, after: float, until: float) -> int:
        """About how many frames lie in a span: never fewer than there are."""
        with self._snapshot():
            first, last = self._commits.rows(after, until)
        return max(0, last - first + 1)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One moment of a file that may be growing; foreign errors get their names here."""
        with renamed(self.path):
            self._database.execute("BEGIN")
            try:
                with contextlib.suppress(sqlite3.OperationalError):  # without commits every row is looked at
                    self._commits.refresh(self._database)
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")

    def _find_tables(self) -> Iterator[tuple[type[Frame], RowReader]]:
        for frame_type, table in TABLES.items():
            present = {
                row[1] for row in self._database.execute(f'PRAGMA table_info("{table.kind}")').fetchall()
            }
            if "seq" in present:
                yield frame_type, RowReader(table, present)

    def _read_session(self) -> Session:
        sessions = self.of(Session)
        if not sessions:
            raise AgenttopError(
                f"{self.path} does not say which session it is of: it is damaged or was cut short"
            )
        return sessions[-1]

    def _select(
        self,
        kinds: Collection[type[Frame]] | None,
        span: tuple[int, int],
        where: str,
        values: tuple[float, ...],
    ) -> list[Numbered]:
        found: list[Numbered] = []
        if span[1] < span[0]:
            return found
        for frame_type, reader in self._readers.items():
            if kinds is not None and frame_type not in kinds:
                continue
            query = f'{reader.select} WHERE "seq" BETWEEN ? AND ? AND {where}'
            found += _numbered(reader, self._database.execute(query, (*span, *values)))
        return found

    def _newest(self, t: float) -> list[Numbered]:
        found: list[Numbered] = []
        last = self._commits.rows(-math.inf, t)[1]
        for frame_type, columns in IDENTITY.items():
            reader = self._readers.get(frame_type)
            if reader is None or any(
                name not in {column.name for column in reader.columns} for name in columns
            ):
                continue
            same = "".join(f' AND "{name}" IS ?' for name in columns)
            query = (
                f'{reader.select} WHERE "seq" BETWEEN ? AND ?{same} AND "t" <= ? ORDER BY "seq" DESC LIMIT 1'
            )
            for key, (low, high) in self._identities(frame_type, columns).items():
                if low <= last:
                    rows = self._database.execute(query, (low, min(high, last), *key, t))
                    found += _numbered(reader, rows)
        return found

    def _identities(
        self, frame_type: type[Frame], columns: tuple[str, ...]
    ) -> dict[tuple[Any, ...], list[int]]:
        """First and last row of each identity: one that fell silent long ago is found at once, without
        walking back through everything since."""
        known = self._known.setdefault(frame_type, {})
        names = "".join(f'"{name}", ' for name in columns)
        group = f" GROUP BY {names[:-2]}" if names else ""
        rows = self._database.execute(
            f'SELECT {names}min("seq"), max("seq") FROM "{TABLES[frame_type].kind}" WHERE "seq" > ?{group}',
            (self._scanned.get(frame_type, 0),),
        )
        for *key, low, high in rows.fetchall():
            if high is None:
                continue
            known.setdefault(tuple(key), [low, high])[1] = high
            self._scanned[frame_type] = max(high, self._scanned.get(frame_type, 0))
        return known


def _numbered(reader: RowReader, rows: Iterable[tuple[Any, ...]]) -> list[Numbered]:
    frames = ((row[0], reader.frame(row)) for row in rows)
    return [(frame.t, seq, frame) for seq, frame in frames if frame is not None]


def _in_order(found: Iterable[Numbered]) -> list[Frame]:
    return [frame for _, _, frame in sorted(found, key=lambda item: item[:2])]
