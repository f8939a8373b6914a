"""Tables of levels that somebody published, as CSV, to points."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.points import LevelPoint
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.text import clean

REQUIRED = "agents"
THROUGHPUTS = ("decode_tok_s", "completions_per_min", "decode_tok_s_per_agent")
FRACTIONS = ("kv_max_fraction", "prefix_hit_fraction")
COLUMNS = (
    REQUIRED, "decode_tok_s", "decode_tok_s_per_agent", "prefill_tok_s", "completions_per_min", "wait_s",
    "ttft_s", "preemptions", *FRACTIONS,
)  # fmt: skip

NOTHING = frozenset({"", "-", "–", "—", "n/a", "na", "none", "null", "?"})

MOST_ROWS = 10_000
MOST_LEVELS = 100
"""Numbers of agents: fitting a curve through more of them takes minutes, and nobody measures so many."""

HINT = f"the columns are {', '.join(COLUMNS)}; agents and a throughput are needed"


@dataclass(frozen=True, slots=True)
class Table:
    """What was read."""

    points: list[LevelPoint]
    notes: list[str]
    """What was left or filled in, one sentence each."""


def read_table(text: str, name: str) -> Table:
    """Points of a CSV text; `name` is what errors call it. Commas, semicolons or tabs between the columns.

    Raises UsageError, one sentence, with the line it is about.
    """
    if "\0" in text:
        raise UsageError(f"{name} is no text", "give a CSV file")
    lines = text.lstrip("\ufeff").splitlines()
    begins = next((number for number, line in enumerate(lines) if line.strip()), None)
    if begins is None:
        raise UsageError(f"{name} is empty", HINT)
    between = _delimiter(lines[begins])
    try:
        rows = list(csv.reader(lines[begins:], delimiter=between, strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise UsageError(f"{name} is not a CSV table: {error}", HINT) from None
    header, notes = _header(rows[0], name)
    points = []
    for number, row in enumerate(rows[1:], begins + 2):
        if any(cell.strip() for cell in row):
            points.append(_point(header, row, f"{name} line {number}"))
        if len(points) > MOST_ROWS:
            raise UsageError(f"{name} has more than {MOST_ROWS} rows", "one row per level is expected")
    if not points:
        raise UsageError(f"{name} has no row below its header", HINT)
    levels = len({point.agents for point in points})
    if levels > MOST_LEVELS:
        raise UsageError(
            f"{name} has {levels} numbers of agents, {MOST_LEVELS} at most can be judged",
            "leave out rows: a curve needs few",
        )
    return Table(points, notes)


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _header(cells: Sequence[str], name: str) -> tuple[list[str | None], list[str]]:
    header: list[str | None] = []
    left: list[str] = []
    for cell in cells:
        column = re.sub(r"[^a-z0-9]+", "_", cell.strip().lower()).strip("_")
        if column in header and column in COLUMNS:
            raise UsageError(f"{name} has the column {column} twice", "keep one of them")
        known = column in COLUMNS
        header.append(column if known else None)
        if not known and cell.strip():
            left.append(clean(cell.strip(), 30))
    if REQUIRED not in header:
        raise UsageError(f"the first line of {name} names no column '{REQUIRED}'", HINT)
    if not any(column in header for column in THROUGHPUTS):
        raise UsageError(f"{name} has no throughput", f"add a column {' or '.join(THROUGHPUTS[:2])}")
    notes = [f"columns not used: {', '.join(left[:10])}"] if left else []
    if not {"decode_tok_s", "completions_per_min"} & set(header):
        notes.append("decode_tok_s is taken as decode_tok_s_per_agent times agents")
    return header, notes


def _point(header: Sequence[str | None], row: Sequence[str], where: str) -> LevelPoint:
    if len(row) > len(header):
        extra = "a comma within a number needs quotes" if len(row) > len(header) else HINT
        raise UsageError(f"{where} has {len(row)} cells, the header has {len(header)}", extra)
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=False) if column is not None}
    values = {column: _number(cell, column, where) for column, cell in cells.items()}
    agents = values.pop(REQUIRED, None)
    if agents is None:
        raise UsageError(f"{where} says no number of agents", HINT)
    if agents != int(agents) or agents < 1:
        raise UsageError(f"{where}: agents {agents:g} is not a whole number from 1 on", HINT)
    each = values.get("decode_tok_s_per_agent")
    if each is not None and not {"decode_tok_s", "completions_per_min"} & set(cells):
        values["decode_tok_s"] = each * agents
    return _checked(int(agents), values, where)


def _checked(agents: int, values: dict[str, float | None], where: str) -> LevelPoint:
    from agenttop.analyse.pool import check

    point = LevelPoint(agents=agents, **values)  # type: ignore[arg-type]
    try:
        check(point)
    except AgenttopError as error:
        raise UsageError(f"{where}: {error}") from None
    return point


def _number(cell: str, column: str, where: str) -> float | None:
    """A cell to a number: `1,481`, `52 %` and units of seconds or tokens are understood, gaps are None."""
    if cell.lower() in NOTHING:
        return None
    plain = re.sub(r"(?<=\d)[,\u202f\u00a0' ](?=\d{3}(\D|$))", "", cell)
    match = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?\d+)?)\s*(%|s|tok/s|t/s)?", plain)
    value = math.nan
    if match is not None:
        try:
            value = float(match[1])
        except ValueError:
            value = math.nan
    if not math.isfinite(value):
        raise UsageError(
            f"{where}: {column} '{clean(cell, 30)}' is not a number", "write e.g. 412.5, or nothing"
        )
    percent = match is not None and match[2] == "%"
    if percent and column not in FRACTIONS:
        raise UsageError(f"{where}: {column} '{clean(cell, 30)}' is not a percentage", "write a number")
    return value / 100 if percent else value
