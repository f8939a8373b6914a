"""What is missing on the screen, why, and what would provide it: of the machine, then engine by engine."""

from __future__ import annotations

from collections.abc import Iterable

from agenttop.model.frames import EngineSample, Missing
from agenttop.view.engines import ordered
from agenttop.view.spans import Line, foreign, wrap
from agenttop.view.store import Store

HERE = ("gpu", "host")
"""What is missing of the machine itself, not of an engine."""

FIELD_WORDS = {
    "decode_tok_s": "decode",
    "prefill_tok_s": "prefill",
    "kv_used_fraction": "KV pool",
    "kv_used_tokens": "KV tokens",
    "kv_pool_tokens": "KV pool in tokens",
    "kv_active_tokens": "KV active",
    "kv_idle_tokens": "KV idle",
    "preemptions_total": "preemptions",
    "context_limit_tokens": "context limit",
    "slots_total": "number of slots",
    "per_sequence_tok_s": "rate per sequence",
    "sequences_max": "most sequences",
    "waiting_reasons": "reasons for waiting",
    "finish_reasons": "finish reasons",
    "finished_total": "requests ended",
    "draft_acceptance": "draft acceptance",
    "tokens_per_step": "tokens per step",
    "prefix_hit_fraction": "prefix hits",
    "prefix_hits_tokens_total": "prefix hits",
    "quantisation": "quantisation",
    "kv_dtype": "KV type",
    "cached_tokens_total": "cached tokens",
    "prompt_tokens_total": "prompt tokens",
    "output_tokens_total": "output tokens",
    "drafted_tokens_total": "tokens drafted",
    "accepted_tokens_total": "tokens taken",
    "prefix_queries_tokens_total": "tokens looked up",
    "last_decode_tok_s": "rate of the last request",
    "ttft": "TTFT",
    "itl": "ITL",
    "e2e": "time of a whole request",
    "queue": "time in the queue",
    "memory_bytes": "memory",
    "gpu_memory_bytes": "GPU memory",
}
"""Fields to the words the screens have for them."""


def missing(store: Store, room: int) -> list[Line]:
    """Everything, grouped; a sentence where nothing is missing."""
    if not store.missing:
        return [[("nothing: all that can be measured here is shown", "text")]]
    of_machine, of_engines = _grouped(store)
    lines: list[Line] = []
    several = len(of_engines) > 1 or (of_engines and of_machine)
    if of_machine:
        if several:
            lines.append([("this machine", "accent")])
        lines += reasons(of_machine, room, note=_machine_note(store))
    for url, some in of_engines.items():
        if lines:
            lines.append([])
        lines.append(_heading(store.engines.get(url), url))
        lines += reasons(some, room)
    return lines


def of_engine(store: Store, engine: EngineSample, room: int) -> list[Line]:
    """What is missing of one engine; nothing where all is there."""
    return reasons(_grouped(store)[1].get(engine.engine, []), room)


def _grouped(store: Store) -> tuple[list[Missing], dict[str, list[Missing]]]:
    """Of the machine, and by engine in the order of the engines; those of a part go with its engine."""
    of_machine: list[Missing] = []
    of_engines: dict[str, list[Missing]] = {engine.engine: [] for engine, _ in ordered(store)}
    homes = {
        part.url: url for url, parts in store.parts.items() for part in parts.values() if part.url is not None
    }
    for frame in sorted(store.missing.values(), key=lambda frame: frame.what):
        subject, _ = frame.subject_and_field
        if subject is None:
            of_machine.append(frame)
            continue
        home = subject if subject in of_engines else homes.get(subject, subject)
        of_engines.setdefault(home, []).append(frame)
    return of_machine, {url: some for url, some in of_engines.items() if some}


def _heading(engine: EngineSample | None, url: str) -> Line:
    if engine is None:
        return [(foreign(url, 60), "accent")]
    return [(foreign(engine.name, 20), "accent"), (f" at {foreign(engine.url, 60)}", "label")]


def reasons(some: Iterable[Missing], room: int, note: str = "") -> list[Line]:
    """Fields with one reason in common stand together, then the reason and the way to get them."""
    together: dict[tuple[str, str], list[Missing]] = {}
    for frame in some:
        together.setdefault((frame.why or "", frame.fix or ""), []).append(frame)
    lines: list[Line] = []
    for (why, fix), frames in together.items():
        named = ", ".join(dict.fromkeys(_field(frame) for frame in frames))
        lines += wrap(named, room, "strong")
        if note and any(_is_here(frame) for frame in frames):
            lines[-1] = [*lines[-1], (f"  {note}", "label")]
        lines += [[("  ", "text"), *line] for line in wrap(foreign(why, 300), room - 2)]
        if fix:
            lines += [[("  ", "text"), *line] for line in wrap(foreign(fix, 300), room - 2, "accent")]
    return lines


def _field(frame: Missing) -> str:
    _, field = frame.subject_and_field
    return FIELD_WORDS.get(field, foreign(field, 80))


def _machine_note(store: Store) -> str:
    """Beside a simulated engine it is said of the machine's own figures that they are the machine's."""
    simulated = any(engine.simulated for engine in store.engines.values())
    return "of this machine, not of the simulated one" if simulated else ""


def _is_here(frame: Missing) -> bool:
    return frame.what.split(":")[0] in HERE
