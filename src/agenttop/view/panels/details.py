"""Everything known of one engine, section by section: what has no room on the live screen stands here."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import EngineSample, LatencySample
from agenttop.view.derived import derived, lines_of
from agenttop.view.engines import age_s, is_slowed, kinship, latencies, parts_of
from agenttop.view.figures import figures, prefix_hit_fraction
from agenttop.view.glyphs import TREND_S
from agenttop.view.look import Look
from agenttop.view.panels.engine import average, waiting_words
from agenttop.view.panels.host import engine_parts
from agenttop.view.panels.kv import LAYOUTS, gpu_share
from agenttop.view.panels.latency import upper
from agenttop.view.panels.missing import of_engine
from agenttop.view.panels.parts import parts, role_of
from agenttop.view.rows import SILENT_STATES
from agenttop.view.simulated import gpus
from agenttop.view.spans import Line, cells, cut, fit, foreign, pad, right, spread, width, wrap
from agenttop.view.store import Store

Pair = tuple[str, Line]

GRID = 36
"""Cells that a name and its value need side by side with others."""

LABEL = 15
LEAST_FIRST = (4, 2, 0, 6, 3, 5, 1)
"""Columns of the latencies in the order in which they go where there is no room."""

MEASURE_WORDS = {
    "ttft": "first token, TTFT",
    "itl": "between tokens, ITL",
    "e2e": "whole request, e2e",
    "queue": "in the queue",
    "prefill": "prefill",
    "decode": "decode",
}


def details(store: Store, engine: EngineSample, room: int, look: Look | None = None) -> list[Line]:
    """All lines, for a screen that scrolls."""
    serving = engine.state not in (*SILENT_STATES, "loading")
    lines = [*_identity(store, engine, room)]
    if serving:
        span = f", over {units.seconds(engine.window_s)}" if engine.window_s else ""
        lines += section(f"Now{span}", grid(_now(store, engine), room))
        lines += section("GPUs and energy now", _energy(store, engine, look, room))
        lines += section("KV pool and memory", grid(_pool(store, engine), room))
        lines += section("Latencies", _latencies(store, engine, room))
    some = parts_of(store, engine)
    if some:
        lines += section(role_of(some).capitalize(), parts(store, engine, room, len(some) + 1))
    if serving:
        lines += section("Since the server started", grid(_since(engine), room))
    return lines + section("Not known, and why", of_engine(store, engine, room))


def section(title: str, body: list[Line]) -> list[Line]:
    """A title and what stands below it; nothing where that is nothing."""
    return [[], [(title, "accent")], *body] if body else []


def grid(pairs: list[Pair], room: int) -> list[Line]:
    """Names and values in as many columns as there is room for; a long value has lines of its own."""
    if not pairs:
        return []
    columns = max(1, room // GRID)
    wide = room // columns
    lines: list[Line] = []
    taken = columns
    for name, value in pairs:
        cell: Line = [(pad(name, LABEL), "label"), *value]
        if width(cell) > wide - 1:
            lines += _long(name, value, room)
            taken = columns
            continue
        if taken == columns:
            lines.append([])
            taken = 0
        lines[-1] += fit(cell, wide)
        taken += 1
    return lines


def _long(name: str, value: Line, room: int) -> list[Line]:
    if width(value) + LABEL <= room:
        return [[(pad(name, LABEL), "label"), *value]]
    text = "".join(part for part, _ in value)
    wrapped = wrap(text, room - LABEL, value[0][1])
    return [[(pad(name if not index else "", LABEL), "label"), *line] for index, line in enumerate(wrapped)]


def _identity(store: Store, engine: EngineSample, room: int) -> list[Line]:
    version = f" {foreign(engine.version, 40)}" if engine.version else ""
    role = "good" if engine.state == "ok" else "bad" if engine.state in SILENT_STATES else "warn"
    pairs: list[Pair] = [
        ("engine", [(f"{foreign(engine.name, 30)}{version}", "strong")]),
        ("state", [(foreign(engine.state, 20), role)]),
        ("address", [(foreign(engine.url, 200), "text")]),
    ]
    kin = kinship(store, engine)
    texts = (
        ("stands", kin),
        ("model", engine.model),
        ("weights", engine.quantisation),
        ("KV type", engine.kv_dtype),
        ("simulates", engine.simulated),
    )
    pairs += [(name, [(foreign(text, 200), "text")]) for name, text in texts if text]
    counts = (
        ("context limit", engine.context_limit_tokens),
        ("slots", engine.slots_total),
        ("sequences max", engine.sequences_max),
        ("engines", engine.data_parallel),
    )
    pairs += [(name, [(units.count(count), "text")]) for name, count in counts if count is not None]
    if engine.pid is not None:
        pairs.append(("process", [(str(engine.pid), "text")]))
    if engine.restarts:
        pairs.append(("restarts", [(f"{engine.restarts} seen", "warn")]))
    pairs.append(("asked", _asked(store, engine)))
    allowed = "agents may be sent there" if engine.load_allowed else "agents only after you confirm it (a)"
    pairs.append(("load", [(allowed, "text")]))
    if engine.note and engine.state != "ok":
        pairs.append(("note", [(foreign(engine.note, 300), role)]))
    return grid(pairs, room)


def _asked(store: Store, engine: EngineSample) -> Line:
    every = units.seconds((engine.poll_every_s or store.pace) / store.pace)
    slow = is_slowed(store, engine)
    line: Line = [(f"every {every}", "warn" if slow else "text")]
    if engine.reply_s is not None:
        line.append((f", replies in {units.seconds(engine.reply_s)}", "text"))
    if engine.state not in SILENT_STATES and engine.age_s is not None:
        line.append((f", figures {units.seconds(age_s(store, engine))} old", "text"))
    return line


def _now(store: Store, engine: EngineSample) -> list[Pair]:
    found = figures(store, engine)
    floor = "≥" if found.decode_is_floor else ""
    source = ", as it arrived at the agents" if found.rated == "load" else ""
    pairs: list[Pair] = [
        ("decode", _rate(found.decode_tok_s, floor, source)),
        ("prefill", _rate(engine.prefill_tok_s)),
        ("running", [*_of(engine.running, engine.sequences_max)]),
        ("waiting", [(units.count(engine.waiting), "warn" if engine.waiting else "text")]),
    ]
    if words := waiting_words(engine):
        pairs.append(("they wait for", [(words, "text")]))
    if engine.per_sequence_tok_s is not None:
        pairs.append(("average", [*average(engine), (" sequences", "dim")]))
    if found.per_agent_p50 is not None:
        text = [(units.rate(found.per_agent_p50), "strong"), (f" median of {found.decoding}", "dim")]
        pairs.append((f"each {found.per}", text))
    if engine.draft_acceptance is not None:
        pairs.append(("drafts taken", [(units.percent(engine.draft_acceptance), "strong")]))
    if engine.tokens_per_step is not None:
        pairs.append(("tokens a step", [(f"{engine.tokens_per_step:.2f}", "text")]))
    ended = (("last decode", engine.last_decode_tok_s), ("last prefill", engine.last_prefill_tok_s))
    for name, value in ended:
        if value is not None:
            pairs.append((name, _rate(value, after=", last request")))
    return pairs


def _energy(store: Store, engine: EngineSample, look: Look | None, room: int) -> list[Line]:
    """What the engine's processes take of the host, and what is derived of it and its GPUs, with evidence."""
    lines: list[Line] = []
    if store.host is not None and (parts := engine_parts(store, store.host, look)):
        lines.append([(pad("of the host", LABEL), "label"), *spread(parts, room - LABEL)])
    if not gpus(store, look):
        return lines
    for name, value, evidence, known in lines_of(derived(store, engine, look)):
        if known:
            told = cut(foreign(evidence, 200), max(0, room - LABEL - width(value) - 2))
            lines.append([(pad(name, LABEL), "label"), *value, (f"  {told}", "dim")])
    return lines


