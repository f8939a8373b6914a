"""The tables of a recording, derived from the frame types: one table per kind, one column per field.

Rules
- A recording is one SQLite file, told apart by `APPLICATION_ID`; `user_version` is the schema number.
- The table of a kind is named by the kind. Its columns are the fields: float REAL, int and bool INTEGER,
  str TEXT, bytes BLOB, lists and dicts TEXT holding JSON. Missing is NULL.
- `seq` numbers the rows of all tables together in the order in which they were written.
- `commits` has one row per commit: the last `seq` it wrote and the span of `t` in it. Rows arrive almost
  in the order of `t`, so it finds any span of time without an index to keep up on each table.
- Frames of kinds this version does not know stand in `unknown`, as the lines they came as.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Any

import msgspec

from agenttop.model.frames import FRAME_TYPES, Frame, kind_of

APPLICATION_ID = 0x61677470
"""`agtp` in the header of every recording; `file` and SQLite show it."""

SUFFIX = ".agenttop"

COMMITS = 'CREATE TABLE "commits" ("seq" INTEGER PRIMARY KEY, "t_low" REAL, "t_high" REAL)'
KEEP_UNKNOWN = 'INSERT INTO "unknown" VALUES (?, ?, ?, ?)'
UNKNOWN = 'CREATE TABLE "unknown" ("seq" INTEGER PRIMARY KEY, "t" REAL, "kind" TEXT, "line" BLOB)'

_SQL_TYPES: dict[type, str] = {float: "REAL", int: "INTEGER", bool: "INTEGER", str: "TEXT", bytes: "BLOB"}


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a frame as a column."""

    name: str
    sql_type: str
    json: bool
    """A list or a dict, kept as JSON text."""
    boolean: bool
    type: Any
    """The field's type, for checking what a file holds."""
    required: bool
    """A frame cannot be without it."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One kind of frame as a table."""

    kind: str
    frame_type: type[Frame]
    columns: tuple[Column, ...]
    has_json: bool
    create: str
    """The statement that makes the table."""
    insert: str
    """The statement that adds a row: `seq`, then the fields in order."""


def _column(field: msgspec.structs.FieldInfo) -> Column:
    bare = _without_none(field.type)
    sql_type = _SQL_TYPES.get(bare)
    return Column(
        name=field.name,
        sql_type=sql_type or "TEXT",
        json=sql_type is None,
        boolean=bare is bool,
        type=field.type,
        required=field.required,
    )


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    return parts[0] if len(parts) == 1 else annotation


def _table(frame_type: type[Frame]) -> Table:
    columns = tuple(map(_column, msgspec.structs.fields(frame_type)))
    kind = kind_of(frame_type)
    declared = ", ".join(f'"{column.name}" {column.sql_type}' for column in columns)
    return Table(
        kind=kind,
        frame_type=frame_type,
        columns=columns,
        has_json=any(column.json for column in columns),
        create=f'CREATE TABLE "{kind}" ("seq" INTEGER PRIMARY KEY, {declared})',
        insert=f'INSERT INTO "{kind}" VALUES (?{", ?" * len(columns)})',
    )


TABLES: dict[type[Frame], Table] = {frame_type: _table(frame_type) for frame_type in FRAME_TYPES}
"""Every kind this version knows, in the order of `FRAME_TYPES`."""

BY_KIND: dict[str, Table] = {table.kind: table for table in TABLES.values()}


def named(name: str) -> Table | None:
    """The table of a kind; its plural works too (`turns`, `processes`). None when there is none."""
    singular = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    return BY_KIND.get(name) or BY_KIND.get(singular) or BY_KIND.get(name.removesuffix("es"))
