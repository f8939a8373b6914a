"""The processes of engines, and whoever else holds memory of a GPU."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.model import units
from agenttop.model.frames import ProcessSample
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line, foreign, pad, right
from agenttop.view.store import Store

MOST = 40
"""Rows; the rest is counted."""

Column = tuple[str, Callable[[ProcessSample], str]]


def processes(store: Store, room: int, look: Look | None = None) -> list[Line]:
    """A line of titles and one each: the engine in focus first, strangers last, the largest of each first."""
    focus = engine_in_focus(store, look)
    focused = focus.engine if focus is not None else None
    listed = sorted(store.processes.values(), key=lambda process: _place(process, focused))
    if not listed:
        return []
    columns = [column for column in COLUMNS if any(column[1](process) for process in listed)]
    widths = [max(len(title), *(len(cell(process)) for process in listed)) for title, cell in columns]
    while len(columns) > 1 and NAMES + sum(wide + 2 for wide in widths) > room:
        columns.pop()
        widths.pop()
    head = pad("    pid  program", NAMES)
    titles = "".join(f"  {right(title, wide)}" for (title, _), wide in zip(columns, widths, strict=True))
    lines: list[Line] = [[(head + titles, "label")]]
    for process in listed[:MOST]:
        line: Line = [
            (f"{process.pid:>7}  ", "dim"),
            (pad(foreign(process.name, 30), NAMES - 9), "strong" if process.engine == focused else "text"),
        ]
        for (_, cell), wide in zip(columns, widths, strict=True):
            text = cell(process)
            line.append((f"  {right(text or units.MISSING, wide)}", "text" if text else "dim"))
        lines.append(line)
    if len(listed) > MOST:
        lines.append([(f"        … {len(listed) - MOST} more", "label")])
    return lines


NAMES = 28
"""Cells of number and program."""


def _place(process: ProcessSample, focused: str | None) -> tuple[int, int, int]:
    whose = 0 if process.engine is not None and process.engine == focused else 1 if process.engine else 2
    held = sum(process.gpu_memory.values())
    return (whose, -held, -(process.rss_bytes or 0))


def _size(value: int | None) -> str:
    return "" if value is None else units.size(value)


def _whose(process: ProcessSample) -> str:
    if process.engine is None:
        return "a stranger"
    return foreign(process.engine.removeprefix("http://").removeprefix("https://"), 24)


def _gpu_memory(process: ProcessSample) -> str:
    if process.gpu_memory:
        return units.size(sum(process.gpu_memory.values()))
    return "in use" if process.gpus else ""


def _cores(process: ProcessSample) -> str:
    return "" if process.cpu_fraction is None else f"{process.cpu_fraction:.2f}"


def _faults(process: ProcessSample) -> str:
    return "" if process.major_faults_s is None else units.count(process.major_faults_s)


def _read(process: ProcessSample) -> str:
    return "" if process.read_bytes_s is None else units.byte_rate(process.read_bytes_s)


COLUMNS: tuple[Column, ...] = (
    ("GPU memory", _gpu_memory),
    ("cores", _cores),
    ("RAM", lambda process: _size(process.pss_bytes if process.pss_bytes is not None else process.rss_bytes)),
    ("engine", _whose),
    ("mapped files", lambda process: _size(process.file_bytes)),
    ("own", lambda process: _size(process.anonymous_bytes)),
    ("threads", lambda process: "" if process.threads is None else str(process.threads)),
    ("swapped", lambda process: _size(process.swapped_bytes)),
    ("faults/s", _faults),
    ("read", _read),
)
"""In the order in which they are left out last."""
