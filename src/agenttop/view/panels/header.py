"""Who, what, where and in which state: the first lines of every screen."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import EngineSample
from agenttop.stream.base import BROKE_OFF
from agenttop.view.engines import kinship, place_words
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.simulated import notice
from agenttop.view.spans import Line, Span, cut, ends, fit, foreign, width
from agenttop.view.store import Store

DEMO_NOTICE = "DEMO engine: random weights"

ROOMY = 100
"""From so many cells on the first line also tells how long a level lasts."""

ENGINE_WORDS: dict[str, tuple[str, str]] = {
    "loading": (" LOADING ", "badge"),
    "starting": (" STARTING ", "badge"),
    "busy": (" BUSY ", "badge"),
    "asleep": (" ASLEEP ", "badge"),
    "down": (" DOWN ", "alarm"),
    "unauthorised": (" NO ACCESS ", "alarm"),
    "unsupported": (" NOT AN ENGINE ", "alarm"),
}
"""State of an engine to the word the header shows; `ok` needs none."""


def header(store: Store, width_cells: int, look: Look) -> list[Line]:
    """Two lines of exactly `width_cells`: identity, load, clock, recording; notice, state words, own cost."""
    engine = engine_in_focus(store, look)
    right_above: Line = [
        *_load(store, width_cells < ROOMY),
        gap(),
        (units.clock(store.now), "strong"),
        gap(),
        *_recording(store),
    ]
    own = [] if store.over else own_cost(store)
    words = state_words(store, look)
    left_below: Line = []
    for word in words:
        left_below += [word, (" ", "text")]
    left_below += _among(store, engine, look)
    simulated = notice(store, engine)
    if simulated is not None:
        left_below.append((f" {simulated} ", "badge"))
    elif store.session is not None and store.session.demo:
        left_below.append((DEMO_NOTICE, "warn"))
    kin = kinship(store, engine) if engine is not None and len(store.engines) > 1 else None
    if kin is not None:
        left_below.append((f" {kin}", "label"))
    reason = _reason(store, engine, look)
    if reason:
        left_below += [("  " if left_below else "", "text"), (reason, "label")]
    else:
        left_below += [("  " if left_below else "", "text"), *_machine(store)]
    return [
        ends(_identity(store, engine, width_cells - width(right_above) - 1), right_above, width_cells),
        ends(left_below, [(" ", "text"), *own], width_cells) if own else fit(left_below, width_cells),
    ]


def gap() -> Span:
    """Two blanks between parts."""
    return ("  ", "text")


def _identity(store: Store, engine: EngineSample | None, room: int) -> Line:
    host = foreign(store.session.host, 30) if store.session else "connecting…"
    line: Line = [("agenttop", "accent"), gap(), (cut(host, 20), "strong")]
    if engine is None:
        return [*line, gap(), ("no engine", "label")] if store.session else line
    name = foreign(engine.name, 20)
    version = foreign(engine.version, 24) if engine.version else ""
    line += [gap(), (name, "text")]
    if version:
        line += [(" ", "text"), (version, "label")]
    if engine.model and room - width(line) > 8:
        line += [gap(), (cut(foreign(engine.model, 60), room - width(line) - 2), "text")]
    return line


def _among(store: Store, engine: EngineSample | None, look: Look) -> Line:
    """Which of several engines this is."""
    place = place_words(store, look)
    return [(place, "accent"), (" ", "text")] if place is not None and engine is not None else []


def _load(store: Store, brief: bool) -> Line:
    load = store.load
    if load is None or (load.target == 0 and load.active == 0):
        return [("no agents", "label")]
    line: Line = []
    if load.profile:
        line += [(foreign(load.profile, 24), "text"), (" ", "text")]
    role = "strong" if load.active == load.target else "warn"
    line.append((f"▸{load.active}/{load.target}", role))
    level = store.level
    if level is not None and load.target and (level.t_end is None or store.now < level.t_end):
        of = f"/{level.of}" if level.of is not None else ""
        line += [gap(), (f"level {level.level + 1}{of}", "text")]
        if level.purpose:
            line.append((f" {foreign(level.purpose, 10)}", "accent"))
        if level.t_end is not None and not brief:
            line.append((f"  {units.seconds(level.t_end - store.now)} left", "label"))
    return line


def _recording(store: Store) -> Line:
    recording = store.recording
    if recording is None or recording.state == "off":
        return [("REC off", "dim")]
    if recording.state == "stopped":
        return [("REC STOPPED", "alarm")]
    if store.over:
        return [("recorded ", "label"), (units.size(recording.size_bytes), "label")]
    return [("●", "bad"), (" REC", "text"), (f" {units.size(recording.size_bytes)}", "label")]


def state_words(store: Store, look: Look) -> list[Span]:
    """The words a glance must not miss, the gravest first."""
    words: list[Span] = []
    engine = engine_in_focus(store, look)
    stale = store.stale_s
    if store.over:
        words.append((" ENDED ", "badge"))
    elif store.run_ended is not None:
        words.append((" RUN ENDED ", "badge"))
    if stale is not None:
        words.append((f" STALE {units.seconds(stale)} ", "alarm"))
    if engine is not None and engine.state in ENGINE_WORDS:
        words.append(ENGINE_WORDS[engine.state])
    if store.load is not None and store.load.client_limited:
        words.append((" CLIENT-LIMITED ", "alarm"))
    play = look.play
    if play is not None and not play.live:
        words += [(f" {word} ", "badge") for word in play.words]
    if store.load is not None and store.load.paused:
        words.append((" AGENTS PAUSED ", "badge"))
    return words


def _reason(store: Store, engine: EngineSample | None, look: Look) -> str | None:
    """One sentence about the worst thing, where there is one."""
    if store.over:
        why = foreign(store.ended or (store.bye.why if store.bye else ""), 160)
        answer = _answer(store, look)
        # What came to its end needs no reason; what broke off does, and first of all.
        parts = [why, *answer] if BROKE_OFF in why else [*answer, why]
        return "; ".join(part for part in parts if part)
    if store.recording is not None and store.recording.state == "stopped":
        return foreign(f"recording stopped: {store.recording.why or 'no reason given'}", 160)
    if engine is not None and engine.state != "ok" and engine.note:
        return foreign(engine.note, 160)
    if store.run_ended is not None:
        return "; ".join(_answer(store, look))
    if store.load is not None and store.load.client_limited:
        return foreign(f"the client is the limit: {store.load.client_limited}", 160)
    return None


def _answer(store: Store, look: Look) -> list[str]:
    """Where the figures of what has ended are."""
    path = store.recording.path if store.recording is not None else None
    told = ["q prints the figures"] if look.figures else []
    return [*told, *([f"recorded in {foreign(path, 120)}"] if path else [])]


def _machine(store: Store) -> Line:
    session = store.session
    if session is None:
        return []
    parts = [foreign(session.cpu, 60) if session.cpu else "", foreign(session.os, 40)]
    return [(", ".join(part for part in parts if part), "label")]


def own_cost(store: Store) -> Line:
    """What all processes of agenttop cost together."""
    if not store.own:
        return []
    shares = [sample.cpu_fraction for sample in store.own.values() if sample.cpu_fraction is not None]
    sizes = [sample.memory_bytes for sample in store.own.values() if sample.memory_bytes is not None]
    line: Line = [("own ", "dim"), (units.percent(sum(shares)) if shares else units.MISSING, "label")]
    if sizes:
        line += [(" ", "text"), (f"{sum(sizes) / 1e6:.0f} MB", "label")]
    return line
