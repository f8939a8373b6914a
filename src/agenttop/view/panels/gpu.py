"""The GPUs, or why there is none to see."""

from __future__ import annotations

from dataclasses import dataclass

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.view.glyphs import TREND_S, bar, heat, spark, trend_cells
from agenttop.view.look import Look
from agenttop.view.panels.host import flow, of_gib
from agenttop.view.simulated import gpus, is_simulated
from agenttop.view.spans import Line, cut, foreign, spread
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

HOT_C = 83.0
"""From about here GeForce cards begin to slow down."""


MOST_LINES_EACH = 3
"""Of a card, where there are several."""


def gpu(store: Store, width: int, height: int, look: Look | None = None) -> list[Line]:
    """One GPU in full where there is one and room for it; of several, each on as many lines as there are
    for it, and those that have none in one line together."""
    samples = gpus(store, look)
    if not samples:
        return [no_gpu(store, width)]
    if len(samples) == 1 and height >= 3:
        return _full(store, samples[0], width)[:height]
    each = min(MOST_LINES_EACH, height // len(samples))
    if each >= 2:
        return [line for sample in samples for line in _block(sample, width, each)]
    if len(samples) <= height:
        return _aligned(samples, width)
    shown = samples[: max(0, height - 1)]
    return [*_aligned(shown, width), _rest(samples[len(shown) :], width)]


def lines_wanted(store: Store, look: Look | None = None) -> int:
    """Lines in which nothing that matters of any card is left out: six, eight for more than three cards."""
    return 6 if len(gpus(store, look)) <= 3 else 8


def title(store: Store, look: Look | None = None) -> Line:
    """The name of a single GPU, or how many there are of which; and that they are simulated."""
    samples = gpus(store, look)
    invented: Line = [(" SIMULATED ", "badge")] if samples and is_simulated(samples[0]) else []
    if len(samples) != 1:
        line: Line = [("GPUs" if samples else "GPU", "accent")]
        names = {sample.name for sample in samples}
        if len(names) == 1:
            line.append((f" {len(samples)} × {_short(samples[0])}", "text"))
        return [*line, *([(" ", "text"), *invented] if invented else [])]
    name = foreign(samples[0].name, 40)
    line = [(f"GPU {samples[0].index}", "accent"), (f" {name} ", "text"), *invented]
    return line if invented else [line[0], (f" {name}", "text")]


def no_gpu(store: Store, width: int) -> Line:
    """`no GPU:` and the reason."""
    missing = store.missing.get("gpu")
    why = foreign(missing.why or "", 160) if missing else ""
    if not why:
        why = "none reported yet" if store.host is None else "none reported"
    why = why.removeprefix("no GPU: ")
    return [("GPU  ", "label"), (cut(f"no GPU: {why}", max(0, width - 5)), "dim")]


def _state(sample: GpuSample) -> Line:
    if sample.state == "ok":
        return []
    return [(f" {sample.state.upper()} ", "alarm" if sample.state == "lost" else "badge")]


def _throttle(sample: GpuSample) -> Line:
    if sample.throttle is None:
        return [(units.MISSING, "dim")]
    if not sample.throttle:
        return [("by nothing", "dim")]
    return [("by ", "label"), (", ".join(foreign(reason, 30) for reason in sample.throttle), "warn")]


def _label(sample: GpuSample) -> str:
    return f"{'SIM' if is_simulated(sample) else 'GPU'}{sample.index}"


def _short(sample: GpuSample) -> str:
    """The name without its maker and brand."""
    return foreign(sample.name, 40).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _held(sample: GpuSample) -> Line:
    return [("held ", "label"), *_throttle(sample)]


def _block(sample: GpuSample, width: int, lines: int) -> list[Line]:
    """A card on two or three lines: util, VRAM, temperature, power, held by what, and its name."""
    gauge = max(6, min(16, width - 40))
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    share = used / total if used is not None and total else None
    memory: Line = [
        ("VRAM ", "label"),
        *bar(share, gauge, heat(share, 0.97, 0.995)),
        (" ", "text"),
        *of_gib(used, total),
    ]
    power: Line = [("power ", "label"), (_watts(sample), "strong")]
    first: list[Line] = [
        [
            (f"{_label(sample):<5}", "accent"),
            *bar(sample.util_fraction, gauge, "good"),
            (f" {units.percent(sample.util_fraction):>5}", "strong"),
        ],
        _state(sample),
        _hot(sample),
    ]
    name: Line = [(_short(sample), "dim")]
    if lines == 2:
        watts: Line = [(_watts(sample), "warn" if sample.throttle else "text")]
        return [
            spread([*first, watts, name], width),
            spread([memory, _held(sample) if sample.throttle else []], width),
        ]
    return [
        spread([*first, name], width),
        spread([memory, [("bus ", "label"), (units.percent(sample.mem_util_fraction), "text")]], width),
        [("     ", "text"), *spread([power, _held(sample), _clock(sample)], max(0, width - 5))],
    ]


def _hot(sample: GpuSample) -> Line:
    hot = sample.temperature_c
    return [(_temperature(hot), "warn" if hot is not None and hot >= HOT_C else "text")]


def _clock(sample: GpuSample) -> Line:
    return [] if sample.sm_clock_mhz is None else [("SM ", "label"), (f"{sample.sm_clock_mhz} MHz", "text")]


@dataclass(frozen=True, slots=True)
class _Style:
    """How much of a card stands on its one line."""

    gauge: int
    """Cells of each bar."""
    terse: bool = False
    """Without what can be told from the rest: the name of a figure, the limit, the reason."""


STYLES = (_Style(6), _Style(4), _Style(0), _Style(0, terse=True))
"""The fullest first; the first in which all cards fit is taken for all of them."""


def _aligned(samples: list[GpuSample], width: int) -> list[Line]:
    """A line for each, all in the same style."""
    for style in STYLES:
        parts = [_one_line(sample, style) for sample in samples]
        if all(sum(width_of(part) + 2 for part in line if part) - 2 <= width for line in parts):
            break
    named = [[*line, [(_short(sample), "dim")]] for line, sample in zip(parts, samples, strict=True)]
    return [spread(line, width) for line in named]


def _one_line(sample: GpuSample, style: _Style) -> list[Line]:
    """Parts, the most important first."""
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    share = used / total if used is not None and total else None
    util, memory = sample.util_fraction, of_gib(used, total)
    filled = bar(share, style.gauge, heat(share, 0.97, 0.995)) if style.gauge else []
    watts = _watts(sample).split(" / ")[0].removesuffix(" W") + " W" if style.terse else _watts(sample)
    held: Line = []
    if sample.throttle:
        held = [("held", "warn")] if style.terse else _throttle(sample)
    return [
        [
            (f"{_label(sample):<5}", "label"),
            *(bar(util, style.gauge, "good") if style.gauge else []),
            (f"{'' if style.terse else ' '}{units.percent(util):>5}", "strong"),
        ],
        _state(sample),
        memory if style.terse else [("VRAM ", "label"), *filled, (" " if filled else "", "text"), *memory],
        _hot(sample),
        [(watts, "warn" if sample.throttle else "text")],
        held,
    ]


def _rest(samples: list[GpuSample], width: int) -> Line:
    """Cards without a line of their own, summed up so that nothing grave is out of sight."""
    utils = [sample.util_fraction for sample in samples if sample.util_fraction is not None]
    hot = max((sample.temperature_c for sample in samples if sample.temperature_c is not None), default=None)
    watts = [sample.power_w for sample in samples if sample.power_w is not None]
    totals = [sample.mem_total_bytes for sample in samples if sample.mem_total_bytes is not None]
    used = [sample.mem_used_bytes for sample in samples if sample.mem_used_bytes is not None]
    held = sum(bool(sample.throttle) for sample in samples)
    bad = sum(sample.state != "ok" for sample in samples)
    parts: list[Line] = [
        [("GPU  ", "label"), (f"{len(samples)} more", "text")],
        [(f"{bad} NOT OK", "alarm")] if bad else [],
        [(f"{held} held down", "warn")] if held else [],
    ]
    if utils:
        parts.append([("util ", "label"), (_range(min(utils), max(utils)), "strong")])
    if hot is not None:
        parts.append([("to ", "label"), (_temperature(hot), "warn" if hot >= HOT_C else "text")])
    if len(used) == len(totals) == len(samples):
        parts.append([("VRAM ", "label"), *of_gib(sum(used), sum(totals))])
    if len(watts) == len(samples):
        parts.append([(f"{sum(watts):.0f} W", "text")])
    return spread(parts, width)


def _range(low: float, high: float) -> str:
    least, most = units.percent(low), units.percent(high)
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def _full(store: Store, sample: GpuSample, width: int) -> list[Line]:
    gauge = max(6, min(24, width - 33))
    cells = trend_cells(width - 20)
    held: list[Line] = [
        [("held  ", "label"), *_throttle(sample)],
        _share("power", sample.throttle_power_fraction),
        _share("thermal", sample.throttle_thermal_fraction),
    ]
    link = flow("PCIe ", sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s)
    return [
        spread(_util(sample, gauge), width),
        spread(_memory(sample, gauge), width),
        spread(_power(sample, gauge), width),
        spread([link, _link(sample)], width),
        spread(held, width),
        [
            ("trend ", "label"),
            (spark(store.columns(sample.gpu, "util_fraction", cells, TREND_S // cells), 1.0), "good"),
            (f"  util, {TREND_S} s", "dim"),
        ],
    ]


def _util(sample: GpuSample, gauge: int) -> list[Line]:
    util, hot, memory = sample.util_fraction, sample.temperature_c, sample.mem_temperature_c
    parts: list[Line] = [
        [("util  ", "label"), *bar(util, gauge, "good"), (f" {units.percent(util):>5}", "strong")],
        _state(sample),
        [(_temperature(hot), "warn" if hot is not None and hot >= HOT_C else "text")],
    ]
    if memory is not None:
        parts.append([("mem ", "label"), (_temperature(memory), "text")])
    return parts


def _memory(sample: GpuSample, gauge: int) -> list[Line]:
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    share = used / total if used is not None and total else None
    filled = bar(share, gauge, heat(share, 0.97, 0.995))
    return [
        [("VRAM  ", "label"), *filled, (" ", "text"), *of_gib(used, total)],
        [("bus ", "label"), (units.percent(sample.mem_util_fraction), "text")],
    ]


def _power(sample: GpuSample, gauge: int) -> list[Line]:
    power, limit = sample.power_w, sample.power_limit_w
    drawn = power / limit if power is not None and limit else None
    clock = units.MISSING if sample.sm_clock_mhz is None else f"{sample.sm_clock_mhz} MHz"
    filled = bar(drawn, gauge, heat(drawn, 0.97, 1.01))
    return [
        [("power ", "label"), *filled, (f" {_watts(sample)}", "strong")],
        [("SM ", "label"), (clock, "text")],
    ]


def _share(name: str, value: float | None) -> Line:
    return (
        []
        if value is None
        else [(units.percent(value), "warn" if value > 0.01 else "text"), (f" {name}", "label")]
    )


def _link(sample: GpuSample) -> Line:
    if sample.pcie_generation is None or sample.pcie_width is None:
        return []
    narrowed = sample.pcie_width_max is not None and sample.pcie_width < sample.pcie_width_max
    return [(f"gen{sample.pcie_generation} x{sample.pcie_width}", "warn" if narrowed else "label")]


def _temperature(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.0f} °C"


def _watts(sample: GpuSample) -> str:
    if sample.power_w is None:
        return f"{units.MISSING} W"
    limit = "" if sample.power_limit_w is None else f" / {sample.power_limit_w:.0f}"
    return f"{sample.power_w:.0f}{limit} W"
