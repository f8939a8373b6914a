"""Slots joined with agents: one row for each, with its state, context, rate, trend and progress.

Where rows are free, the parts of the engine (`panels.parts`) stand below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.engines import has_slots, parts_of, who
from agenttop.view.glyphs import bar, heat, spark, state
from agenttop.view.look import Look
from agenttop.view.panels.parts import parts, role_of
from agenttop.view.panels.progress import progress
from agenttop.view.rows import SILENT_STATES, Row, engine_in_focus
from agenttop.view.spans import Line, cells, fit, foreign, pad, right, wrap
from agenttop.view.store import Store

LATE_S = 5.0
"""A row whose figures are older than this is drawn dim, with `?` for its glyph."""

GAP = 2
CONTEXT_TEXT = 9
LEAST_NAME, MOST_NAME = 5, 10
"""Cells of the column with the names of agents."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: how much room it needs, how much it can use, and what it shows."""

    title: str
    least: int
    most: int
    cell: Callable[[Store, Row, int], Line]
    """Store, row and width to spans of exactly that width."""
    at_right: bool = False


def table(store: Store, listed: list[Row], width: int, height: int, look: Look) -> list[Line]:
    """A line of titles and the rows of `listed` (`rows.rows`) that there is room for; below them, where rows
    are free, the parts of the engine.

    What is out of sight is summed up in the last line.
    """
    if height < 2:
        return []
    engine = engine_in_focus(store, look)
    if not listed:
        lines = _nothing(store, engine, width)[:height]
    else:
        columns = choose(
            width - 1, without=_left_out(listed, store, engine), agent_cells=_agent_cells(listed)
        )
        lines = [_titles(columns)]
        shown, top = visible(listed, height, look)
        lines += [_row(store, row, columns, row.key == look.row) for row in shown]
        hidden = [*listed[:top], *listed[top + len(shown) :]]
        if hidden:
            lines.append(_hidden(hidden, width))
    if engine is not None:
        below = len(parts_of(store, engine))
        if listed and below and height - len(lines) > 1 + below:
            lines.append([])
        lines += parts(store, engine, width, height - len(lines))
    return lines


def lines_wanted(store: Store, listed: list[Row], width: int, look: Look) -> int:
    """Lines in which all rows and all parts stand."""
    engine = engine_in_focus(store, look)
    below = len(parts_of(store, engine)) if engine is not None else 0
    above = 1 + len(listed) if listed else len(_nothing(store, engine, width))
    return max(1 + 4, above + (1 + below + bool(listed) if below else 0))


OF_AGENTS = ("ttft", "turn", "compactions", "cached", "failures", "output")
"""Columns of which a slot by itself knows nothing."""

NOTHING = "no slots and no agents to show"


def _nothing(store: Store, engine: EngineSample | None, width: int) -> list[Line]:
    """In place of rows: why there are none, and how there come to be some."""
    if engine is None or engine.state in SILENT_STATES or has_slots(store, engine):
        return [[(f" {NOTHING}: a sets agents up, + adds one", "dim")]]
    text = f"{who(engine)} does not tell requests apart; agents started here get a row each: a, +"
    return [[(" ", "text"), *line] for line in wrap(text, width - 1, "dim")]


def _left_out(listed: list[Row], store: Store, engine: EngineSample | None) -> list[str]:
    """Columns that would be empty: an engine without slots has no numbers of slots, most have one model, and
    slots alone have nothing that only agents have."""
    slots = [row.slot for row in listed if row.slot is not None]
    left_out = [] if any(slot.part for slot in slots) else ["part"]
    if all(row.agent is None for row in listed):
        left_out += OF_AGENTS
    if not slots and engine is not None and not has_slots(store, engine):
        left_out.append("slot")
    return left_out


def _agent_cells(listed: list[Row]) -> int:
    """Cells that the names of these agents need, within reason."""
    return max([LEAST_NAME, *(min(MOST_NAME, cells(_name(row))) for row in listed)])


