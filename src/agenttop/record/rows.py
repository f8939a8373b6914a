"""Rows of a recording to frames. A value that a frame cannot hold costs that value, not the row."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import msgspec

from agenttop.model.frames import Frame
from agenttop.model.text import clean
from agenttop.record.schema import Column, Table

TEXT_LIMIT = 4000
"""Longer than any text agenttop writes; a hostile file gets no further."""

INFINITE = frozenset({math.inf, -math.inf})


@lru_cache(maxsize=8192)
def clean_text(raw: bytes) -> str:
    """A TEXT value as the file holds it to one that is fit for a terminal (SQLite's `text_factory`)."""
    return clean(raw.decode("utf-8", "replace"), TEXT_LIMIT)


class RowReader:
    """Reads the table of one kind, with those of its columns that the file has.

    A file of a later version may have more columns, of an earlier one fewer: those are left at None.
    """

    def __init__(self, table: Table, present: set[str]) -> None:
        self.table = table
        self.columns = tuple(column for column in table.columns if column.name in present)
        names = ", ".join(_selected(column) for column in self.columns)
        self.select = f'SELECT "seq", {names} FROM "{table.kind}"'
        self._names = tuple(column.name for column in self.columns)
        self._special = tuple(column for column in self.columns if column.json or column.boolean)

    @property
    def readable(self) -> bool:
        """Whether the file has all the columns that a frame of this kind cannot be without."""
        return all(column in self.columns for column in self.table.columns if column.required)

    def frame(self, row: tuple[Any, ...]) -> Frame | None:
        """The frame of a row (`seq` first); None when what it cannot be without is damaged."""
        values = dict(zip(self._names, row[1:], strict=True))
        if INFINITE.intersection(row):
            values = {name: None if value in INFINITE else value for name, value in values.items()}
        for column in self._special:
            if values[column.name] is not None:
                values[column.name] = _opened(column, values[column.name])
        try:
            return self._build(values)
        except msgspec.ValidationError:
            return self._salvage(values)

    def _build(self, values: dict[str, Any]) -> Frame:
        frame: Frame = _convert(values, self.table.frame_type)
        return frame

    def _salvage(self, values: dict[str, Any]) -> Frame | None:
        sound: dict[str, Any] = {}
        for column in self.columns:
            try:
                value = _convert(values.get(column.name), column.type)
            except msgspec.ValidationError:
                continue
            if value is not None:
                sound[column.name] = value
        try:
            return self._build(sound)
        except msgspec.ValidationError:
            return None


def _selected(column: Column) -> str:
    # JSON goes round `clean_text`, which would cut it short: as bytes.
    return f'CAST("{column.name}" AS BLOB)' if column.json else f'"{column.name}"'


def _opened(column: Column, value: Any) -> Any:
    if column.boolean:
        return bool(value) if isinstance(value, int) else value
    try:
        return _cleaned(msgspec.json.decode(value))
    except (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError):
        return value


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value, TEXT_LIMIT)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {clean(str(key), TEXT_LIMIT): _cleaned(item) for key, item in value.items()}
    return value


def _convert(value: Any, wanted: Any) -> Any:
    return msgspec.convert(value, type=wanted, builtin_types=(bytes,))
