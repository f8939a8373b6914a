"""The GPUs, or why there is none to see."""

from __future__ import annotations

from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.view.glyphs import bar, heat
from agenttop.view.gpus import (
    activity,
    clock,
    health_words,
    heat_role,
    held_now,
    held_role,
    hot,
    is_silent,
    label,
    link,
    memory_kind,
    memory_name,
    memory_share,
    memory_used,
    of_gib,
    reasons_now,
    short_name,
    state_word,
    util,
    watts,
)
from agenttop.view.look import Look
from agenttop.view.panels import gpu_full
from agenttop.view.panels.host import both_ways
from agenttop.view.panels.missing import reason_of
from agenttop.view.panels.strip import legend, strip, strip_cells
from agenttop.view.simulated import gpus, is_simulated
from agenttop.view.spans import Line, cut, foreign, spread
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

MOST_LINES_EACH = 4
"""Of a card, where there are several."""

INSTANCES = 4
"""MIG instances of a single card that are worth a line each."""


def gpu(store: Store, width: int, height: int, look: Look | None = None) -> list[Line]:
    """One GPU in full where there is one and room for it; of several, each on as many lines as there are
    for it, and those that have none in one line together. MIG instances stand below their card."""
    samples = gpus(store, look)
    if not samples:
        return [no_gpu(store, width)]
    silent = [sample for sample in samples if is_silent(sample)]
    if silent and len(samples) > 1 and height >= len(samples):
        return _with_silent(store, samples, silent, width, height)
    cards = [sample for sample in samples if sample.parent is None]
    if len(cards) == 1 and height >= 3:
        return _single(store, cards[0], samples, width, height)
    if len(cards) == 1 and len(samples) == 1 and height == 2:
        return [*_aligned(store, cards, width), gpu_full.brief(store, cards[0], width)]
    each = min(MOST_LINES_EACH, height // len(samples))
    if each >= 2 and len(cards) == len(samples):
        return [line for sample in samples for line in _block(store, sample, width, each)]
    if len(samples) <= height:
        return _aligned(store, samples, width)
    shown = samples[: max(0, height - 1)]
    return [*_aligned(store, shown, width), _rest(samples[len(shown) :], width)]


def _with_silent(
    store: Store, samples: list[GpuSample], silent: list[GpuSample], width: int, height: int
) -> list[Line]:
    """Those that have no figures take a line each, in their place; the others have all the rest."""
    others = [sample for sample in samples if sample not in silent]
    each = min(MOST_LINES_EACH, (height - len(silent)) // len(others)) if others else 1
    lines: list[Line] = []
    for sample in samples:
        if sample in silent:
            lines.append(_silent(store, sample, width))
        elif len(others) == 1 and height - len(silent) >= 3:
            lines += gpu_full.full(store, sample, width, height - len(silent), named=True)
        elif each >= 2:
            lines += _block(store, sample, width, each)
        else:
            lines += _aligned(store, [sample], width)
    return lines


def _silent(store: Store, sample: GpuSample, width: int) -> Line:
    """Which card it is, its state, and why there is nothing of it."""
    why = reason_of(store, sample)
    line: Line = [(f"{label(sample):<5}", "accent"), *state_word(sample), (" ", "text")]
    line.append((short_name(sample), "text"))
    room = width - width_of(line) - 2
    return spread([line, [(cut(why, room), "label")] if why and room > 12 else []], width)


def _single(store: Store, card: GpuSample, samples: list[GpuSample], width: int, height: int) -> list[Line]:
    """The card in full, and its instances on a line each."""
    parts = [sample for sample in samples if sample is not card]
    room = max(1, min(len(parts), height - 4)) if parts else 0
    lines = gpu_full.full(store, card, width, height - room)
    if not parts:
        return lines
    if len(parts) <= room:
        return [*lines, *_aligned(store, parts, width)]
    return [*lines, *_aligned(store, parts[: room - 1], width), _rest(parts[room - 1 :], width)]


def lines_wanted(store: Store, look: Look | None = None) -> int:
    """Lines in which nothing that matters of any card is left out."""
    samples = gpus(store, look)
    cards = [sample for sample in samples if sample.parent is None]
    if len(cards) == 1:
        return gpu_full.lines_wanted(cards[0]) + min(INSTANCES, len(samples) - 1)
    if not samples:
        return 6
    return 8 if len(samples) != 3 else 9


def title(store: Store, look: Look | None = None) -> Line:
    """The name of a single GPU, or how many there are of which; and that they are simulated."""
    samples = [sample for sample in gpus(store, look) if sample.parent is None]
    invented: Line = [(" SIMULATED ", "badge")] if samples and is_simulated(samples[0]) else []
    if len(samples) != 1:
        line: Line = [("GPUs" if samples else "GPU", "accent")]
        names = {sample.name for sample in samples}
        if len(names) == 1:
            line.append((f" {len(samples)} × {short_name(samples[0])}", "text"))
        return [*line, *([(" ", "text"), *invented] if invented else [])]
    name = foreign(samples[0].name, 40)
    line = [(f"GPU {samples[0].index}", "accent"), (f" {name} ", "text"), *invented]
    return line if invented else [line[0], (f" {name}", "text")]


def note(store: Store, look: Look | None = None) -> Line | None:
    """What the strip shows, and where there is more."""
    if not gpus(store, look):
        return None
    more: Line = [("h", "key"), (" machine  ", "label")] if look is not None and look.footer else []
    return [*more, ("strip: 5 m", "dim")]


def no_gpu(store: Store, width: int) -> Line:
    """`no GPU:` and the reason."""
    missing = store.missing.get("gpu")
    why = foreign(missing.why or "", 160) if missing else ""
    if not why:
        why = "none reported yet" if store.host is None else "none reported"
    why = why.removeprefix("no GPU: ")
    return [("GPU  ", "label"), (cut(f"no GPU: {why}", max(0, width - 5)), "dim")]


def _block(store: Store, sample: GpuSample, width: int, lines: int) -> list[Line]:
    """A card on two to four lines: util, memory, temperature, power, held by what and when, and its link."""
    gauge = max(6, min(16, width - 40))
    share = memory_share(sample)
    memory: Line = [
        (f"{memory_name(sample):<4} ", "label"),
        *bar(share, gauge, heat(share, 0.97, 0.995)),
        (" ", "text"),
        *memory_used(sample),
    ]
    bus: Line = (
        []
        if sample.mem_util_fraction is None
        else [("bus ", "label"), (units.percent(sample.mem_util_fraction), "text")]
    )
    power: Line = [(watts(sample), "strong" if lines > 2 or not sample.throttle else held_role(sample))]
    first: list[Line] = [
        [
            (f"{label(sample):<5}", "accent"),
            *bar(sample.util_fraction, gauge, "good"),
            (f" {util(sample):>5}", "strong"),
        ],
        state_word(sample),
        hot(sample, margin=lines > 2),
    ]
    name: Line = [(short_name(sample), "dim")]
    sick = health_words(sample, 30)
    if lines == 2:
        held = held_now(sample, width - width_of(memory) - 2, "held by ") if sample.throttle else []
        return [spread([*first, power, name], width), spread([memory, sick, held], width)]
    held = held_now(sample, width - 5 - width_of(power) - 2)
    third = [power, held]
    if lines == 3:
        return [
            spread([*first, name], width),
            spread([memory, sick, memory_kind(sample), bus], width),
            _under([*third, *_short_strip(store, sample, width, third), clock(sample)], width),
        ]
    return [
        spread([*first, name], width),
        spread([memory, sick, memory_kind(sample), bus], width),
        _under([*third, clock(sample), *activity(sample)], width),
        _under([*_strip_and_link(store, sample, width)], width),
    ]


def _under(parts: list[Line], width: int) -> Line:
    return [("     ", "text"), *spread(parts, max(0, width - 5))]


def _short_strip(store: Store, sample: GpuSample, width: int, before: list[Line]) -> list[Line]:
    room = width - 5 - sum(width_of(part) + 2 for part in before if part)
    cells = strip_cells(min(30, room))
    return [strip(store, sample, cells)] if cells else []


def _strip_and_link(store: Store, sample: GpuSample, width: int) -> list[Line]:
    told = legend(store, sample)
    rates = both_ways(sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s)
    fixed = sum(width_of(part) + 2 for part in (*told, link(sample)) if part)
    cells = strip_cells(max(10, min(30, width - 5 - fixed)))
    return [strip(store, sample, cells), *told, link(sample), rates if sample.pcie_width else []]


@dataclass(frozen=True, slots=True)
class _Style:
    """How much of a card stands on its one line."""

    gauge: int
    """Cells of each bar."""
    terse: bool = False
    """Without what can be told from the rest: the name of a figure, the limit, the reason."""


STYLES = (_Style(6), _Style(4), _Style(0), _Style(0, terse=True))
"""The fullest first; the first in which all cards fit is taken for all of them."""

SHORT_STRIP = 10
WATTS = 5
"""Parts of a card's line before what holds it down: the strip stands below that of the card above."""


def _aligned(store: Store, samples: list[GpuSample], width: int) -> list[Line]:
    """A line for each, all in the same style; with its strip where all have room for it."""
    for style in STYLES:
        parts = [_one_line(sample, style) for sample in samples]
        if all(_taken(line) <= width for line in parts):
            break
    if samples and all(_taken(line) + 2 + SHORT_STRIP <= width for line in parts):
        parts = [
            [*line[:WATTS], strip(store, sample, SHORT_STRIP), *line[WATTS:]]
            if sample.parent is None
            else line
            for line, sample in zip(parts, samples, strict=True)
        ]
    named = [[*line, [(short_name(sample), "dim")]] for line, sample in zip(parts, samples, strict=True)]
    return [spread(line, width) for line in named]


def _taken(parts: list[Line]) -> int:
    return sum(width_of(part) + 2 for part in parts if part) - 2


def _one_line(sample: GpuSample, style: _Style) -> list[Line]:
    """Parts, the most important first."""
    share = memory_share(sample)
    memory = memory_used(sample)
    filled = bar(share, style.gauge, heat(share, 0.97, 0.995)) if style.gauge else []
    name = f"{memory_name(sample)} "
    if sample.parent is not None:
        return [
            [(f"{label(sample):<5}", "label"), (cut(short_name(sample), 16), "text")],
            state_word(sample),
            [(name, "label"), *filled, (" " if filled else "", "text"), *memory],
            *activity(sample)[:2],
        ]
    held: Line = []
    if sample.throttle:
        words, role = reasons_now(sample), held_role(sample)
        held = [("held", role)] if style.terse else [("by ", "label"), (cut(words, 30), role)]
    return [
        [
            (f"{label(sample):<5}", "label"),
            *(bar(sample.util_fraction, style.gauge, "good") if style.gauge else []),
            (f"{'' if style.terse else ' '}{util(sample):>5}", "strong"),
        ],
        state_word(sample),
        memory if style.terse else [(name, "label"), *filled, (" " if filled else "", "text"), *memory],
        hot(sample),
        [(watts(sample, limit=not style.terse), held_role(sample) if sample.throttle else "text")],
        [("SICK", "bad")] if sample.health else [],
        held,
    ]


def _rest(samples: list[GpuSample], width: int) -> Line:
    """Cards without a line of their own, summed up so that nothing grave is out of sight."""
    utils = [sample.util_fraction for sample in samples if sample.util_fraction is not None]
    hottest = max(
        (sample for sample in samples if sample.temperature_c is not None),
        key=lambda sample: sample.temperature_c or 0.0,
        default=None,
    )
    powers = [sample.power_w for sample in samples if sample.power_w is not None]
    totals = [sample.mem_total_bytes for sample in samples if sample.mem_total_bytes is not None]
    used = [sample.mem_used_bytes for sample in samples if sample.mem_used_bytes is not None]
    held = sum(bool(sample.throttle) for sample in samples)
    bad = sum(sample.state not in ("ok", "asleep") for sample in samples)
    sick = sum(bool(sample.health) for sample in samples)
    parts: list[Line] = [
        [("GPU  ", "label"), (f"{len(samples)} more", "text")],
        [(f"{bad} NOT OK", "alarm")] if bad else [],
        [(f"{sick} SICK", "bad")] if sick else [],
        [(f"{held} held down", "warn")] if held else [],
    ]
    if utils:
        parts.append([("util ", "label"), (_range(min(utils), max(utils)), "strong")])
    if hottest is not None:
        parts.append([("to ", "label"), (f"{hottest.temperature_c:.0f} °C", heat_role(hottest))])
    if len(used) == len(totals) == len(samples):
        parts.append([("VRAM ", "label"), *of_gib(sum(used), sum(totals))])
    if len(powers) == len(samples):
        parts.append([(f"{sum(powers):.0f} W", "text")])
    return spread(parts, width)


def _range(low: float, high: float) -> str:
    least, most = units.percent(low), units.percent(high)
    return most if least == most else f"{least.removesuffix(' %')} to {most}"
