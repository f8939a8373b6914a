"""`agenttop compare FILE...`: recordings side by side, one row per level, and what follows in words."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.model import units
from agenttop.model.text import printable

if TYPE_CHECKING:
    from agenttop.analyse.points import LevelPoint
    from agenttop.analyse.probes import ProbeRow

Row = dict[str, Any]
Rows = Sequence[Row]
Points = dict[str, "Sequence[LevelPoint]"]
Columns = tuple[tuple[str, Callable[[Row], str]], ...]

FORMATS = ("table", "markdown", "csv", "json")

LEFT = 2
"""Columns of a table that are text."""

WIDTH = 120
"""A table is no wider: names are shortened, and what no level knows is left out and named below."""

GAP = 2
"""Spaces between columns."""

SHORTEST = 10
"""Names are not shortened below this."""


def _host(row: Row) -> str:
    mark = " (sim)" if row["simulated"] else " (demo)" if row["demo"] else ""
    return f"{row['host']}{mark}"


def _failed(row: Row) -> str:
    kinds = row["failure_kinds"] or {}
    most = f" {next(iter(kinds))}" if kinds else ""
    return units.count(row["failures"]) + most


def _throttled(row: Row) -> str:
    """The GPU that was held down most, and by what."""
    worst = row["throttle_worst_shares"] or {}
    if not worst:
        return units.percent(row["gpu_throttled_fraction"])
    reason = max(worst, key=lambda reason: worst[reason])
    return f"{units.percent(worst[reason])} {reason}" if worst[reason] else units.percent(0.0)


def _bandwidth(row: Row) -> str:
    return ("≥" if row["bandwidth_at_least"] else "") + units.percent(row["bandwidth_fraction"])


def joules(value: float | None) -> str:
    """Energy with two digits that count: `0.41`, `3.1`, `87`."""
    if value is None:
        return units.MISSING
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


NAMES: Columns = (
    ("file", lambda row: Path(row["file"]).name.removesuffix(".agenttop")),
    ("host", _host),
    ("agents", lambda row: str(row["agents"])),
)

SPEEDS: Columns = (
    ("tok/s/agent", lambda row: units.rate(row["decode_tok_s_per_agent_p50"])),
    ("decode t/s", lambda row: units.rate(row["decode_tok_s"])),
    ("prefill t/s", lambda row: units.rate(row["prefill_tok_s"])),
    ("TTFT", lambda row: units.seconds(row["ttft_s_p50"])),
    ("wait", lambda row: units.seconds(row["wait_s_p50"])),
    ("turns", lambda row: units.count(row["turns"])),
    ("/min", lambda row: units.rate(row["completions_per_min"])),
    ("valid", lambda row: "yes" if row["valid"] else "no"),
)

CAUSES: Columns = (
    ("KV max", lambda row: units.percent(row["kv_max_fraction"])),
    ("hits", lambda row: units.percent(row["prefix_hit_fraction"])),
    ("engine hits", lambda row: units.percent(row["engine_hit_fraction"])),
    ("accept", lambda row: units.percent(row["draft_acceptance"])),
    ("queued", lambda row: units.percent(row["waiting_fraction"])),
    ("compact", lambda row: units.count(row["compactions"])),
    ("took", lambda row: units.seconds(row["compaction_s_p50"])),
    ("again", lambda row: units.count(row["compaction_prefill_tokens_p50"])),
    ("preempt", lambda row: units.rate(row["preemptions_per_min"])),
    ("stalls", lambda row: units.count(row["stalls"])),
    ("retries", lambda row: units.count(row["retries"])),
    ("failed", _failed),
    ("throttled", _throttled),
    ("W", lambda row: units.count(row["gpu_power_w"])),
    ("J/token", lambda row: joules(row["joules_per_token"])),
    ("bandwidth", _bandwidth),
    ("window", lambda row: units.seconds(row["window_s"])),
    ("steady", lambda row: row["steady"] or units.MISSING),
    ("limit", lambda row: (row["bottleneck"] or units.MISSING).removesuffix(" is saturated")),
)

COLUMNS: Columns = (
    ("file", lambda row: Path(row["file"]).name),
    *NAMES[1:],
    *SPEEDS[:-1],
    *CAUSES,
    SPEEDS[-1],
)

SOME = ("engine hits", "accept", "W", "J/token", "bandwidth")
"""What only some engines and GPUs count: nothing is said where none of them does."""

RARE = ("engine hits", "retries", "stalls", "took", "again", "queued", "throttled")
"""Left out in this order where a table is too wide and the column is empty or zero throughout."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `compare`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="recordings (*.agenttop)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="how to print the rows (table)")
    parser.add_argument(
        "--chart", action="store_true", help="also draw decode tok/s over agents (with table only)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the levels of all files. Raises AgenttopError for a file that is no recording."""
    from agenttop.errors import UsageError

    if arguments.chart and arguments.format != "table":
        raise UsageError(
            f"--chart does not go with --format {arguments.format}", "use it with --format table"
        )
    rows: list[Row] = []
    points: Points = {}
    probes: list[ProbeRow] = []
    for file in arguments.files:
        some, points[file], asked = _levels(file)
        probes += asked
        if not some:
            sys.stderr.write(
                f"agenttop: {printable(file)} has no level: no agents ran while it was recorded\n"
            )
        rows += some
    sys.stdout.write(render(rows, arguments.format, probes, points=points))
    if arguments.chart and rows:
        from agenttop.commands.chart import charts

        sys.stdout.write("\n" + charts(rows))
    return 0


def _levels(file: str) -> tuple[list[Row], Sequence[LevelPoint], list[ProbeRow]]:
    """The levels of a recording as rows, and with their requests; its answers to probes."""
    import msgspec

    from agenttop.analyse.compare import rows_of
    from agenttop.analyse.material import of_recording
    from agenttop.analyse.points import points_of
    from agenttop.analyse.probes import of_material
    from agenttop.record.read import Recording

    with Recording(Path(file)) as recording:
        material = of_recording(recording)
    rows = rows_of(material, file)
    return [msgspec.to_builtins(row) for row in rows], points_of(material, rows), of_material(material, file)


def render(
    rows: Rows,
    form: str,
    probes: Sequence[ProbeRow] = (),
    *,
    points: Points | None = None,
    sentences: dict[str, str] | None = None,
) -> str:
    """The rows in one of `FORMATS`, and answers to probes where there are any; ends with a newline.

    `points` and `sentences`: see `analyse.story.story`.
    """
    match form:
        case "json":
            return _as_json(rows, probes, points)
        case "csv":
            return _as_csv(rows)
    from agenttop.commands import cells, probe_table

    below = probe_table.table(probes, form)
    if form == "markdown":
        header = [name for name, _ in COLUMNS]
        table = [[show(row) for _, show in COLUMNS] for row in rows]
        return cells.markdown(header, table, LEFT) + _remarks(rows, "- ") + below
    if not rows:
        return "no levels\n" + below
    parts = [
        _table(rows, (*NAMES, *SPEEDS)) + _remarks(rows) + _several_engines(rows),
        _table(rows, (NAMES[0], NAMES[2], *CAUSES), 1),
        _words(rows, points, sentences),
    ]
    return "\n".join(part for part in parts if part) + below


def _table(rows: Rows, columns: Columns, left: int = LEFT) -> str:
    """The columns as a table of at most `WIDTH`; below it in words what no level knows.

    The first `left` columns are names and share what the others leave.
    """
    from agenttop.commands import cells

    shown = [(name, [printable(show(row)) for row in rows]) for name, show in columns]
    unknown = [name for name, values in shown[left + 1 :] if set(values) == {units.MISSING}]
    shown = [(name, values) for name, values in shown if name not in unknown]
    unknown = [name for name in unknown if name not in SOME]
    needs = [_wide(shown[index : index + 1]) for index in range(left)]
    for rare in RARE:
        if _wide(shown) > WIDTH:
            shown = [(n, v) for n, v in shown if n != rare or not set(v) <= {"0", "0 %", units.MISSING}]
    room = WIDTH - _wide(shown[left:])
    rooms = [max(SHORTEST, min(need, max(room // left, room - sum(needs) + need)) - GAP) for need in needs]
    shown[:left] = [
        (name, _shortened(values, most)) for (name, values), most in zip(shown, rooms, strict=False)
    ]
    text = "\n".join(
        cells.aligned(
            [name for name, _ in part],
            [list(cells_of) for cells_of in zip(*(values for _, values in part), strict=True)],
            left,
        )
        for part in _parts(shown, left)
    )
    return text + (f"not known of any level: {', '.join(unknown)}\n" if unknown else "")


def _parts(shown: Sequence[tuple[str, list[str]]], left: int) -> list[list[tuple[str, list[str]]]]:
    """The columns one after another as few tables of at most `WIDTH`; each has the names, the levels too."""
    names = list(shown[: left + 1])  # `agents` follows the names
    parts = [list(names)]
    for column in shown[left + 1 :]:
        if len(parts[-1]) > len(names) and _wide([*parts[-1], column]) - GAP > WIDTH:
            parts.append(list(names))
        parts[-1].append(column)
    return parts


def _wide(shown: Sequence[tuple[str, list[str]]]) -> int:
    """Width of columns, each with the gap beside it."""
    from agenttop.commands import cells

    return sum(max(map(cells.width, (name, *values))) + GAP for name, values in shown)


def _shortened(values: Sequence[str], most: int) -> list[str]:
    """Names of at most `most` characters: without their middle, or from where they differ."""
    long = [value for value in values if len(value) > most]
    same = next((i for i, letters in enumerate(zip(*long, strict=False)) if len(set(letters)) > 1), 0)
    middle = [value if len(value) <= most else _without_middle(value, most) for value in values]
    ends = [value if len(value) <= most else f"…{value[same:]}"[:most] for value in values]
    return max(middle, ends, key=lambda short: len(set(short)))


def _without_middle(text: str, most: int) -> str:
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def _words(rows: Rows, points: Points | None, sentences: dict[str, str] | None) -> str:
    from agenttop.analyse.story import story

    lines = [
        textwrap.fill(printable(line), WIDTH, initial_indent="- ", subsequent_indent="  ")
        for line in story(rows, points, sentences)
    ]
    return "".join(f"{line}\n" for line in lines)


def _remarks(rows: Rows, bullet: str = "") -> str:
    """Levels that are not valid, and those that are but were not steady, with the reason."""
    remarks = []
    for row in rows:
        if not row["valid"]:
            remarks.append(f"not valid: {_named(row)}: {row['why_invalid']}")
        elif row["steady"] not in (None, "steady") and row["why_steady"]:
            remarks.append(f"valid, but {row['steady']}: {_named(row)}: {row['why_steady']}")
        if row.get("also_busy"):
            remarks.append(f"not alone: {_named(row)}: the host also served {row['also_busy']}")
    wrapped = [textwrap.fill(bullet + text, WIDTH, subsequent_indent="  ") + "\n" for text in remarks]
    return "".join(["\n", *wrapped]) if wrapped else ""


def _several_engines(rows: Rows) -> str:
    """Where the load went, if not to one engine throughout."""
    targets = {(row["file"], row["engine"]): row for row in rows if row["engine"]}
    if len({engine for _, engine in targets}) < 2:
        return ""
    lines = [
        f"{printable(Path(file).name)}: load went to {target(row)}" for (file, _), row in targets.items()
    ]
    return "".join(["\n", *(textwrap.fill(line, WIDTH, subsequent_indent="  ") + "\n" for line in lines)])


def target(row: Row) -> str:
    """The engine a level's load went to: `vLLM at http://127.0.0.1:8000, Qwen3-8B`."""
    name = f"{printable(row['engine_name'])} at " if row["engine_name"] else ""
    model = f", {printable(row['model'])}" if row["model"] else ""
    return f"{name}{printable(row['engine'])}{model}"


def _named(row: Row) -> str:
    agents = "1 agent" if row["agents"] == 1 else f"{row['agents']} agents"
    return f"{printable(Path(row['file']).name)} level {row['level']} ({agents})"


def _as_json(rows: Rows, probes: Sequence[ProbeRow], points: Points | None) -> str:
    from agenttop.analyse.story import story
    from agenttop.commands import probe_table
    from agenttop.commands.cells import json_text

    out = {"schema": 1, "levels": rows, "story": story(rows, points), **probe_table.values(probes)}
    return json_text(out)


def _as_csv(rows: Rows) -> str:
    from agenttop.analyse.compare import LevelRow
    from agenttop.commands.cells import csv_cell

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(LevelRow.__struct_fields__)
    writer.writerows([csv_cell(row[name]) for name in LevelRow.__struct_fields__] for row in rows)
    return out.getvalue()
