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
from agenttop.view.panels import chart, engine, events, gpu, table, turns
from agenttop.view.panels.footer import footer
from agenttop.view.panels.header import header
from agenttop.view.panels.host import host
from agenttop.view.panels.transport import transport
from agenttop.view.rows import rows
from agenttop.view.spans import Line, beside, box, fit, rule, wrap
from agenttop.view.store import Store

LEAST = (60, 16)
MEDIUM = (100, 30)
WIDE = (160, 45)


@dataclass(slots=True)
class Picture:
    """A whole screen: exactly `height` lines of exactly `width` cells."""

    lines: list[Line]
    rows_at: dict[int, str] = field(default_factory=dict)
    """Line of the screen to key of the table row drawn there."""


def compose(store: Store, width: int, height: int, look: Look) -> Picture:
    """The live screen for this size; a sentence where the size is too small for it."""
    if width < LEAST[0] or height < LEAST[1]:
        return _too_small(width, height)
    below = [
        *_guarded("transport", lambda: transport(width, look), width),
        footer(width, look),
    ]
    above = _guarded("header", lambda: header(store, width, look), width)
    room = height - len(above) - len(below)
    if width >= WIDE[0] and height >= WIDE[1]:
        picture = _wide(store, width, room, look, len(above))
    elif width >= MEDIUM[0] and height >= MEDIUM[1]:
        picture = _medium(store, width, room, look, len(above))
    else:
        picture = _small(store, width, room, look, len(above))
    lines = [fit(line, width) for line in (*above, *picture.lines)]
    lines += [fit([], width)] * (height - len(lines) - len(below))
    return Picture([*lines, *(fit(line, width) for line in below)][:height], picture.rows_at)


def _too_small(width: int, height: int) -> Picture:
    text = f"agenttop needs {LEAST[0]} x {LEAST[1]} cells or more; here are {width} x {height}"
    lines = [fit(line, width) for line in wrap(text, max(1, width), "warn")[:height]]
    return Picture(lines + [fit([], width)] * (height - len(lines)))


def _guarded(name: str, draw: Callable[[], list[Line]], width: int) -> list[Line]:
    """A panel, or one sentence in its place: an odd frame must not take the screen down."""
    try:
        return draw()
    except Exception as error:
        reason = clean(f"the {name} panel cannot be drawn: {type(error).__name__}: {error}", 160)
        return wrap(reason, max(1, width), "bad")


def _small(store: Store, width: int, height: int, look: Look, start: int) -> Picture:
    gpus = min(len(store.gpus), 2) or 1
    hosts = 1 if height < 26 else 3
    lines = [
        *_guarded("GPU", lambda: gpu.gpu(store, width, gpus), width),
        *_guarded("host", lambda: host(store, width, hosts), width),
        *_guarded("engine", lambda: engine.engine(store, width, 3, look), width),
    ]
    room = height - len(lines) - 2
    tall = _table_height(store, look, room, keep=3 if room >= 9 else 2)
    lines.append(rule(table.title(store, look), width, table.note(look)))
    picture = Picture(lines)
    _add_table(picture, store, width, tall, look, start + len(lines))
    left = height - len(picture.lines) - 1
    picture.lines.append(rule(EVENTS, width))
    picture.lines += _guarded("events", lambda: events.events(store, width, left), width)[:left]
    return picture


