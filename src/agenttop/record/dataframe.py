"""Tables of a recording as pandas DataFrames, for notebooks: `dataframe("file.agenttop", "turn")`."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.errors import AgenttopError, UsageError
from agenttop.record.read import Recording
from agenttop.record.schema import BY_KIND, Column, named

if TYPE_CHECKING:
    import pandas


def dataframe(path: Path | str, table: str) -> pandas.DataFrame:
    """One row per frame in the order it was written, one column per field, units as in the field's name.

    Missing is `pandas.NA` (or NaN in float columns), never 0. A turn's `arrivals` are arrays of microseconds
    after `t_sent`. Raises AgenttopError for a file that cannot be read or without pandas, UsageError for an
    unknown table.
    """
    try:
        import pandas  # 0.3 s, and an extra
    except ImportError as error:
        raise AgenttopError("this needs the package pandas", "pip install 'agenttop[analysis]'") from error
    known = named(table)
    if known is None:
        raise UsageError(f"there is no table '{table}'", f"tables are: {', '.join(BY_KIND)}")
    with Recording(Path(path)) as recording:
        frames = list(recording.rows(known.frame_type))
    return pandas.DataFrame(
        {
            column.name: pandas.Series([_value(column, frame) for frame in frames], dtype=_dtype(column))
            for column in known.columns
        }
    )


def _value(column: Column, frame: Any) -> Any:
    value = getattr(frame, column.name)
    if column.name == "arrivals" and value is not None:
        return array("I", value)
    return value


def _dtype(column: Column) -> str:
    if column.boolean:
        return "boolean"
    if column.json or column.sql_type == "BLOB":
        return "object"
    return {"REAL": "float64", "INTEGER": "Int64", "TEXT": "string"}[column.sql_type]
