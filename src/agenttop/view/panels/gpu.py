"""The GPUs, or why there is none to see."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.view.glyphs import TREND_S, bar, heat, spark, trend_cells
from agenttop.view.look import Look
from agenttop.view.panels.host import flow, of_gib
from agenttop.view.simulated import gpus, is_simulated
from agenttop.view.spans import Line, cut, foreign, pad, spread
from agenttop.view.store import Store

HOT_C = 83.0
"""From about here GeForce cards begin to slow down."""


def gpu(store: Store, width: int, height: int, look: Look | None = None) -> list[Line]:
    """One GPU in full where there is one and room for it, else a line for each."""
    samples = gpus(store, look)
    if not samples:
        return [no_gpu(store, width)]
    if len(samples) == 1 and height >= 3:
        return _full(store, samples[0], width)[:height]
    lines = [_one_line(sample, width) for sample in samples[:height]]
    if len(samples) > height:
        lines[-1] = [("GPU  ", "label"), (f"and {len(samples) - height + 1} more", "dim")]
    return lines


def title(store: Store, look: Look | None = None) -> Line:
    """The name of a single GPU, or how many there are; and that they are simulated."""
    samples = gpus(store, look)
    invented: Line = [(" SIMULATED ", "badge")] if samples and is_simulated(samples[0]) else []
    if len(samples) != 1:
        return [("GPUs" if samples else "GPU", "accent"), *([(" ", "text"), *invented] if invented else [])]
    name = foreign(samples[0].name, 40)
    line: Line = [(f"GPU {samples[0].index}", "accent"), (f" {name} ", "text"), *invented]
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


def _one_line(sample: GpuSample, width: int) -> Line:
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    share = used / total if used is not None and total else None
    return spread(
        [
            [
                (f"{'SIM' if is_simulated(sample) else 'GPU'}{sample.index} ", "label"),
                (pad(foreign(sample.name, 40), 16 if width < 100 else 24), "text"),
            ],
            _state(sample),
            [*bar(sample.util_fraction, 6, "good"), (f" {units.percent(sample.util_fraction):>5}", "strong")],
            [
                ("VRAM ", "label"),
                *bar(share, 6, heat(share, 0.97, 0.995)),
                (" ", "text"),
                *of_gib(used, total),
            ],
            [(_temperature(sample.temperature_c), "text")],
            [(_watts(sample), "text")],
            [("held ", "label"), *_throttle(sample)] if sample.throttle else [],
        ],
        width,
    )


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
