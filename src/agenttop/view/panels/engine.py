"""What the engine does: rates, first-token times, KV pool, requests."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.view.derived import joules
from agenttop.view.engines import age_s, has_slots, is_late, is_slowed, kinship, latency, tells_nothing, who
from agenttop.view.figures import Figures, figures
from agenttop.view.glyphs import TREND_S, spark, trend_cells
from agenttop.view.look import Look
from agenttop.view.panels.kv import kv, make
from agenttop.view.panels.latency import brief_wait, has_engine_waits, middle, waits
from agenttop.view.rows import SILENT_STATES, engine_in_focus
from agenttop.view.simulated import gpus, notice
from agenttop.view.spans import Line, foreign, spread, wrap
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

NO_ENGINE = "no engine found on this host yet: start one, or name it with --url http://HOST:PORT"

ROOMY = 68
"""From so many cells on the energy of a token has its place."""

LINES = 6
"""Where there is room; one more where engine and agents both tell how long is waited."""


def lines_wanted(store: Store, look: Look) -> int:
    """Lines that have something to say."""
    sample = engine_in_focus(store, look)
    if sample is None or sample.state in (*SILENT_STATES, "loading"):
        return LINES
    return LINES + (has_engine_waits(store, sample) and bool(figures(store, sample).ended.turns))


def engine(store: Store, width: int, height: int, look: Look) -> list[Line]:
    """Six lines where there is room, down to three; a sentence or two where there is nothing to read."""
    sample = engine_in_focus(store, look)
    if sample is None:
        missing = store.missing.get("engine")
        return wrap(foreign(missing.why, 200) if missing and missing.why else NO_ENGINE, width, "dim")[
            :height
        ]
    if sample.state in (*SILENT_STATES, "loading"):
        return _not_serving(sample, width)[:height]
    found = figures(store, sample)
    if tells_nothing(store, sample) and not _has_agents(store, sample, found):
        return _silent(store, sample, width)[:height]
    if height < 5:
        return _short(store, sample, found, width)[:height]
    return _full(store, sample, found, width, height, look)


def _full(
    store: Store, sample: EngineSample, found: Figures, width: int, height: int, look: Look
) -> list[Line]:
    waited = waits(store, sample, found, width)
    made = make(store, sample, width)
    lines = [
        _rate(store, "decode", _decode(found), found.rated, width, _per_request(store, sample, found)),
        _rate(
            store,
            "prefill",
            units.rate(sample.prefill_tok_s),
            sample.engine,
            width,
            _before(store, sample, found),
        ),
        *waited,
        kv(store, sample, width),
        made,
        _requests("run     ", store, sample, width, look),
    ]
    if len(lines) > height:
        lines.remove(made)
    if len(lines) > height:
        lines.remove(waited[-1])
    return lines[:height]


def title(store: Store, look: Look) -> Line:
    """Address of the engine, and which others it leads to or is led to by."""
    sample = engine_in_focus(store, look)
    if sample is None:
        return [("Engine", "accent")]
    simulated = notice(store, sample)
    invented: Line = [(" ", "text"), (f" {simulated} ", "badge")] if simulated is not None else []
    line: Line = [("Engine", "accent"), *invented, (f" {foreign(sample.url, 60)}", "text")]
    kin = kinship(store, sample)
    return [*line, (f"  {kin}", "label")] if kin is not None else line


def note(store: Store, look: Look) -> Line:
    """What the trends of this panel show, and that nothing is live any more."""
    if store.over:
        return [("as of the end", "warn")]
    more: Line = [("i", "key"), (" details  ", "label")] if look.footer else []
    return [*more, (f"trends: {TREND_S} s", "dim")]


def _has_agents(store: Store, sample: EngineSample, found: Figures) -> bool:
    load = store.load
    return bool(found.ended.turns) or (load is not None and load.engine == sample.engine and load.active > 0)


def _silent(store: Store, sample: EngineSample, width: int) -> list[Line]:
    """Of an engine that tells no figure: what is known, and how there come to be figures."""
    known: list[Line] = [
        [("serves  ", "label"), (foreign(sample.model or "no model that it names", 40), "strong")]
    ]
    if sample.context_limit_tokens is not None:
        known.append(
            [("up to ", "label"), (units.count(sample.context_limit_tokens), "text"), (" a request", "label")]
        )
    known.append(_reply(store, sample))
    text = (
        f"{who(sample)} tells no figures, only that it answers and what it serves. "
        "Agents sent there measure it from outside: TTFT, tok/s, failures."
    )
    return [spread(known, width, 3), *wrap(text, width, "label")]


def _not_serving(sample: EngineSample, width: int) -> list[Line]:
    """In place of figures that would be of the past: what is wrong, and since when."""
    word = {"unauthorised": "no access", "unsupported": "not an engine"}.get(sample.state, sample.state)
    grave = sample.state in SILENT_STATES and sample.state != "starting"
    parts: list[Line] = [[(f"{word:<7}", "bad" if grave else "warn")], [(foreign(sample.url, 60), "text")]]
    if sample.age_s is not None:
        parts.append([(f"last answer {units.seconds(sample.age_s)} ago", "label")])
    return [spread(parts, width), *wrap(foreign(sample.note or "no reason given", 200), width, "label")]


def _short(store: Store, sample: EngineSample, found: Figures, width: int) -> list[Line]:
    each = _per_request(store, sample, found, brief=True)
    cells = trend_cells((width - 56 - max(0, width_of(each) - 8)) // 2)
    return [
        spread(
            [
                [*_figure("decode ", _decode(found)), _trend(store, "decode", found.rated, cells)],
                each,
                [
                    *_figure("prefill ", units.rate(sample.prefill_tok_s)),
                    _trend(store, "prefill", sample.engine, cells),
                ],
            ],
            width,
        ),
        _beside(brief_wait(store, sample, found), store, sample, width),
        kv(store, sample, width, brief=True),
    ]


def _beside(first: list[Line], store: Store, sample: EngineSample, width: int) -> Line:
    """The requests after other figures, with their reasons where there is room."""
    for reasons in (True, False):
        parts = [*first, *requests("run ", store, sample, reasons=reasons)]
        if reasons and sum(width_of(part) + 2 for part in parts) - 2 <= width:
            break
    return spread(parts, width)


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


def _per_request(store: Store, sample: EngineSample, found: Figures, *, brief: bool = False) -> Line:
    """The rate of one request: the median of those that are seen, else an average, named as one; of an engine
    that tells no rate of now, that of the request which ended last."""
    if found.per_agent_p50 is not None:
        if brief:
            return [("p50 ", "label"), (units.rate(found.per_agent_p50), "text")]
        source: Line = [("at the agents  ", "dim")] if found.rated == "load" else []
        return [
            *source,
            (f"p50/{found.per} ", "label"),
            (units.rate(found.per_agent_p50), "strong"),
            (f" of {found.decoding}", "dim"),
        ]
    if sample.per_sequence_tok_s is not None and not has_slots(store, sample):
        return average(sample)[: 2 if brief else None]
    if found.decode_tok_s is None and sample.last_decode_tok_s is not None:
        return [
            ("last request " if not brief else "last ", "label"),
            (units.rate(sample.last_decode_tok_s), "text"),
        ]
    return [("p50 " if brief else "p50/agent ", "label"), (units.MISSING, "dim" if not brief else "text")]


def average(sample: EngineSample) -> Line:
    """`avg/seq 51.2 over 8`: the sum divided by the sequences that ran, not a median of anything."""
    line: Line = [("avg/seq ", "label"), (units.rate(sample.per_sequence_tok_s), "strong")]
    if sample.per_sequence_of is not None:
        line.append((f" over {sample.per_sequence_of:.3g}", "dim"))
    return line


def _before(store: Store, sample: EngineSample, found: Figures) -> Line:
    """How much of the prompts came from the cache, by the agents' turns; without them another figure."""
    if not found.ended.turns:
        if sample.prefill_tok_s is None and sample.last_prefill_tok_s is not None:
            return [("last request ", "label"), (units.rate(sample.last_prefill_tok_s), "text")]
        between = latency(store, sample, "itl")
        if between is not None:
            return [("ITL ", "label"), *middle(between)]
    return [("cached ", "label"), (units.percent(found.ended.cached_fraction), "text")]


