"""What is missing on the screen, why, and what would provide it: of the machine, of each GPU and engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agenttop.model.frames import GPU_SUBJECT, EngineSample, GpuSample, Missing
from agenttop.view.engines import ordered
from agenttop.view.figure_words import FIGURES_OF_GPUS, FIGURES_OF_HOSTS
from agenttop.view.gpus import label, short_name
from agenttop.view.simulated import in_order
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
    "process_read_bytes_s": "reads of its processes",
    "process_pss_bytes": "memory of its processes, shared pages divided",
    "weights_bytes": "size of the weights",
    "weights_active_bytes": "weights read per token",
    **FIGURES_OF_GPUS,
    **FIGURES_OF_HOSTS,
}
"""Fields to the words the screens have for them."""


def missing(store: Store, room: int) -> list[Line]:
    """Everything, grouped: the machine, its GPUs one by one, engines; a sentence where nothing is missing."""
    if not store.missing:
        return [[("nothing: all that can be measured here is shown", "text")]]
    groups = _grouped(store)
    several = len(groups.engines) + len(groups.gpus) + bool(groups.machine) > 1
    lines: list[Line] = []
    if groups.machine:
        if several:
            lines.append([("this machine", "accent")])
        lines += reasons(groups.machine, room, note=_machine_note(store))
    for gpu, some in groups.gpus.items():
        lines += [*([[]] if lines else []), _gpu_heading(store.gpus.get(gpu), gpu), *reasons(some, room)]
    for url, some in groups.engines.items():
        lines += [*([[]] if lines else []), _heading(store.engines.get(url), url), *reasons(some, room)]
    return lines


def of_engine(store: Store, engine: EngineSample, room: int) -> list[Line]:
    """What is missing of one engine; nothing where all is there."""
    return reasons(_grouped(store).engines.get(engine.engine, []), room)


def of_machine(store: Store, room: int) -> list[Line]:
    """What is missing of the machine and its GPUs; nothing where all is there."""
    groups = _grouped(store)
    lines = reasons(groups.machine, room, note=_machine_note(store))
    for gpu, some in groups.gpus.items():
        lines += [_gpu_heading(store.gpus.get(gpu), gpu), *reasons(some, room)]
    return lines


def reason_of(store: Store, gpu: GpuSample) -> str:
    """Why there is nothing of a GPU; empty where that is not told."""
    subject = f"{GPU_SUBJECT}{gpu.gpu}"
    found = (frame.why for frame in store.missing.values() if frame.subject_and_field[0] == subject)
    return foreign(next((why for why in found if why), ""), 160)


@dataclass(frozen=True, slots=True)
class _Groups:
    """What is missing, by what it is missing of."""

    machine: list[Missing]
    gpus: dict[str, list[Missing]]
    """By `GpuSample.gpu`, in the order of the GPUs."""
    engines: dict[str, list[Missing]]
    """In the order of the engines; those of a part go with its engine."""


def _grouped(store: Store) -> _Groups:
    groups = _Groups(
        [],
        {gpu.gpu: [] for gpu in in_order(store.gpus.values())},
        {engine.engine: [] for engine, _ in ordered(store)},
    )
    homes = {
        part.url: url for url, parts in store.parts.items() for part in parts.values() if part.url is not None
    }
    for frame in sorted(store.missing.values(), key=lambda frame: frame.what):
        subject, _ = frame.subject_and_field
        if subject is None:
            groups.machine.append(frame)
        elif subject.startswith(GPU_SUBJECT):
            groups.gpus.setdefault(subject.removeprefix(GPU_SUBJECT), []).append(frame)
        else:
            home = subject if subject in groups.engines else homes.get(subject, subject)
            groups.engines.setdefault(home, []).append(frame)
    for some in (groups.gpus, groups.engines):
        for empty in [name for name, frames in some.items() if not frames]:
            del some[empty]
    return groups


def _heading(engine: EngineSample | None, url: str) -> Line:
    if engine is None:
        return [(foreign(url, 60), "accent")]
    return [(foreign(engine.name, 20), "accent"), (f" at {foreign(engine.url, 60)}", "label")]


def _gpu_heading(gpu: GpuSample | None, identity: str) -> Line:
    if gpu is None:
        return [("GPU ", "accent"), (foreign(identity, 60), "label")]
    return [(label(gpu).strip(), "accent"), (f" {short_name(gpu)}", "label")]


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
    field = field.removeprefix("host:")
    return FIELD_WORDS.get(field, foreign(field, 80))


def _machine_note(store: Store) -> str:
    """Beside a simulated engine it is said of the machine's own figures that they are the machine's."""
    simulated = any(engine.simulated for engine in store.engines.values())
    return "of this machine, not of the simulated one" if simulated else ""


def _is_here(frame: Missing) -> bool:
    return frame.what.split(":")[0] in HERE
