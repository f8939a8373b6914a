"""Which panels a screen of a given size shows, and where.

small   from 60x16: no boxes, everything essential, no chart (80x24 is the size it is made for)
medium  from 100x30: boxes in two columns, a chart (120x40)
wide    from 160x45: three columns, chart and events side by side, more columns in the table (200x60)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agenttop.model.text import clean
from agenttop.view.look import Look
from agenttop.view.panels import chart, engine, events, gpu, load, table, turns
from agenttop.view.panels.footer import footer
from agenttop.view.panels.header import header
from agenttop.view.panels.host import host
from agenttop.view.panels.host import lines_wanted as host_lines_wanted
from agenttop.view.panels.transport import transport
from agenttop.view.rows import Row, engine_in_focus, rows
from agenttop.view.simulated import gpus, notice
from agenttop.view.spans import Line, beside, box, fit, fit_at_most, rule, wrap
from agenttop.view.store import Store

LEAST = (60, 16)
HOST_LINES = 5
"""The host panel has so many lines at least, whatever the GPUs need."""

MOST_HOST_LINES = 8

MEDIUM = (100, 30)
WIDE = (160, 45)


@dataclass(slots=True)
class Picture:
    """A whole screen: exactly `height` lines of exactly `width` cells."""

    lines: list[Line]
    rows_at: dict[int, str] = field(default_factory=dict)
    """Line of the screen to key of the table row drawn there."""


@dataclass(slots=True)
class _Draft:
    """A picture in the making: what is drawn from, and the lines so far."""

    store: Store
    look: Look
    listed: list[Row]
    """Rows of the table."""
    width: int
    room: int
    """Lines between header and footer."""
    start: int
    """Line of the screen at which these lines begin."""
    lines: list[Line] = field(default_factory=list)
    rows_at: dict[int, str] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Lines that are still free."""
        return self.room - len(self.lines)


def compose(store: Store, width: int, height: int, look: Look) -> Picture:
    """The live screen for this size; a sentence where the size is too small for it."""
    if width < LEAST[0] or height < LEAST[1]:
        return _too_small(width, height)
    boxes = width >= MEDIUM[0] and height >= MEDIUM[1]
    above = guarded("header", lambda: _header(store, width, look, 1 if boxes else 0), width)
    below = guarded("transport", lambda: [*transport(width, look), footer(width, look)], width)
    room = height - len(above) - len(below)
    draft = _Draft(store, look, _listed(store, look), width, room, len(above))
    if width >= WIDE[0] and height >= WIDE[1]:
        _wide(draft)
    elif boxes:
        _medium(draft)
    else:
        _small(draft)
    blank = fit([], width)
    middle = draft.lines[:room] + [blank] * draft.left
    return Picture([*above, *middle, *below][:height], draft.rows_at)


def _header(store: Store, width: int, look: Look, margin: int) -> list[Line]:
    edge = (" " * margin, "text")
    return [[edge, *line, edge] for line in header(store, width - 2 * margin, look)]


def _listed(store: Store, look: Look) -> list[Row]:
    """The rows; none when they cannot be told, which the table then says."""
    try:
        return rows(store, look)
    except Exception:  # noqa: BLE001 - as in guarded: an odd frame must not take the screen down
        return []


def _too_small(width: int, height: int) -> Picture:
    text = f"agenttop needs {LEAST[0]} x {LEAST[1]} cells or more; here are {width} x {height}"
    lines = [fit(line, width) for line in wrap(text, max(1, width), "warn")[:height]]
    return Picture(lines + [fit([], width)] * (height - len(lines)))


def guarded(name: str, draw: Callable[[], list[Line]], width: int, *, full: bool = True) -> list[Line]:
    """A panel, or one sentence in its place: an odd frame must not take the screen down.

    `full`: every line is made exactly `width` cells; else at most.
    """
    shaped = fit if full else fit_at_most
    try:
        return [shaped(line, width) for line in draw()]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said in the panel's place
        reason = clean(f"the {name} panel cannot be drawn: {type(error).__name__}: {error}", 160)
        return [shaped(line, width) for line in wrap(reason, max(1, width), "bad")]


