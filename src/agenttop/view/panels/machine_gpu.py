"""Everything known of one GPU: figures, link, health, and the strip of each reason that held it down."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.model.link import link_bytes_s
from agenttop.model.throttle import kind_of
from agenttop.view.gpus import (
    SOURCES,
    activity,
    celsius,
    clock,
    health_words,
    held_now,
    hot,
    is_narrowed,
    is_silent,
    link,
    memory_kind,
    memory_name,
    memory_used,
    nvlink,
    reserved,
    state_word,
    util,
    watts,
    watts_of,
)
from agenttop.view.held import mean_over
from agenttop.view.panels.details import LABEL, Pair, grid
from agenttop.view.panels.host import both_ways
from agenttop.view.panels.missing import reason_of
from agenttop.view.panels.strip import TRACE, letter_of, of_reason, strip, strip_cells
from agenttop.view.series import WINDOW_S
from agenttop.view.simulated import is_simulated
from agenttop.view.spans import Line, cut, ends, foreign, pad, wrap
from agenttop.view.store import Store

NAME = 24
"""Cells for a reason."""


def heading(sample: GpuSample) -> Line:
    """`GPU 0  NVIDIA GeForce RTX 5090`, with its state."""
    name = f"GPU {sample.index}" if sample.parent is None else f"  MIG {sample.mig_instance}"
    invented: Line = [(" ", "text"), (" SIMULATED ", "badge")] if is_simulated(sample) else []
    state = state_word(sample)
    return [
        (name, "accent"),
        (f"  {foreign(sample.name, 60)}", "strong"),
        *invented,
        *([(" ", "text"), *state] if state else []),
    ]


def gpu_block(store: Store, sample: GpuSample, room: int) -> list[Line]:
    """Its heading and all that is known of it."""
    lines: list[Line] = [heading(sample)]
    sick = health_words(sample, room - LABEL)
    if sick:
        lines.append([(pad("health", LABEL), "label"), *sick])
    if is_silent(sample):
        lines += wrap(reason_of(store, sample) or "nothing is known of it now", room, "label")
        lines += grid([pair for pair in _state(sample) if pair[1]], room)
    else:
        lines += grid([pair for pair in _pairs(sample) if pair[1]], room)
    return lines + reasons_over_time(store, sample, room)


def _pairs(sample: GpuSample) -> list[Pair]:
    return [*_work(sample), *_electric(sample), *_link(sample), *_state(sample)]


def _text(text: str, role: str = "text") -> Line:
    return [(text, role)] if text else []


def _work(sample: GpuSample) -> list[Pair]:
    used = memory_used(sample)
    more = [*memory_kind(sample), *reserved(sample)]
    inside: Line = []
    for part in activity(sample):
        inside += [("  ", "text"), *part] if inside else part
    bus = sample.mem_util_fraction
    return [
        ("util", _text(util(sample), "strong")),
        ("clock", clock(sample)),
        (memory_name(sample), [*used, *([("  ", "text"), *more] if more else [])]),
        ("memory bus", _text(f"{units.percent(bus)} busy") if bus is not None else []),
        ("inside", inside),
        ("memory clock", _text(_of(sample.mem_clock_mhz, sample.mem_clock_max_mhz, "MHz"))),
    ]


def _of(value: float | None, most: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f}{f' of {most:.0f}' if most else ''} {unit}"


def _electric(sample: GpuSample) -> list[Pair]:
    mean = watts_of(sample)
    power: Line = [(watts(sample), "strong")]
    limit, usual = sample.power_limit_w, sample.power_limit_default_w
    lowered = limit is not None and usual is not None and abs(limit - usual) > 1
    memory: Line = _text(celsius(sample.mem_temperature_c)) if sample.mem_temperature_c is not None else []
    if memory and sample.mem_temperature_limit_c is not None:
        memory.append((f", limit {sample.mem_temperature_limit_c:.0f}", "label"))
    heat = hot(sample, margin=True)
    if sample.temperature_limit_c is not None:
        heat.append((f" of {sample.temperature_limit_c:.0f}", "label"))
    fan = [units.percent(sample.fan_fraction)] if sample.fan_fraction is not None else []
    fan += [f"{sample.fan_rpm} rpm"] if sample.fan_rpm is not None else []
    return [
        ("power", [*power, *([(", ", "dim"), *mean] if mean else [])]),
        ("power limit", _text(f"set to {limit:.0f} W, {usual:.0f} W by default", "warn") if lowered else []),
        ("energy", _energy(sample)),
        ("temperature", heat if sample.temperature_c is not None else []),
        ("hotspot", _text(celsius(sample.hotspot_c)) if sample.hotspot_c is not None else []),
        ("memory heat", memory),
        ("fan", _text(", ".join(fan))),
        ("held now", held_now(sample, 60, "by ") or _text("by nothing", "dim")),
    ]


def _energy(sample: GpuSample) -> Line:
    if sample.energy_j is None:
        return []
    source = "power summed up" if sample.energy_source == "power" else "its own counter"
    return [(f"{sample.energy_j / 3600:.1f} Wh", "text"), (f", {source}", "dim")]


def _link(sample: GpuSample) -> list[Pair]:
    rates: Line = []
    if sample.pcie_received_bytes_s is not None or sample.pcie_sent_bytes_s is not None:
        rates = both_ways(sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s)
        source = SOURCES.get(sample.pcie_source or "", "every byte" if sample.pcie_source else "")
        rates += [(f", {source}", "dim")] if source else []
    most = link_bytes_s(sample.pcie_generation_max, sample.pcie_width_max)
    can = f"gen{sample.pcie_generation_max} x{sample.pcie_width_max}, {most / 1e9:.1f} GB/s" if most else ""
    replays = sample.pcie_replays_total
    return [
        ("PCIe", rates),
        ("PCIe link", link(sample)),
        ("link at most", _text(can, "warn" if is_narrowed(sample) else "text")),
        (
            "sent again",
            _text(f"{replays} packets", "warn" if replays else "text") if replays is not None else [],
        ),
        ("NVLink", nvlink(sample)[1:]),
        ("NVLinks up", _text(str(sample.nvlink_links)) if sample.nvlink_links is not None else []),
    ]


def _state(sample: GpuSample) -> list[Pair]:
    known = (sample.ecc_corrected_total, sample.ecc_uncorrected_total)
    errors: Line = []
    if any(count is not None for count in known):
        words = [
            f"{units.count(count)} {name}" for count, name in zip(known, ("corrected", "not"), strict=True)
        ]
        errors = _text(", ".join(words), "bad" if sample.ecc_uncorrected_total else "text")
    rows = sample.remapped_rows_total
    well = "well, as far as it tells" if sample.health == [] else ""
    return [
        ("memory errors", errors),
        ("rows remapped", _text(str(rows), "warn" if rows else "text") if rows is not None else []),
        ("health", _text(well, "good")),
        ("P-state", _text(f"P{sample.performance_state}") if sample.performance_state is not None else []),
        ("driver", _text(foreign(sample.driver, 30) if sample.driver else "")),
        ("bus", _text(foreign(sample.bus, 20) if sample.bus else "")),
        ("device", _text(foreign(sample.pci_id, 12) if sample.pci_id else "")),
        ("split", _text("into MIG instances") if sample.mig else []),
    ]


def reasons_over_time(store: Store, sample: GpuSample, room: int) -> list[Line]:
    """The strip of all reasons together, and one of each that held; those that did not in one line."""
    held = store.held.get(sample.gpu)
    if held is None or not held.reasons:
        return []
    cells = strip_cells(room - NAME - 8)
    if not cells:
        return []
    lines: list[Line] = [
        _row("held down", "", strip(store, sample, cells), mean_over(held.series(), WINDOW_S, store.now))
    ]
    never: list[str] = []
    for reason, series in held.reasons.items():
        share = mean_over(series, WINDOW_S, store.now)
        if share is None:
            continue
        if share < TRACE:
            never.append(foreign(reason, 30))
            continue
        kind = kind_of(reason)
        role = "dim" if kind == "chosen" else "warn" if kind == "power" else "bad"
        letter = "chosen" if kind == "chosen" else letter_of(reason)
        lines.append(_row(foreign(reason, 40), letter, of_reason(series, cells, store.now, role), share))
    lines.append([(" " * NAME, "text"), *ends([("-5 min", "dim")], [("now", "dim")], cells)])
    if never:
        lines.append([(pad("never", NAME), "label"), (cut(", ".join(never), room - NAME), "label")])
    return lines


def _row(name: str, letter: str, drawn: Line, share: float | None) -> Line:
    shown = f"{cut(name, NAME - len(letter) - 2)}{f' {letter}' if letter else ''}"
    return [(pad(shown, NAME), "label"), *drawn, (f" {units.percent(share):>6}", "text")]
