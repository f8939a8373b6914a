"""What the engine does: rates, first-token times, KV pool, requests."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.figures import Figures, figures, prefix_hit_fraction
from agenttop.view.glyphs import FREE, TREND_S, bar, heat, pool, spark, trend_cells
from agenttop.view.look import Look
from agenttop.view.rows import SILENT_STATES, engine_in_focus
from agenttop.view.simulated import notice
from agenttop.view.spans import Line, foreign, spread, wrap
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

NO_ENGINE = "no engine found on this host yet: start one, or name it with --url http://HOST:PORT"


def engine(store: Store, width: int, height: int, look: Look) -> list[Line]:
    """Six lines where there is room, down to three; one sentence where there is nothing to read."""
    sample = engine_in_focus(store, look)
    if sample is None:
        missing = store.missing.get("engine")
        return wrap(foreign(missing.why, 200) if missing and missing.why else NO_ENGINE, width, "dim")[
            :height
        ]
    if sample.state in (*SILENT_STATES, "loading"):
        return _not_serving(sample, width)[:height]
    found = figures(store, sample)
    if height < 5:
        return _short(store, sample, found, width)[:height]
    lines = [
        _rate(store, "decode", _decode(found), found.rated, width, _per_agent(found)),
        _rate(store, "prefill", units.rate(sample.prefill_tok_s), sample.engine, width, _cached(found)),
        spread([_ttft("TTFT    ", found), _window(found), _tpot(found)], width, 3),
        _kv(sample, width),
        _kv_layout(store, sample, width),
        spread([*_requests("run     ", store, sample), _reply(store, sample)], width, 3),
    ]
    if height == 5:
        del lines[4]
    return lines[:height]


def title(store: Store, look: Look) -> Line:
    """Address of the engine."""
    sample = engine_in_focus(store, look)
    if sample is None:
        return [("Engine", "accent")]
    simulated = notice(store, sample)
    invented: Line = [(" ", "text"), (f" {simulated} ", "badge")] if simulated is not None else []
    return [("Engine", "accent"), *invented, (f" {foreign(sample.url, 60)}", "text")]


def note(store: Store) -> Line:
    """What the trends of this panel show, and that nothing is live any more."""
    if store.over:
        return [("as of the end", "warn")]
    return [(f"trends: {TREND_S} s", "dim")]


def _not_serving(sample: EngineSample, width: int) -> list[Line]:
    """In place of figures that would be of the past: what is wrong, and since when."""
    word = {"unauthorised": "no access", "unsupported": "not an engine"}.get(sample.state, sample.state)
    grave = sample.state in SILENT_STATES and sample.state != "starting"
    parts: list[Line] = [[(f"{word:<7}", "bad" if grave else "warn")], [(foreign(sample.url, 60), "text")]]
    if sample.age_s is not None:
        parts.append([(f"last answer {units.seconds(sample.age_s)} ago", "label")])
    return [spread(parts, width), *wrap(foreign(sample.note or "no reason given", 200), width, "label")]


def _short(store: Store, sample: EngineSample, found: Figures, width: int) -> list[Line]:
    cells = trend_cells((width - 56) // 2)
    return [
        spread(
            [
                [*_figure("decode ", _decode(found)), _trend(store, "decode", found.rated, cells)],
                [("p50 ", "label"), (units.rate(found.per_agent_p50), "text")],
                [
                    *_figure("prefill ", units.rate(sample.prefill_tok_s)),
                    _trend(store, "prefill", sample.engine, cells),
                ],
            ],
            width,
        ),
        spread([_ttft("TTFT    ", found), _cached(found), *_requests("run ", store, sample)], width),
        _kv(sample, width, also=_also(store, sample)),
    ]


def _decode(found: Figures) -> str:
    """`≥49.8` when tokens of requests that ended unseen are missing from it."""
    return f"{'≥' if found.decode_is_floor else ''}{units.rate(found.decode_tok_s)}"


def _rate(store: Store, name: str, value: str, subject: str, width: int, after: Line) -> Line:
    cells = trend_cells(width - 20 - max(20, width_of(after)) - 2)
    return spread([[*_figure(f"{name:<8}", value), _trend(store, name, subject, cells)], after], width)


def _figure(name: str, value: str) -> Line:
    return [(name, "label"), (f"{value:>5}", "strong"), (" tok/s ", "dim")]


def _trend(store: Store, name: str, subject: str, cells: int) -> tuple[str, str]:
    return (spark(store.columns(subject, f"{name}_tok_s", cells, TREND_S // cells)), name)


def _per_agent(found: Figures) -> Line:
    if found.per_agent_p50 is None:
        return [("p50/agent ", "label"), (units.MISSING, "dim")]
    return [
        (f"p50/{found.per} ", "label"),
        (units.rate(found.per_agent_p50), "strong"),
        (f" of {found.decoding}", "dim"),
    ]


def _cached(found: Figures) -> Line:
    return [("cached ", "label"), (units.percent(found.ended.cached_fraction), "text")]


def _ttft(name: str, found: Figures) -> Line:
    return [
        (f"{name}p50 ", "label"),
        (units.seconds(found.ended.ttft_p50), "strong"),
        ("  p95 ", "label"),
        (units.seconds(found.ended.ttft_p95), "strong"),
    ]


def _window(found: Figures) -> Line:
    return [(f"{found.ended.turns} {'turn' if found.ended.turns == 1 else 'turns'} in {found.window}", "dim")]


def _tpot(found: Figures) -> Line:
    return [("TPOT p50 ", "label"), (units.seconds(found.ended.tpot_p50), "text")]


def _also(store: Store, sample: EngineSample) -> Line:
    """What has no line of its own on a small screen: how the pool is divided, prefix hits, simulated."""
    simulated = notice(store, sample, short=True)
    line: Line = [(" ", "text"), ("as of the end", "warn")] if store.over else []
    if simulated is not None:
        line += [(" ", "text"), (f" {simulated} ", "badge")]
    if sample.kv_layout:
        line.append((f" {foreign(sample.kv_layout, 12)}", "label"))
    hits = prefix_hit_fraction(store, sample)
    if hits is not None:
        line += [("  hits ", "label"), (units.percent(hits), "text")]
    return line


def _kv(sample: EngineSample, width: int, *, also: Line | None = None) -> Line:
    """Bar and figures of the KV pool, and what else is to stand in this line."""
    total, active, idle = sample.kv_pool_tokens, sample.kv_active_tokens, sample.kv_idle_tokens
    fraction = sample.kv_used_fraction
    numbers: Line = [(f" {units.percent(fraction):>5}  ", "strong")]
    if idle is not None:
        long = width >= 60
        numbers += [
            (units.count(active), "text"),
            (" active " if long else "+", "label"),
            (units.count(idle), "text"),
            (" idle" if long else "", "label"),
        ]
    elif sample.kv_used_tokens is not None:
        numbers += [(units.count(sample.kv_used_tokens), "text"), (" used", "label")]
    if total is not None:
        numbers.append((f" / {units.count(total)}", "label"))
    numbers += also or []
    gauge = max(6, min(48, width - 8 - width_of(numbers)))
    if total and active is not None:
        drawn = pool(active, idle or 0, total, gauge)
    elif fraction is not None:
        drawn = bar(fraction, gauge, heat(fraction, calm="decode"))
    else:
        drawn = [(FREE * gauge, "dim")]
    return [("KV      ", "label"), *drawn, *numbers]


def _kv_layout(store: Store, sample: EngineSample, width: int) -> Line:
    parts: list[Line] = []
    hits = prefix_hit_fraction(store, sample)
    if hits is not None:
        parts.append(
            [("prefix hits ", "label"), (units.percent(hits), "strong"), (f" in {TREND_S} s", "dim")]
        )
    if sample.data_parallel is not None:
        parts.append(
            [
                (units.count(sample.data_parallel), "text"),
                (" engines, fullest ", "label"),
                (units.percent(sample.kv_fullest_fraction), "text"),
            ]
        )
    if sample.kv_layout == "unified":
        parts.append([("one pool for all slots", "label")])
    elif sample.kv_layout == "split":
        parts.append([("an equal share for each slot", "label")])
    elif sample.kv_layout == "paged":
        parts.append([("blocks of one pool, no slots", "label")])
    if sample.slots_total is not None:
        parts.append([(f"{sample.slots_total}", "text"), (" slots", "label")])
    if sample.context_limit_tokens is not None:
        parts.append(
            [("up to ", "label"), (units.count(sample.context_limit_tokens), "text"), (" a request", "label")]
        )
    return [("        ", "text"), *spread(parts, max(0, width - 8))] if parts else []


def _requests(name: str, store: Store, sample: EngineSample) -> list[Line]:
    waiting, preempted = sample.waiting, sample.preemptions_total
    parts: list[Line] = [
        [(name, "label"), (units.count(sample.running), "strong")],
        [("wait ", "label"), (units.count(waiting), "warn" if waiting else "text")],
    ]
    if preempted is not None:
        parts.append([("preempt ", "label"), (units.count(preempted), "warn" if preempted else "text")])
    if store.load is not None:
        failures = store.load.failures
        parts.append([("fail ", "label"), (units.count(failures), "bad" if failures else "text")])
    if sample.restarts:
        parts.append([("restarts ", "label"), (str(sample.restarts), "warn")])
    return parts


def _reply(store: Store, sample: EngineSample) -> Line:
    """How long the engine takes to give its figures, or how old they are."""
    age = (sample.age_s or 0.0) + store.age(sample)
    if sample.state == "busy" or age > 5 * store.pace:
        return [("figures ", "label"), (f"{units.seconds(age)} old", "warn")]
    return [("replies in ", "label"), (units.seconds(sample.reply_s), "text")]
