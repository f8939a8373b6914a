"""Sessions to rows, one per level: from recordings or from frames in memory, by raw turns and samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agenttop.analyse import machine, measures
from agenttop.analyse.levels import Span, find_levels
from agenttop.analyse.limits import Seen, bottleneck, host_at_ease, look
from agenttop.analyse.material import Material, of_recording, within
from agenttop.analyse.neighbours import busy_beside
from agenttop.analyse.row import LevelRow
from agenttop.analyse.steady import judge
from agenttop.analyse.tokens import tokens_per_event
from agenttop.analyse.verdict import away, unsteady, why_invalid
from agenttop.model.frames import EngineSample, LoadSample, Turn
from agenttop.record.read import Recording

__all__ = ["LevelRow", "level_rows", "levels_of", "rows_of", "spans_of"]


def level_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of several recordings, file by file, as plain values. Raises AgenttopError for a bad file."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        with Recording(path) as recording:
            rows += map(msgspec.to_builtins, levels_of(recording))
    return rows


def levels_of(recording: Recording, name: str | None = None) -> list[LevelRow]:
    """The rows of a recording, in order; none when no agents ran. `name` stands for the file in them."""
    return rows_of(of_recording(recording), name or str(recording.path))


def spans_of(material: Material) -> list[Span]:
    """The levels of a session and their steady windows."""
    return find_levels(
        material.levels,
        material.loads,
        material.turns,
        material.events,
        material.duration,
        material.session.speedup,
    )


def rows_of(material: Material, name: str = "") -> list[LevelRow]:
    """The rows of a session in order; none when no agents ran. `name` stands for the file in them.

    A level that is still running is judged as far as `material.duration`.
    """
    per_event = tokens_per_event(material.turns)
    rows: list[LevelRow] = []
    before: list[Seen] = []
    for span in spans_of(material):
        row, seen = _row(name, span, material, per_event, before)
        rows.append(row)
        if seen is not None:
            before.append(seen)
    return rows


def level_load(material: Material, span: Span) -> LoadSample | None:
    """The newest word of the driver on the load of a level: its engine and its profile."""
    return next((load for load in reversed(material.loads) if load.engine and load.t <= span.end), None)


def level_turns(material: Material, load: LoadSample | None) -> list[Turn]:
    """All requests to the engine of the level; those that only filled contexts before it do not count."""
    return [
        turn
        for turn in material.turns
        if turn.turn_kind != "prime" and (load is None or turn.engine == load.engine)
    ]


def _row(
    file: str, span: Span, material: Material, per_event: float | None, before: Sequence[Seen]
) -> tuple[LevelRow, Seen | None]:
    load = level_load(material, span)
    turns = level_turns(material, load)
    standing = judge(turns, span.agents, span.steady, span.end)
    if standing.state == "steady":
        # Its beginning is cropped where the level had not settled yet.
        span = replace(span, steady=standing.since)
    loads = within(material.loads, span.steady, span.end)
    all_engines = within(material.engines, span.steady, span.end)
    engines = [sample for sample in all_engines if load is None or sample.engine == load.engine]
    ended = [turn for turn in turns if span.steady <= turn.t < span.end]
    if standing.state == "steady" and (moved := unsteady(ended)):
        standing = replace(standing, state="unsteady", why=moved[0])
    reasons = why_invalid(span, loads, ended, engines, material.session.speedup)
    row = LevelRow(
        file=file,
        **_identity(material, span, load, engines),
        t_start=span.start,
        t_end=span.end,
        warm_up_s=span.steady - span.start,
        window_s=span.window_s,
        engine_away="; ".join(away(engines)) or None,
        also_busy=busy_beside(load.engine if load else None, all_engines),
        valid=not reasons,
        why_invalid="; ".join(reasons) or None,
    )
    if span.window_s <= 0:
        return row, None
    figures = measures.rates(span, turns, per_event)
    figures |= measures.latencies(span, turns)
    figures |= measures.counts(span, ended, loads)
    figures |= measures.compactions(ended)
    figures |= measures.engine(span, engines)
    figures["context_mean_tokens"] = measures.mean_context(span, turns)
    row = msgspec.structs.replace(row, **figures, steady=standing.state, why_steady=standing.why)
    # The machine that simulates says nothing about the one that is simulated.
    seen_machine = machine.of_level(material, span, row, engines)
    row = msgspec.structs.replace(row, **seen_machine.figures)
    seen = look(row, ended, loads, engines, seen_machine)
    limit = bottleneck(seen, before)
    row = msgspec.structs.replace(
        row, bottleneck=limit.name, bottleneck_evidence=limit.evidence, host_verdict=host_at_ease(seen)
    )
    return row, seen


def _identity(
    material: Material, span: Span, load: LoadSample | None, engines: Sequence[EngineSample]
) -> dict[str, Any]:
    session = material.session
    simulated = session.simulated or next((e.simulated for e in engines if e.simulated), None)
    level = next((level for level in material.levels if level.t == span.start), None)
    return {
        "host": simulated or session.host,
        "simulated": simulated is not None,
        "speedup": session.speedup,
        "engine": load.engine if load else None,
        "engine_name": next((sample.name for sample in reversed(engines)), None),
        "model": next((sample.model for sample in engines if sample.model), None),
        "profile": load.profile if load else None,
        "demo": session.demo,
        "level": span.number,
        "agents": span.agents,
        "purpose": level.purpose if level else None,
        "cold": level.cold if level else False,
    }
