"""`agenttop compare FILE...`: recordings side by side, one row per level."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agenttop.model import units
from agenttop.model.text import printable

Rows = Sequence[dict[str, Any]]

FORMATS = ("table", "markdown", "csv", "json")

LEFT = 2
"""Columns of the table that are text."""

COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("file", lambda row: Path(row["file"]).name),
    ("host", lambda row: row["host"] + (" (demo)" if row["demo"] else "")),
    ("agents", lambda row: str(row["agents"])),
    ("tok/s/agent", lambda row: units.rate(row["decode_tok_s_per_agent_p50"])),
    ("decode tok/s", lambda row: units.rate(row["decode_tok_s"])),
    ("prefill tok/s", lambda row: units.rate(row["prefill_tok_s"])),
    ("TTFT p50", lambda row: units.seconds(row["ttft_s_p50"])),
    ("turns", lambda row: units.count(row["turns"])),
    ("/min", lambda row: units.rate(row["completions_per_min"])),
    ("KV max", lambda row: units.percent(row["kv_max_fraction"])),
    ("compact", lambda row: units.count(row["compactions"])),
    ("preempt", lambda row: units.count(row["preemptions"])),
    ("failed", lambda row: units.count(row["failures"])),
    ("window", lambda row: units.seconds(row["window_s"])),
    ("valid", lambda row: "yes" if row["valid"] else "no"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `compare`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="recordings (*.agenttop)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="how to print the rows (table)")
    parser.add_argument(
        "--chart", action="store_true", help="also draw decode tok/s over agents (with table only)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the levels of all files. Raises AgenttopError for a file that is no recording."""
    from agenttop.analyse.compare import level_rows
    from agenttop.errors import UsageError

    if arguments.chart and arguments.format != "table":
        raise UsageError(
            f"--chart does not go with --format {arguments.format}", "use it with --format table"
        )
    rows: list[dict[str, Any]] = []
    for file in arguments.files:
        some = level_rows([Path(file)])
        if not some:
            sys.stderr.write(
                f"agenttop: {printable(file)} has no level: no agents ran while it was recorded\n"
            )
        rows += some
    sys.stdout.write(render(rows, arguments.format))
    if arguments.chart and rows:
        from agenttop.commands.chart import charts

        sys.stdout.write("\n" + charts(rows))
    return 0


def render(rows: Rows, form: str) -> str:
    """The rows in one of `FORMATS`; ends with a newline."""
    match form:
        case "json":
            return _as_json(rows)
        case "csv":
            return _as_csv(rows)
    from agenttop.commands import cells

    header = [name for name, _ in COLUMNS]
    table = [[show(row) for _, show in COLUMNS] for row in rows]
    if form == "markdown":
        return cells.markdown(header, table, LEFT) + _remarks(rows, "- not valid: ")
    if not rows:
        return "no levels\n"
    return cells.aligned(header, table, LEFT) + _remarks(rows, "not valid: ")


def _remarks(rows: Rows, before: str) -> str:
    remarks = [f"{before}{_named(row)}: {row['why_invalid']}\n" for row in rows if not row["valid"]]
    return "".join(["\n", *remarks]) if remarks else ""


def _named(row: dict[str, Any]) -> str:
    agents = "1 agent" if row["agents"] == 1 else f"{row['agents']} agents"
    return f"{printable(Path(row['file']).name)} level {row['level']} ({agents})"


def _as_json(rows: Rows) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode({"schema": 1, "levels": rows}), indent=2).decode() + "\n"


def _as_csv(rows: Rows) -> str:
    from agenttop.analyse.compare import LevelRow
    from agenttop.commands.cells import csv_cell

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(LevelRow.__struct_fields__)
    writer.writerows([csv_cell(row[name]) for name in LevelRow.__struct_fields__] for row in rows)
    return out.getvalue()