def _small(draft: _Draft) -> None:
    store, look, width = draft.store, draft.look, draft.width
    shown = len(gpus(store, look))
    # One card has a second line where the table is not short of them.
    cards = min(shown, 2) if shown != 1 or draft.room < 18 else 2
    cards = cards or 1
    hosts = 1 if draft.room < 26 else 3
    draft.lines += guarded("GPU", lambda: gpu.gpu(store, width, cards, look), width)
    draft.lines += guarded("host", lambda: host(store, width, hosts, look), width)
    draft.lines += guarded("engine", lambda: engine.engine(store, width, 3, look), width)
    draft.lines += guarded(
        "table",
        lambda: [
            rule(table.title(draft.listed, draft.store, draft.look), width, table.note(draft.listed, look))
        ],
        width,
    )
    if draft.left >= 8:
        draft.lines += _load(draft, width, 2, calm=False)
    room = draft.left - 1
    tall = _table_height(draft, room, keep=3 if room >= 9 else 2)
    lines = _table(draft, width, tall, draft.start + len(draft.lines))
    draft.lines += lines + [fit([], width)] * (tall - len(lines))
    draft.lines.append(rule(EVENTS, width))
    draft.lines += guarded("events", lambda: events.events(store, width, draft.left), width)


def _medium(draft: _Draft) -> None:
    store, width = draft.store, draft.width
    left = max(50, width * 43 // 100)
    at_right = width - left
    look = draft.look
    upper, lower = (7, 7) if draft.room < 31 else (8, 11)
    if draft.room >= 31 and engine.lines_wanted(store, look) > upper - 2:
        upper, lower = upper + 1, lower - 1
    if draft.room >= 31 and not gpus(store, look):
        more = min(2, max(0, host_lines_wanted(store, look) + 1 - (upper - 2)))
        upper, lower = upper + more, lower - more
    engines = _engine(draft, at_right, upper)
    if gpus(store, look):
        # The two columns need not have their boxes at the same height: many cards take lines of the host.
        tall = max(upper, min(upper + lower - 1 - HOST_LINES - 2, gpu.lines_wanted(store, look) + 2))
        low = upper + lower - 1 - tall
        cards = _gpus(draft, left, tall)
        hosts = _boxed("host", _host_title(draft), left, low, lambda w, h: host(store, w, h, look))
        at_left = [*cards, *hosts]
        draft.lines += beside(at_left, left, [*engines, *_chart(draft, at_right, lower - 1)], at_right)
    else:
        hosts = _host_and_no_gpu(draft, left, upper)
        draft.lines += [*beside(hosts, left, engines, at_right), *_chart(draft, width, lower)]
    _boxed_table(draft, _table_height(draft, draft.left - 4, keep=3, above=_load_height(draft)))
    tall = draft.left
    half = width * 53 // 100 if store.turns else 0
    happened = _boxed("events", EVENTS, width - half, tall, lambda w, h: events.events(store, w, h))
    draft.lines += beside(_turns(draft, half, tall), half, happened, width - half) if half else happened


def _wide(draft: _Draft) -> None:
    store, width, look = draft.store, draft.width, draft.look
    has_gpus = bool(gpus(store, look))
    first = width * 38 // 100 if has_gpus else width * 52 // 100
    second = (width - first) // 2 if has_gpus else width - first
    told = min(MOST_HOST_LINES, host_lines_wanted(store, look))
    upper = max(gpu.lines_wanted(store, look), engine.lines_wanted(store, look), told) + 2
    lines = _engine(draft, first, upper)
    if has_gpus:
        third = width - first - second
        cards = _gpus(draft, second, upper)
        hosts = _boxed("host", _host_title(draft), third, upper, lambda w, h: host(store, w, h, look))
        lines = beside(beside(lines, first, cards, second), first + second, hosts, third)
    else:
        hosts = _host_and_no_gpu(draft, second, upper)
        lines = beside(lines, first, hosts, second)
    draft.lines += lines
    tall = _table_height(draft, draft.left - 2, keep=24, above=_load_height(draft))
    middle = min(draft.left - tall - 2, 22)
    left = width * 64 // 100
    happened = _boxed("events", EVENTS, width - left, middle, lambda w, h: events.events(store, w, h))
    draft.lines += beside(_chart(draft, left, middle), left, happened, width - left)
    if draft.left - tall - 2 < 5:
        tall = draft.left - 2
    _boxed_table(draft, tall)
    draft.lines += _turns(draft, width, draft.left)


HOST: Line = [("Host", "accent")]
EVENTS: Line = [("Events", "accent")]
TURNS: Line = [("Turns ended", "accent")]


def _host_title(draft: _Draft) -> Line:
    """Beside simulated figures it is said that this one is the machine at hand."""
    if notice(draft.store, engine_in_focus(draft.store, draft.look)) is None:
        return HOST
    return [*HOST, (" the real one, which simulates", "label")]


def _load(draft: _Draft, width: int, most: int, *, calm: bool = True) -> list[Line]:
    """The lines about the load as a whole; none while there is nothing to tell."""
    return guarded("load", lambda: load.load(draft.store, width, most, calm=calm), width)


def _engine(draft: _Draft, width: int, height: int) -> list[Line]:
    store, look = draft.store, draft.look
    title = engine.title(store, look)
    return _boxed(
        "engine",
        title,
        width,
        height,
        lambda w, h: engine.engine(store, w, h, look),
        engine.note(store, look),
    )


def _gpus(draft: _Draft, width: int, height: int) -> list[Line]:
    store, look = draft.store, draft.look
    title, note = gpu.title(store, look), gpu.note(store, look)
    return _boxed("GPU", title, width, height, lambda w, h: gpu.gpu(store, w, h, look), note)


def _chart(draft: _Draft, width: int, height: int) -> list[Line]:
    store, look = draft.store, draft.look
    return _boxed("chart", chart.TITLE, width, height, lambda w, h: chart.chart(store, w, h, look))


def _turns(draft: _Draft, width: int, height: int) -> list[Line]:
    return _boxed("turns", TURNS, width, height, lambda w, h: turns.turns(draft.store, w, h))


def _host_and_no_gpu(draft: _Draft, width: int, height: int) -> list[Line]:
    """The host, and in its last line why no GPU is shown."""
    store, look = draft.store, draft.look
    return _boxed(
        "host",
        _host_title(draft),
        width,
        height,
        lambda w, h: [*host(store, w, h - 1, look), gpu.no_gpu(store, w)],
    )


def _boxed(
    name: str,
    title: Line,
    width: int,
    height: int,
    draw: Callable[[int, int], list[Line]],
    note: Line | None = None,
) -> list[Line]:
    if height < 3:
        return []
    return box(title, guarded(name, lambda: draw(width - 4, height - 2), width - 4), width, height, note)


def _table_height(draft: _Draft, room: int, keep: int, above: int = 0) -> int:
    """Lines for the table, `above` more lines included: as many as it has rows and parts, leaving `keep`
    lines of `room` to others."""
    wanted = table.lines_wanted(draft.store, draft.listed, draft.width - 4, draft.look)
    return max(2, min(above + wanted, room - keep))


def _load_height(draft: _Draft) -> int:
    return len(_load(draft, draft.width - 4, LOAD_LINES))


LOAD_LINES = 3


def _table(draft: _Draft, width: int, height: int, start: int) -> list[Line]:
    """The table, which begins at line `start` of the screen."""
    lines = guarded("table", lambda: table.table(draft.store, draft.listed, width, height, draft.look), width)
    shown, _ = table.visible(draft.listed, height, draft.look)
    draft.rows_at.update({start + 1 + index: row.key for index, row in enumerate(shown)})
    return lines


def _boxed_table(draft: _Draft, height: int) -> None:
    """The load as a whole, then the table, in one box of `height` lines inside."""
    width = draft.width - 4
    above = _load(draft, width, min(LOAD_LINES, max(0, height - 4)))
    start = draft.start + len(draft.lines) + 1 + len(above)
    body = [*above, *_table(draft, width, height - len(above), start)]
    draft.lines += box(
        table.title(draft.listed, draft.store, draft.look),
        body,
        draft.width,
        height + 2,
        table.note(draft.listed, draft.look),
    )
