"""One GPU in full: on six to nine lines, the most telling kept where there are fewer."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.view.glyphs import TREND_S, bar, heat, spark, stacked, trend_cells
from agenttop.view.gpus import (
    SOURCES,
    activity,
    celsius,
    clock,
    health_words,
    held_now,
    hot,
    label,
    link,
    link_most,
    memory_kind,
    memory_name,
    memory_share,
    memory_used,
    nvlink,
    reserved,
    state_word,
    util,
    watts,
    watts_of,
)
from agenttop.view.panels.host import both_ways, flow
from agenttop.view.panels.strip import legend, strip, strip_cells
from agenttop.view.spans import Line, spread
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

LINES = 7
NAME = 6
"""Cells of the name at the beginning of a line."""


def lines_wanted(sample: GpuSample) -> int:
    """Lines that have something to say."""
    return LINES + bool(activity(sample)) + bool(sample.health) - (not _has_link(sample))


def full(store: Store, sample: GpuSample, width: int, height: int, *, named: bool = False) -> list[Line]:
    """As many lines as there are for it; `named`: the first says which one it is."""
    gauge = max(6, min(20, width - 39))
    cool = height >= lines_wanted(sample)
    choices: list[tuple[int, Callable[[], list[Line]]]] = [
        (0, lambda: _util(sample, gauge, cool, label(sample) if named else "util")),
        (1, lambda: [health_words(sample, width)]),
        (2, lambda: _memory(sample, gauge, width)),
        (3, lambda: _power(sample, gauge, width)),
        (7, lambda: _heat(sample) if cool else []),
        (6, lambda: _inside(sample)),
        (5, lambda: _link(sample)),
        (4, lambda: _held(store, sample, width)),
        (8, lambda: _trend(store, sample, width)),
    ]
    drawn = [(rank, parts) for rank, draw in choices if any(parts := draw())]
    kept = sorted(rank for rank, _ in drawn)[:height]
    return [spread(parts, width) for rank, parts in drawn if rank in kept]


def brief(store: Store, sample: GpuSample, width: int) -> Line:
    """What has held it down and what its link carries, on the second line of a small screen."""
    told = legend(store, sample)
    rates = both_ways(sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s)
    bus: list[Line] = [[("PCIe ", "label"), *rates], link(sample)] if _has_link(sample) else activity(sample)
    taken = sum(width_of(part) + 2 for part in (*told, *bus) if part)
    cells = strip_cells(max(10, min(30, width - 5 - taken)))
    return spread([[("held ", "label"), *strip(store, sample, cells)], *told, *bus], width)


def _util(sample: GpuSample, gauge: int, cool: bool, name: str) -> list[Line]:
    share = sample.util_fraction
    return [
        [
            (f"{name:<6}", "label" if name == "util" else "accent"),
            *bar(share, gauge, "good"),
            (f" {util(sample):>5}", "strong"),
        ],
        state_word(sample),
        clock(sample) if cool else hot(sample, margin=True),
        [] if cool or sample.mem_temperature_c is None else _also("mem ", sample.mem_temperature_c),
        [] if cool else clock(sample),
    ]


def _memory(sample: GpuSample, gauge: int, width: int) -> list[Line]:
    share = memory_share(sample)
    filled = bar(share, gauge, heat(share, 0.97, 0.995))
    total = sample.mem_total_bytes
    if total and sample.mem_gtt_used_bytes is not None and sample.mem_vram_used_bytes is not None:
        parts = ((sample.mem_vram_used_bytes, "█", "good"), (sample.mem_gtt_used_bytes, "▒", "decode"))
        filled = stacked(parts, total, gauge)
    bus = sample.mem_util_fraction
    used: Line = [
        (f"{memory_name(sample):<6}", "label"),
        *filled,
        (" ", "text"),
        *memory_used(sample),
    ]
    kind = memory_kind(sample)
    if width_of(used) + 2 + width_of(kind) > width:
        kind = memory_kind(sample, brief=True)
    meter: Line = [("bus ", "label"), (units.percent(bus), "text")] if bus is not None else []
    return [used, kind, meter, reserved(sample)]


def _power(sample: GpuSample, gauge: int, width: int) -> list[Line]:
    power, limit = sample.power_w, sample.power_limit_w
    drawn = power / limit if power is not None and limit else None
    first: Line = [
        ("power ", "label"),
        *bar(drawn, gauge, heat(drawn, 0.97, 1.01)),
        (f" {watts(sample)}", "strong"),
    ]
    return [first, held_now(sample, width - width_of(first) - 2), watts_of(sample)]


def _heat(sample: GpuSample) -> list[Line]:
    parts = [[("heat  ", "label"), *hot(sample, margin=True)]]
    if sample.mem_temperature_c is not None:
        parts.append(_also("mem ", sample.mem_temperature_c, sample.mem_temperature_limit_c))
    if sample.hotspot_c is not None:
        parts.append(_also("hotspot ", sample.hotspot_c))
    if sample.fan_fraction is not None:
        parts.append([("fan ", "label"), (units.percent(sample.fan_fraction), "text")])
    return parts


def _also(name: str, value: float, limit: float | None = None) -> Line:
    near = limit is not None and limit - value <= 4
    return [(name, "label"), (celsius(value), "warn" if near else "text")]


def _inside(sample: GpuSample) -> list[Line]:
    parts = activity(sample)
    return [[("work  ", "label"), *parts[0]], *parts[1:]] if parts else []


def _has_link(sample: GpuSample) -> bool:
    return any(
        value is not None
        for value in (sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s, sample.pcie_generation)
    )


def _link(sample: GpuSample) -> list[Line]:
    if not _has_link(sample):
        return [[], nvlink(sample)]
    told = sample.pcie_received_bytes_s is not None or sample.pcie_sent_bytes_s is not None
    rates = flow("PCIe ", sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s)
    return [
        rates if told else [("PCIe  ", "label"), (units.MISSING, "dim")],
        link(sample),
        nvlink(sample),
        [(link_most(sample), "dim")],
        [(SOURCES.get(sample.pcie_source or "", ""), "dim")],
    ]


def _held(store: Store, sample: GpuSample, width: int) -> list[Line]:
    told = legend(store, sample)
    cells = strip_cells(max(10, width - NAME - sum(width_of(part) + 2 for part in told)))
    return [[("held  ", "label"), *strip(store, sample, cells)], *told]


def _trend(store: Store, sample: GpuSample, width: int) -> list[Line]:
    if store.series(sample.gpu, "util_fraction") is None:
        return []
    cells = trend_cells(width - 20)
    columns = store.columns(sample.gpu, "util_fraction", cells, TREND_S // cells)
    return [[("trend ", "label"), (spark(columns, 1.0), "good"), (f"  util, {TREND_S} s", "dim")]]
