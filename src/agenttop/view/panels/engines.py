"""All engines of a session in a table: which there are, what each does, which stand behind which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.engines import ordered, parts_of, short
from agenttop.view.panels.parts import role_of
from agenttop.view.spans import Line, cells, cut, fit, foreign, pad, right, width
from agenttop.view.store import Store

GAP = 2
LEAST_MODEL = 8
MOST_NAME = 34
LONG = 80
"""From so many cells on notes are spelt out."""
STATE_ROLES = {"ok": "good", "busy": "warn", "loading": "warn", "starting": "warn", "asleep": "idle"}


@dataclass(frozen=True, slots=True)
class Column:
    """What it is called, and its cell."""

    title: str
    cell: Callable[[EngineSample], tuple[str, str]]
    at_right: bool = True


def engines(store: Store, room: int, rows: int, chosen: str | None) -> tuple[list[Line], dict[int, str]]:
    """A line of titles and one line for each engine, in at most `rows` lines; which engine stands in which.

    `chosen` is marked, and kept in sight.
    """
    listed = ordered(store)
    if not listed:
        return [[("no engine found yet", "dim")]], {}
    names = {engine.engine: _name(engine, depth) for engine, depth in listed}
    wide_name = max(cells("engine"), *(min(MOST_NAME, cells(name)) for name in names.values()))
    samples = [engine for engine, _ in listed]
    columns = [(column, _wide(column, samples)) for column in COLUMNS]
    notes = {engine.engine: _notes(store, engine, room >= LONG) for engine in samples}
    models = {engine.engine: _model(store, engine) for engine in samples}
    wide_model = max(cells("model"), *(cells(model) for model in models.values()))
    fixed = 2 + wide_name + sum(GAP + wide for _, wide in columns)
    least_note = max((width(note) for note in notes.values()), default=0)
    spare = room - fixed - GAP
    wide_model = max(LEAST_MODEL, min(wide_model, spare - (GAP + least_note if least_note else 0)))
    lines = [_titles(columns, wide_name, wide_model)]
    shown, top = _in_sight(samples, rows - 1, chosen)
    at: dict[int, str] = {}
    for engine in shown:
        at[len(lines)] = engine.engine
        line = _line(
            engine, columns, pad(names[engine.engine], wide_name), pad(models[engine.engine], wide_model)
        )
        note = notes[engine.engine]
        if note:
            line += [(" " * GAP, "text"), *note]
        marked = engine.engine == chosen
        line = [("› " if marked else "  ", "accent"), *line]
        lines.append(line)
    wide = min(room, max(width(line) for line in lines))
    lines = [fit(line, wide) for line in lines]
    for row, engine_url in at.items():
        if engine_url == chosen:
            lines[row] = [(text, role + "@") for text, role in lines[row]]
    left = len(samples) - len(shown)
    if left:
        lines.append([(f"  … {left} more, {top} of them above", "label")])
    return lines, at


def _in_sight(samples: list[EngineSample], rows: int, chosen: str | None) -> tuple[list[EngineSample], int]:
    if len(samples) <= rows:
        return samples, 0
    room = max(1, rows - 1)
    at = next((index for index, engine in enumerate(samples) if engine.engine == chosen), 0)
    top = min(max(0, at - room // 2), len(samples) - room)
    return samples[top : top + room], top


def _titles(columns: Sequence[tuple[Column, int]], wide_name: int, wide_model: int) -> Line:
    texts = [pad("engine", wide_name), pad("model", wide_model)]
    texts += [
        right(column.title, wide) if column.at_right else pad(column.title, wide) for column, wide in columns
    ]
    return [("  " + (" " * GAP).join(texts), "label")]


def _line(engine: EngineSample, columns: Sequence[tuple[Column, int]], name: str, model: str) -> Line:
    line: Line = [(name, "strong"), (" " * GAP, "text"), (model, "text")]
    for column, wide in columns:
        text, role = column.cell(engine)
        line.append((" " * GAP, "text"))
        line.append(
            (
                right(text, wide) if column.at_right else pad(text, wide),
                "dim" if text == units.MISSING else role,
            )
        )
    return line


def _wide(column: Column, samples: Sequence[EngineSample]) -> int:
    return max(cells(column.title), *(cells(column.cell(engine)[0]) for engine in samples))


def _name(engine: EngineSample, depth: int) -> str:
    branch = "  " * (depth - 1) + "└ " if depth else ""
    return cut(f"{branch}{foreign(engine.name, 20)} {short(engine.url)}", MOST_NAME)


def _model(store: Store, engine: EngineSample) -> str:
    """Of a front also how many more it has."""
    parts = parts_of(store, engine) if engine.front else []
    if engine.model:
        more = f" +{len(parts) - 1}" if len(parts) > 1 else ""
        return f"{foreign(engine.model, 60)}{more}"
    return f"{len(parts)} {role_of(parts)}" if parts else units.MISSING


def _state(engine: EngineSample) -> tuple[str, str]:
    words = {"unauthorised": "no access", "unsupported": "not an engine"}
    state = words.get(engine.state, foreign(engine.state, 12))
    return (state, STATE_ROLES.get(engine.state, "bad"))


def _decode(engine: EngineSample) -> tuple[str, str]:
    floor = "≥" if engine.decode_is_floor and engine.decode_tok_s is not None else ""
    return (floor + units.rate(engine.decode_tok_s), "strong")


def _run(engine: EngineSample) -> tuple[str, str]:
    if engine.running is None and engine.waiting is None:
        return (units.MISSING, "dim")
    waits = f"+{units.count(engine.waiting)}" if engine.waiting else ""
    return (f"{units.count(engine.running)}{waits}", "warn" if engine.waiting else "text")


def _kv(engine: EngineSample) -> tuple[str, str]:
    share = engine.kv_used_fraction
    return (units.percent(share), "warn" if share is not None and share > 0.9 else "text")


def _notes(store: Store, engine: EngineSample, long: bool) -> Line:
    """Fronts, and what is not real."""
    words: Line = []
    if engine.simulated is not None:
        words.append((" SIMULATED " if long else " SIM ", "badge"))
    if engine.front:
        words.append((" front", "label"))
    if engine.behind is not None and engine.behind not in store.engines:
        words.append((f" behind {short(engine.behind)}", "label"))
    if words:
        words[0] = (words[0][0].lstrip() if words[0][1] == "label" else words[0][0], words[0][1])
    return words


COLUMNS: tuple[Column, ...] = (
    Column("state", _state, at_right=False),
    Column("decode", _decode),
    Column("run", _run),
    Column("KV", _kv),
)