def _medium(store: Store, width: int, height: int, look: Look, start: int) -> Picture:
    left = max(50, width * 43 // 100)
    at_right = width - left
    upper, lower = (7, 7) if height < 34 else (8, 11)
    engines = _engine(store, at_right, upper, look)
    if store.gpus:
        gpus = _boxed("GPU", gpu.title(store), left, upper, lambda w, h: gpu.gpu(store, w, h))
        hosts = _boxed("host", HOST, left, lower - 1, lambda w, h: host(store, w, h))
        charts = _chart(store, at_right, lower - 1, look)
        lines = [*beside(gpus, left, engines, at_right), *beside(hosts, left, charts, at_right)]
    else:
        hosts = _boxed("host", HOST, left, upper, lambda w, h: _host_and_no_gpu(store, w, h))
        lines = [*beside(hosts, left, engines, at_right), *_chart(store, width, lower, look)]
    picture = Picture(lines)
    room = height - len(lines)
    _add_boxed_table(
        picture, store, width, _table_height(store, look, room - 4, keep=3), look, start + len(lines)
    )
    remaining = height - len(picture.lines)
    half = width * 53 // 100 if store.turns else 0
    happened = _boxed("events", EVENTS, width - half, remaining, lambda w, h: events.events(store, w, h))
    if half:
        picture.lines += beside(_turns(store, half, remaining), half, happened, width - half)
    else:
        picture.lines += happened
    return picture


def _wide(store: Store, width: int, height: int, look: Look, start: int) -> Picture:
    first = width * 38 // 100 if store.gpus else width * 52 // 100
    second = (width - first) // 2 if store.gpus else width - first
    lines = _engine(store, first, 8, look)
    if store.gpus:
        third = width - first - second
        gpus = _boxed("GPU", gpu.title(store), second, 8, lambda w, h: gpu.gpu(store, w, h))
        hosts = _boxed("host", HOST, third, 8, lambda w, h: host(store, w, h))
        lines = beside(beside(lines, first, gpus, second), first + second, hosts, third)
    else:
        hosts = _boxed("host", HOST, second, 8, lambda w, h: _host_and_no_gpu(store, w, h))
        lines = beside(lines, first, hosts, second)
    room = height - len(lines)
    tall = _table_height(store, look, room - 2, keep=24)
    middle = min(room - tall - 2, 22)
    left = width * 64 // 100
    happened = _boxed("events", EVENTS, width - left, middle, lambda w, h: events.events(store, w, h))
    lines += beside(_chart(store, left, middle, look), left, happened, width - left)
    picture = Picture(lines)
    remaining = height - len(lines) - tall - 2
    if remaining < 5:
        tall, remaining = tall + remaining, 0
    _add_boxed_table(picture, store, width, tall, look, start + len(lines))
    picture.lines += _turns(store, width, remaining)
    return picture


HOST: Line = [("Host", "accent")]
EVENTS: Line = [("Events", "accent")]
TURNS: Line = [("Turns ended", "accent")]


def _engine(store: Store, width: int, height: int, look: Look) -> list[Line]:
    def draw(inner: int, rows: int) -> list[Line]:
        return engine.engine(store, inner, rows, look)

    return _boxed("engine", engine.title(store, look), width, height, draw, engine.note())


def _chart(store: Store, width: int, height: int, look: Look) -> list[Line]:
    return _boxed("chart", chart.TITLE, width, height, lambda w, h: chart.chart(store, w, h, look))


def _turns(store: Store, width: int, height: int) -> list[Line]:
    return _boxed("turns", TURNS, width, height, lambda w, h: turns.turns(store, w, h))


def _host_and_no_gpu(store: Store, width: int, height: int) -> list[Line]:
    """The host, and in its last line why no GPU is shown."""
    return [*host(store, width, height - 1), gpu.no_gpu(store, width)]


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
    return box(title, _guarded(name, lambda: draw(width - 4, height - 2), width - 4), width, height, note)


def _table_height(store: Store, look: Look, room: int, keep: int) -> int:
    """Lines for the table: as many as it has rows, leaving `keep` lines of `room` to others."""
    try:
        wanted = 1 + max(4, len(rows(store, look)))
    except Exception:
        wanted = 5
    return max(2, min(wanted, room - keep))


def _add_table(picture: Picture, store: Store, width: int, height: int, look: Look, start: int) -> None:
    lines = _guarded("table", lambda: table.table(store, width, height, look), width)[:height]
    picture.rows_at.update(_rows_at(store, height, look, start))
    picture.lines += lines + [[]] * (height - len(lines))


def _add_boxed_table(picture: Picture, store: Store, width: int, height: int, look: Look, start: int) -> None:
    body = _guarded("table", lambda: table.table(store, width - 4, height, look), width - 4)
    title = _guarded("table", lambda: [table.title(store, look)], width - 4)[0]
    picture.lines += box(title, body, width, height + 2, table.note(look))
    picture.rows_at.update(_rows_at(store, height, look, start + 1))


def _rows_at(store: Store, height: int, look: Look, start: int) -> dict[int, str]:
    try:
        shown, _ = table.visible(rows(store, look), height, look)
    except Exception:
        return {}
    return {start + 1 + index: row.key for index, row in enumerate(shown)}