def _rate(value: float | None, before: str = "", after: str = "") -> Line:
    if value is None:
        return [(units.MISSING, "dim")]
    return [(f"{before}{units.rate(value)}", "strong"), (" tok/s", "dim"), (after, "label")]


def _of(count: int | None, most: int | None) -> Line:
    line: Line = [(units.count(count), "strong" if count is not None else "dim")]
    return [*line, (f" of {units.count(most)}", "label")] if most is not None else line


def _pool(store: Store, engine: EngineSample) -> list[Pair]:
    pairs: list[Pair] = []
    for name, share in (("used", engine.kv_used_fraction), ("fullest", engine.kv_fullest_fraction)):
        if share is not None:
            pairs.append((name, [(units.percent(share), "strong")]))
    for name, count in (
        ("held", engine.kv_used_tokens),
        ("pool", engine.kv_pool_tokens),
        ("active", engine.kv_active_tokens),
        ("idle", engine.kv_idle_tokens),
    ):
        if count is not None:
            pairs.append((name, [(f"{count:,}".replace(",", " "), "text"), (" tokens", "dim")]))
    if engine.kv_layout in LAYOUTS:
        pairs.append(("layout", [(LAYOUTS[engine.kv_layout], "text")]))
    hits = prefix_hit_fraction(store, engine)
    if hits is not None:
        own = engine.prefix_hits_tokens_total is None
        span = ", over a span of its own" if own else f", last {TREND_S} s"
        pairs.append(("prefix hits", [(units.percent(hits), "strong"), (span, "dim")]))
    if engine.memory_bytes is not None:
        pairs.append(("models take", [(units.size(engine.memory_bytes), "strong")]))
    share = gpu_share(engine)
    if share is not None:
        pairs.append(("on GPU", [(units.percent(share), "text" if share > 0.99 else "warn")]))
    return pairs