def visible(all_rows: list[Row], height: int, look: Look) -> tuple[list[Row], int]:
    """The rows in sight in a table of `height` lines, and how many stand above them.

    The selected row is kept in the middle where the table is longer than the room for it.
    """
    room = height - 1
    if len(all_rows) <= room:
        return all_rows, 0
    room = max(1, room - 1)
    selected = next((index for index, row in enumerate(all_rows) if row.key == look.row), 0)
    top = min(max(0, selected - room // 2), len(all_rows) - room)
    return all_rows[top : top + room], top


def title(listed: list[Row], store: Store, look: Look) -> Line:
    """What the rows are, and how many are in which state; every request counted once."""
    counts = _counted(listed)
    line: Line = [(_what(listed, store, engine_in_focus(store, look)), "accent")]
    order = (
        "stalled",
        "decode",
        "prefill",
        "prime",
        "compact",
        "queued",
        "children",
        "tool",
        "human",
        "waiting",
        "backoff",
        "paused",
        "stopping",
    )
    for name in (*order, "idle", "stopped"):
        if counts[name] > 0:
            line += [("  ", "text"), (str(counts[name]), "text"), (f" {name}", "label")]
    return line


def _what(listed: list[Row], store: Store, engine: EngineSample | None) -> str:
    """`Slots and agents`, `Agents and ranks`."""
    if engine is None or has_slots(store, engine):
        return "Slots and agents"
    some = parts_of(store, engine)
    if not some:
        return "Agents"
    return f"Agents and {role_of(some)}" if listed else role_of(some).capitalize()


SERVED = ("prefill", "prime", "decode", "compact")
"""States in which an agent has a request in a slot."""


def _counted(listed: list[Row]) -> Counter[str]:
    """Rows by state, less the busy slots of agents whose slot is not known yet.

    For a moment after a request begins, the agent and its slot are two rows. As many busy slots without an
    agent as there are served agents without a slot are therefore theirs; only others are counted.
    """
    counts = Counter(row.state for row in listed)
    unplaced = sum(row.agent is not None and row.slot is None and row.agent.state in SERVED for row in listed)
    busy = [row.state for row in listed if row.agent is None and row.state != "idle"]
    # Those in a phase that an agent without a slot is in as well go first.
    phases = Counter(row.state for row in listed if row.agent is not None and row.slot is None)
    busy.sort(key=lambda phase: phases[phase] == 0)
    counts.subtract(busy[:unplaced])
    return counts


def note(listed: list[Row], look: Look) -> Line | None:
    """The order of the rows, where there are any."""
    return [(f"by {look.sort}", "dim")] if listed else None


def choose(width: int, *, without: Sequence[str] = (), agent_cells: int = LEAST_NAME) -> list[Column]:
    """Columns for `width` cells: the most important ones that fit, widened with what is left."""
    least = {name: column.least for name, column in COLUMNS.items()} | {"agent": agent_cells}
    chosen: list[str] = []
    used = -GAP
    for name in IMPORTANCE:
        if name in without:
            continue
        needed = least[name] + GAP
        if used + needed > width:
            break
        chosen.append(name)
        used += needed
    widths = {name: least[name] for name in chosen}
    spare = width - used
    for name in GROWTH:
        if name in widths:
            more = min(spare, COLUMNS[name].most - widths[name])
            widths[name] += more
            spare -= more
    return [
        Column(_title(column, widths[name]), widths[name], column.most, column.cell, column.at_right)
        for name, column in COLUMNS.items()
        if name in widths
    ]


def _title(column: Column, width: int) -> str:
    """The longer of two titles where there is room for it."""
    short, _, long = column.title.partition("|")
    return long if long and len(long) <= width else short


def _titles(columns: list[Column]) -> Line:
    parts = [
        right(column.title, column.least) if column.at_right else pad(column.title, column.least)
        for column in columns
    ]
    return [(" " + (" " * GAP).join(parts), "label")]


def _row(store: Store, row: Row, columns: list[Column], selected: bool) -> Line:
    line: Line = [("›" if selected else " ", "accent")]
    for index, column in enumerate(columns):
        if index:
            line.append((" " * GAP, "text"))
        line += column.cell(store, row, column.least)
    if _late(store, row):
        line = [(text, "dim") for text, _ in line]
    return [(text, role + "@") for text, role in line] if selected else line


def _late(store: Store, row: Row) -> bool:
    newest = max(frame.t for frame in (row.slot, row.agent) if frame is not None)
    return store.now - newest > LATE_S * store.pace


def _hidden(hidden: list[Row], width: int) -> Line:
    counts = Counter(row.state for row in hidden)
    states = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    tokens = sum(row.context_tokens or 0 for row in hidden)
    return fit([(f" … {len(hidden)} more: {states}; they hold {units.count(tokens)} tokens", "label")], width)


def _slot(store: Store, row: Row, width: int) -> Line:
    return [(right("–" if row.slot is None else str(row.slot.slot), width), "label" if row.slot else "dim")]


def _agent(store: Store, row: Row, width: int) -> Line:
    if row.agent is not None:
        return [(pad(_name(row), width), "text" if row.depth else "strong")]
    return [(pad("–", width), "dim")]


def _name(row: Row) -> str:
    """`a1`, and below it `└.1` for its sub-agent `a1.1`."""
    if row.agent is None:
        return ""
    name = foreign(row.agent.agent, 12)
    if not row.depth:
        return name
    return "└" + (name.removeprefix(foreign(row.agent.parent or "", 12)) or name)


def _part(store: Store, row: Row, width: int) -> Line:
    part = row.slot.part if row.slot is not None else None
    return [(pad(foreign(part, 40) if part else "–", width), "text" if part else "dim")]


def _state(store: Store, row: Row, width: int) -> Line:
    text, role = state(foreign(row.state, 12))
    if _late(store, row):
        text = "?" + text[1:]
    return [(pad(text, width), role)]


def _context(store: Store, row: Row, width: int) -> Line:
    tokens = row.context_tokens
    limit = None
    if row.agent is not None:
        limit = row.agent.context_limit_tokens
    if limit is None and row.slot is not None:
        limit = row.slot.context_limit_tokens
    share = tokens / limit if tokens is not None and limit else None
    text = units.count(tokens) if limit is None else f"{units.count(tokens)}/{units.count(limit)}"
    calm = "idle" if row.state == "idle" else "decode"
    gauge = bar(share, width - CONTEXT_TEXT - 1, heat(share, 0.9, 1.01, calm))
    return [*gauge, (" ", "text"), (right(text, CONTEXT_TEXT), "text" if tokens else "dim")]


def _rate(store: Store, row: Row, width: int) -> Line:
    value = row.decode_tok_s
    return [(right(units.rate(value), width), "dim" if value is None else "strong")]


def _trend(store: Store, row: Row, width: int) -> Line:
    return [(spark(store.columns(row.subject, "decode_tok_s", width, 1 if width >= 20 else 2)), "decode")]


def _ttft(store: Store, row: Row, width: int) -> Line:
    value = row.agent.ttft_s if row.agent else None
    return [(right(units.seconds(value), width), "dim" if value is None else "text")]


def _turn(store: Store, row: Row, width: int) -> Line:
    return _count(row.agent.turn if row.agent else None, width)


def _compactions(store: Store, row: Row, width: int) -> Line:
    return _count(row.agent.compactions if row.agent else None, width)


def _failures(store: Store, row: Row, width: int) -> Line:
    value = row.agent.failures if row.agent else None
    return [(right(units.count(value), width), "bad" if value else "dim")]


def _output(store: Store, row: Row, width: int) -> Line:
    return _count(row.agent.output_tokens_total if row.agent else None, width)


def _count(value: int | None, width: int) -> Line:
    return [(right(units.count(value), width), "dim" if value is None else "text")]


def _cached(store: Store, row: Row, width: int) -> Line:
    cached = prompt = None
    if row.agent is not None:
        cached, prompt = row.agent.cached_tokens, row.agent.prompt_tokens
    share = cached / prompt if cached is not None and prompt else None
    return [(right(units.percent(share), width), "dim" if share is None else "text")]


def _progress(store: Store, row: Row, width: int) -> Line:
    return fit(progress(store, row, width), width)


COLUMNS: dict[str, Column] = {
    "slot": Column("#", 3, 3, _slot, at_right=True),
    "agent": Column("agent", LEAST_NAME, LEAST_NAME, _agent),
    "part": Column("model", 8, 24, _part),
    "state": Column("state", 10, 10, _state),
    "context": Column("context", CONTEXT_TEXT + 6, CONTEXT_TEXT + 25, _context),
    "rate": Column("tok/s", 5, 5, _rate, at_right=True),
    "trend": Column("trend", 8, 30, _trend),
    "ttft": Column("TTFT", 6, 6, _ttft, at_right=True),
    "turn": Column("turn", 4, 5, _turn, at_right=True),
    "compactions": Column("cmp|compact", 3, 7, _compactions, at_right=True),
    "cached": Column("cached", 6, 6, _cached, at_right=True),
    "failures": Column("fail", 4, 4, _failures, at_right=True),
    "output": Column("out", 5, 5, _output, at_right=True),
    "progress": Column("this turn", 12, 36, _progress),
}
"""Every column, in the order they are shown."""

IMPORTANCE = (
    "slot",
    "agent",
    "state",
    "part",
    "context",
    "rate",
    "progress",
    "ttft",
    "turn",
    "compactions",
    "trend",
    "cached",
    "failures",
    "output",
)

GROWTH = ("part", "progress", "trend", "context", "state", "progress", "turn", "compactions")
"""Who gets the cells that are left over, one after the other."""