def _requests(name: str, store: Store, sample: EngineSample, width: int, look: Look) -> Line:
    """Why requests wait is worth more than how quick the engine replies, unless it is slow."""
    reply = _reply(store, sample)
    notable = is_late(store, sample) or is_slowed(store, sample)
    told = requests(name, store, sample)
    choices = [[*told, reply], told, [*requests(name, store, sample, reasons=False), reply]]
    if notable or not waiting_words(sample):
        del choices[1]
    fitting = (parts for parts in choices if sum(width_of(part) + 3 for part in parts) - 3 <= width)
    energy = joules(store, sample, look) if width >= ROOMY and gpus(store, look) else []
    return spread([*next(fitting, choices[-1]), energy], width, 3)


def requests(name: str, store: Store, sample: EngineSample, *, reasons: bool = True) -> list[Line]:
    """How many run, wait and went wrong, one part each."""
    waiting, preempted = sample.waiting, sample.preemptions_total
    most = f"/{units.count(sample.sequences_max)}" if sample.sequences_max is not None else ""
    parts: list[Line] = [
        [(name, "label"), (units.count(sample.running), "strong"), (most, "label")],
        [("wait ", "label"), (units.count(waiting), "warn" if waiting else "text")],
    ]
    why = waiting_words(sample)
    if reasons and why:
        parts[-1].append((f" ({why})", "label"))
    if preempted is not None:
        parts.append([("preempt ", "label"), (units.count(preempted), "warn" if preempted else "text")])
    if store.load is not None and store.load.engine in (None, sample.engine):
        failures = store.load.failures
        parts.append([("fail ", "label"), (units.count(failures), "bad" if failures else "text")])
    if sample.restarts:
        parts.append([("restarts ", "label"), (str(sample.restarts), "warn")])
    return parts


def waiting_words(sample: EngineSample) -> str:
    """`capacity 3, deferred 1`; empty where nothing waits or no reason is told."""
    reasons = [(foreign(why, 16), count) for why, count in sample.waiting_reasons.items() if count > 0]
    return ", ".join(
        f"{why} {units.count(count)}" for why, count in sorted(reasons, key=lambda item: -item[1])[:4]
    )


def _reply(store: Store, sample: EngineSample) -> Line:
    """How long the engine takes to give its figures, how seldom it is asked, or how old they are."""
    every = units.seconds(sample.poll_every_s)
    if is_late(store, sample):
        asked: Line = [(f", asked every {every}", "label")] if is_slowed(store, sample) else []
        return [("figures ", "label"), (f"{units.seconds(age_s(store, sample))} old", "warn"), *asked]
    if is_slowed(store, sample):
        return [("asked every ", "label"), (every, "warn")]
    return [("replies in ", "label"), (units.seconds(sample.reply_s), "text")]