def _since(engine: EngineSample) -> list[Pair]:
    pairs: list[Pair] = []
    for name, count in (
        ("requests ended", engine.finished_total),
        ("prompt tokens", engine.prompt_tokens_total),
        ("of them cached", engine.cached_tokens_total),
        ("output tokens", engine.output_tokens_total),
        ("preempted", engine.preemptions_total),
        ("tokens drafted", engine.drafted_tokens_total),
        ("tokens taken", engine.accepted_tokens_total),
        ("looked up", engine.prefix_queries_tokens_total),
        ("found in cache", engine.prefix_hits_tokens_total),
    ):
        if count is not None:
            bad = name == "preempted" and count > 0
            pairs.append((name, [(f"{count:,}".replace(",", " "), "warn" if bad else "text")]))
    ends = sorted(engine.finish_reasons.items(), key=lambda item: -item[1])
    ends = [(why, count) for why, count in ends if count > 0] or ends
    if ends:
        words = ", ".join(f"{foreign(why, 20)} {units.count(count)}" for why, count in ends[:12])
        pairs.append(("they ended by", [(words, "text")]))
    return pairs


def _latencies(store: Store, engine: EngineSample, room: int) -> list[Line]:
    rows = [(_measure(found), _cells(found)) for found in latencies(store, engine)]
    ended = figures(store, engine).ended
    if ended.turns:
        values = ["", units.seconds(ended.ttft_p50), "", units.seconds(ended.ttft_p95), ""]
        rows.append(
            ("TTFT at the agents", [*values, units.count(ended.turns), figures(store, engine).window])
        )
    if not rows:
        return []
    titles = ["mean", "p50", "p90", "p95", "p99", "of", "in the last"]
    chosen = [index for index in range(len(titles)) if any(cells_of[index] for _, cells_of in rows)]
    first = max(cells(name) for name, _ in rows)
    while len(chosen) > 1 and first + sum(_wide(titles, rows, index) + 2 for index in chosen) > room:
        chosen.remove(next(index for index in LEAST_FIRST if index in chosen))
    widths = {index: _wide(titles, rows, index) for index in chosen}
    head = " " * first + "".join("  " + right(titles[index], widths[index]) for index in chosen)
    lines: list[Line] = [[(head, "label")]]
    for name, cells_of in rows:
        line: Line = [(pad(name, first), "text")]
        for index in chosen:
            text = cells_of[index]
            role = "dim" if text in ("", units.MISSING) or index > 4 else "strong" if index == 1 else "text"
            line.append(("  " + right(text, widths[index]), role))
        lines.append(line)
    return lines


def _wide(titles: list[str], rows: list[tuple[str, list[str]]], index: int) -> int:
    return max(cells(titles[index]), *(cells(cells_of[index]) for _, cells_of in rows))


def _measure(found: LatencySample) -> str:
    return MEASURE_WORDS.get(found.measure, foreign(found.measure, 20))


def _cells(found: LatencySample) -> list[str]:
    return [
        units.seconds(found.mean_s),
        *(upper(found, share) for share in (0.5, 0.9, 0.95, 0.99)),
        units.count(found.count),
        units.seconds(found.window_s),
    ]
