"""The parts of an engine as rows: ranks, replicas, or the models and deployments of a front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.frames import EngineSample, PartSample
from agenttop.view.engines import RESTING, parts_of, short
from agenttop.view.glyphs import bar, heat
from agenttop.view.spans import Line, cells, fit, foreign, pad, right
from agenttop.view.store import Store

GAP = 2
LEAST_NAME, MOST_NAME = 5, 36
SEVERAL = "parts"
WELL = frozenset({"ok", "loaded", "ready", "running", "healthy", "awake"})
GAUGE = 8


@dataclass(frozen=True, slots=True)
class Column:
    """What it is called, and the text and role of its cell."""

    title: str
    cell: Callable[[Store, PartSample], tuple[str, str]]
    at_right: bool = True


def role_of(parts: Sequence[PartSample]) -> str:
    """`ranks`, `models`; `parts` of several kinds."""
    roles = {part.role for part in parts}
    return f"{foreign(roles.pop(), 12)}s" if len(roles) == 1 else SEVERAL


def parts(store: Store, engine: EngineSample, width: int, height: int) -> list[Line]:
    """A line of titles and as many parts as there is room for; what is out of sight is summed up."""
    listed = parts_of(store, engine)
    if not listed or height < 1:
        return []
    shown = listed if len(listed) < height else listed[: max(0, height - 2)]
    if not shown:
        return [_hidden(listed, width, f" {role_of(listed)}: ")]
    columns = _columns(store, listed, width - 1)
    lines: list[Line] = [_titles(columns)]
    lines += [_row(store, part, columns) for part in shown]
    hidden = listed[len(shown) :]
    if hidden:
        lines.append(_hidden(hidden, width, f" … {len(hidden)} more "))
    return lines


def _columns(store: Store, listed: list[PartSample], width: int) -> list[tuple[Column, int]]:
    """The columns that hold something, with their widths: those that fit."""
    role = role_of(listed)
    name = Column(role.removesuffix("s"), lambda _, part: (foreign(part.part, 60), "strong"), at_right=False)
    chosen: list[tuple[Column, int]] = []
    most = max(LEAST_NAME, min(MOST_NAME, width // 3))
    used = -GAP
    for column in (name, *COLUMNS):
        texts = [column.cell(store, part)[0] for part in listed]
        if column is not name and all(text in ("", units.MISSING) for text in texts):
            continue
        wide = max(cells(column.title), *(cells(text) for text in texts))
        if column is name:
            wide = max(LEAST_NAME, min(most, wide))
        if used + GAP + wide > width:
            if column.at_right or width - used - GAP < 8:
                continue
            wide = width - used - GAP
        chosen.append((column, wide))
        used += GAP + wide
    return chosen


def _titles(columns: list[tuple[Column, int]]) -> Line:
    texts = [
        right(column.title, wide) if column.at_right else pad(column.title, wide) for column, wide in columns
    ]
    return [(" " + (" " * GAP).join(texts), "label")]


def _row(store: Store, part: PartSample, columns: list[tuple[Column, int]]) -> Line:
    line: Line = [(" ", "text")]
    resting = part.state in RESTING
    for index, (column, wide) in enumerate(columns):
        if index:
            line.append((" " * GAP, "text"))
        if column is KV and part.kv_used_fraction is not None and not resting:
            share = part.kv_used_fraction
            line += [
                *bar(share, wide - 6, heat(share, calm="decode")),
                (right(units.percent(share), 6), "text"),
            ]
            continue
        text, role = column.cell(store, part)
        role = "dim" if resting or text == units.MISSING else role
        line.append((right(text, wide) if column.at_right else pad(text, wide), role))
    return line


def _hidden(hidden: list[PartSample], width: int, lead: str) -> Line:
    """Those out of sight: how many in which state, and what they hold back together."""
    counts = Counter(foreign(part.state, 16) for part in hidden if part.state)
    told = [f"{count} {name}" for name, count in counts.most_common(4)] or [role_of(hidden)]
    waiting = sum(part.waiting or 0 for part in hidden)
    if waiting:
        told.append(f"{units.count(waiting)} requests wait there")
    return fit([(lead + ", ".join(told), "label")], width)


def _state(store: Store, part: PartSample) -> tuple[str, str]:
    state = foreign(part.state, 14) if part.state else ""
    return (state, "good" if state in WELL else "idle" if state in RESTING else "warn")


def _waiting(store: Store, part: PartSample) -> tuple[str, str]:
    return (units.count(part.waiting), "warn" if part.waiting else "text")


def _pool(store: Store, part: PartSample) -> tuple[str, str]:
    share = part.kv_used_fraction
    return ("x" * (GAUGE + 6) if share is not None else units.MISSING, "text")


def _tokens(store: Store, part: PartSample) -> tuple[str, str]:
    if part.kv_used_tokens is None and part.kv_pool_tokens is None:
        return (units.MISSING, "dim")
    pool = f"/{units.count(part.kv_pool_tokens)}" if part.kv_pool_tokens is not None else ""
    return (f"{units.count(part.kv_used_tokens)}{pool}", "text")


def _memory(store: Store, part: PartSample) -> tuple[str, str]:
    return (units.size(part.memory_bytes), "text")


def _on_gpu(store: Store, part: PartSample) -> tuple[str, str]:
    total, on_gpu = part.memory_bytes, part.gpu_memory_bytes
    if not total or on_gpu is None:
        return (units.MISSING, "dim")
    share = min(1.0, max(0.0, on_gpu / total))
    return (units.percent(share), "text" if share > 0.99 else "warn")


def _expires(store: Store, part: PartSample) -> tuple[str, str]:
    """What was said when the part was looked at, less the time since."""
    if part.expires_s is None:
        return (units.MISSING, "dim")
    return (f"in {units.seconds(max(0.0, part.expires_s - store.age(part)))}", "text")


def _note(store: Store, part: PartSample) -> tuple[str, str]:
    words = [foreign(part.note, 80) if part.note else "", short(part.url) if part.url else ""]
    return ("; ".join(word for word in words if word), "label")


KV = Column("KV", _pool)

COLUMNS: tuple[Column, ...] = (
    Column("state", _state, at_right=False),
    Column("run", lambda _, part: (units.count(part.running), "strong")),
    Column("wait", _waiting),
    Column("decode", lambda _, part: (units.rate(part.decode_tok_s), "strong")),
    KV,
    Column("prefill", lambda _, part: (units.rate(part.prefill_tok_s), "text")),
    Column("memory", _memory),
    Column("on GPU", _on_gpu),
    Column("unloads", _expires),
    Column("tokens", _tokens),
    Column("context", lambda _, part: (units.count(part.context_limit_tokens), "text")),
    Column(
        "weights",
        lambda _, part: (foreign(part.quantisation, 12) if part.quantisation else "", "text"),
        at_right=False,
    ),
    Column("", _note, at_right=False),
)
"""In the order in which they are left out last."""
