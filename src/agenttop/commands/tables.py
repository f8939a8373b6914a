"""The tables of a recording as exports show them: names of columns, plain values, Parquet types."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from agenttop.errors import AgenttopError, UsageError
from agenttop.model.frames import Frame, Turn
from agenttop.record.read import Recording
from agenttop.record.schema import BY_KIND, Column, Table, named

BATCH = 5_000

ARRIVALS = "arrivals"
ARRIVALS_US = "arrivals_us"


def table_named(name: str) -> Table:
    """The table of a kind or its plural. Raises UsageError."""
    table = named(name)
    if table is None:
        raise UsageError(f"there is no table '{name}'", f"tables are: {', '.join(BY_KIND)}")
    return table


def column_name(table: Table, column: Column) -> str:
    """What a column is called outside: a turn's kind is its `kind`, whatever the wire calls it."""
    if table.frame_type is Turn and column.name == "turn_kind":
        return "kind"
    return ARRIVALS_US if column.name == ARRIVALS else column.name


def csv_columns(table: Table) -> list[Column]:
    """All columns but packed arrival times, which only JSON lines and Parquet carry."""
    return [column for column in table.columns if column.name != ARRIVALS]


def plain_values(columns: list[Column], frame: Frame) -> Iterator[Any]:
    """Values for a text table: lists and dicts as JSON."""
    for column in columns:
        value = getattr(frame, column.name)
        yield msgspec.json.encode(value).decode() if column.json and value is not None else value


def write_parquet(recording: Recording, table: Table, path: str) -> int:
    """One table as a Parquet file; returns its number of rows. Raises AgenttopError without pyarrow."""
    try:
        import pyarrow  # 150 ms, and an extra
        from pyarrow import parquet
    except ImportError as error:
        raise AgenttopError("Parquet needs the package pyarrow", "pip install 'agenttop[parquet]'") from error
    schema = pyarrow.schema(
        [(column_name(table, column), _arrow_type(pyarrow, column)) for column in table.columns]
    )
    written = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for frames in batches(recording, table):
            columns = [
                pyarrow.array([_arrow_value(column, frame) for frame in frames], schema.field(index).type)
                for index, column in enumerate(table.columns)
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
            written += len(frames)
    return written


def batches(recording: Recording, table: Table) -> Iterator[list[Frame]]:
    """The frames of a table in the order they were written, some thousands at a time."""
    batch: list[Frame] = []
    for frame in recording.rows(table.frame_type):
        batch.append(frame)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _arrow_type(pyarrow: Any, column: Column) -> Any:
    if column.name == ARRIVALS:
        return pyarrow.list_(pyarrow.uint32())
    if column.boolean:
        return pyarrow.bool_()
    types = {"REAL": pyarrow.float64(), "INTEGER": pyarrow.int64(), "TEXT": pyarrow.string()}
    return types.get(column.sql_type, pyarrow.binary())


def _arrow_value(column: Column, frame: Frame) -> Any:
    value = getattr(frame, column.name)
    if value is None:
        return None
    if column.json:
        return msgspec.json.encode(value).decode()
    return _unpacked(value) if column.name == ARRIVALS else value


def _unpacked(packed: bytes) -> list[int]:
    offsets = array("I")
    offsets.frombytes(packed[: len(packed) // 4 * 4])
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets.tolist()
