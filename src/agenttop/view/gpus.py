"""The figures of one GPU in words, the same on every screen and in every line."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.model.link import link_share
from agenttop.model.throttle import kind_of
from agenttop.view.simulated import is_simulated
from agenttop.view.spans import Line, cut, foreign

GIB = 1024**3

HOT_C = 83.0
"""From about here GeForce cards begin to slow down; taken where the device does not tell its own limit."""

NEAR_C = 4.0
"""So few degrees below its limit a device is called hot."""

BUSY_LINK = 0.8
"""From this share on a link may well be the limit."""

SOURCES = {"gpm": "driver's mean", "sample": "20 ms of each second", "bus": "device's mean"}
"""Of PCIe rates that are not counted byte by byte."""


def label(sample: GpuSample) -> str:
    """`GPU0`, `SIM0`; `└1` for a MIG instance."""
    if sample.parent is not None:
        return f" └{sample.mig_instance if sample.mig_instance is not None else sample.index}"
    return f"{'SIM' if is_simulated(sample) else 'GPU'}{sample.index}"


def short_name(sample: GpuSample) -> str:
    """The name without its maker and brand; of a MIG instance its profile."""
    name = foreign(sample.name, 60)
    if sample.parent is not None and "MIG " in name:
        return name[name.index("MIG ") :]
    for brand in ("NVIDIA ", "GeForce ", "AMD ", "Radeon ", "Instinct ", "Intel ", "Intel(R) ", "Arc(TM) "):
        name = name.removeprefix(brand)
    return cut(name, 40)


def state_word(sample: GpuSample) -> Line:
    """A word where the figures are not those of a GPU at work: ` ASLEEP `, ` LOST `, ` LATE 12 s `."""
    if sample.state == "ok":
        return []
    age = f" {units.seconds(sample.age_s)}" if sample.age_s is not None else ""
    role = "badge" if sample.state == "asleep" else "alarm"
    return [(f" {foreign(sample.state, 12).upper()}{age} ", role)]


def is_silent(sample: GpuSample) -> bool:
    """It sleeps or is lost: there are no figures of it, but a reason."""
    return sample.state in ("asleep", "lost") and sample.util_fraction is None and sample.power_w is None


def health_words(sample: GpuSample, room: int = 60) -> Line:
    """What is wrong with the device; nothing where it is well, or does not tell."""
    if not sample.health:
        return []
    return [("! ", "bad"), (cut("; ".join(foreign(each, 60) for each in sample.health), room - 2), "bad")]


def margin_c(sample: GpuSample) -> float | None:
    """Degrees left until the device lowers its clocks, as it says itself or by its limit."""
    if sample.temperature_margin_c is not None:
        return sample.temperature_margin_c
    if sample.temperature_limit_c is None or sample.temperature_c is None:
        return None
    return sample.temperature_limit_c - sample.temperature_c


def heat_role(sample: GpuSample) -> str:
    """Of the temperature: by the device's own limit where it tells it."""
    if any(kind_of(reason) == "thermal" for reason in sample.throttle or ()):
        return "bad"
    margin = margin_c(sample)
    if margin is not None:
        return "warn" if margin <= NEAR_C else "text"
    return "warn" if sample.temperature_c is not None and sample.temperature_c >= HOT_C else "text"


def celsius(value: float | None) -> str:
    """`62 °C`."""
    return units.MISSING if value is None else f"{value:.0f} °C"


def hot(sample: GpuSample, *, margin: bool = False) -> Line:
    """`62 °C`, with `margin` also `, 21 below limit`."""
    line: Line = [(celsius(sample.temperature_c), heat_role(sample))]
    left = margin_c(sample)
    if margin and left is not None and sample.temperature_c is not None:
        words = f", {left:.0f} below limit" if left > 0 else ", at its limit"
        line.append((words, "label" if left > NEAR_C else "warn"))
    return line


def clock(sample: GpuSample) -> Line:
    """`SM 2610 of 2850 MHz`."""
    if sample.sm_clock_mhz is None:
        return []
    most = f" of {sample.sm_clock_max_mhz}" if sample.sm_clock_max_mhz else ""
    name = "SM " if sample.vendor.upper() == "NVIDIA" else "clock "
    return [(name, "label"), (f"{sample.sm_clock_mhz}", "text"), (f"{most} MHz", "label")]


def watts(sample: GpuSample, *, limit: bool = True) -> str:
    """`486 / 575 W`."""
    if sample.power_w is None:
        return f"{units.MISSING} W"
    most = f" / {sample.power_limit_w:.0f}" if limit and sample.power_limit_w is not None else ""
    return f"{sample.power_w:.0f}{most} W"


def watts_of(sample: GpuSample) -> Line:
    """What the power is an average over and of what, where that is told and worth a word."""
    words = []
    if sample.power_window_s is not None and sample.power_w is not None:
        window = sample.power_window_s
        words.append("this instant" if window == 0 else f"mean of {window:g} s")
    if sample.power_scope not in (None, "board"):
        words.append(f"of the {foreign(str(sample.power_scope), 20)}")
    return [(", ".join(words), "dim")] if words else []


def memory_name(sample: GpuSample) -> str:
    """VRAM; `mem` where it is not that alone."""
    return "VRAM" if sample.memory_kind in (None, "dedicated") else "mem"


def memory_share(sample: GpuSample) -> float | None:
    """Used, of all there is."""
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    return used / total if used is not None and total else None


def memory_kind(sample: GpuSample, *, brief: bool = False) -> Line:
    """What the memory is, where it is not the card's own: `of RAM`, or both parts of a pool."""
    if sample.memory_kind == "unified":
        return [("of RAM", "label")]
    if sample.memory_kind != "vram+gtt":
        return []
    parts: Line = []
    for name, used, total in (
        ("VRAM", sample.mem_vram_used_bytes, sample.mem_vram_total_bytes),
        ("GTT", sample.mem_gtt_used_bytes, sample.mem_gtt_total_bytes),
    ):
        if used is not None:
            of = f"/{total / GIB:.0f}" if total and not brief else ""
            amount = f"{used / GIB:.0f}" if brief else f"{used / GIB:.1f}{of}"
            parts += [(f"{' + ' if parts else ''}{name} ", "label"), (amount, "text")]
    return parts


def util(sample: GpuSample) -> str:
    """`97 %`, `≥40 %` where the driver tells only of processes that may be looked into."""
    known = sample.visible_only and sample.util_fraction is not None
    return f"{'≥' if known else ''}{units.percent(sample.util_fraction)}"


def memory_used(sample: GpuSample) -> Line:
    """`24.1 / 31.8 GiB`."""
    line = of_gib(sample.mem_used_bytes, sample.mem_total_bytes)
    known = sample.visible_only and sample.mem_used_bytes is not None
    return [("≥", "strong"), *line] if known else line


def of_gib(used: float | None, total: float | None) -> Line:
    """`11.2 / 64.0 GiB`."""
    if used is None:
        return [(units.MISSING, "dim")]
    if total is None:
        return [(units.size(used), "strong")]
    digits = 0 if total >= 99.5 * GIB else 1
    return [(f"{used / GIB:.{digits}f}", "strong"), (f" / {total / GIB:.{digits}f} GiB", "label")]


def reserved(sample: GpuSample) -> Line:
    """What the driver holds for itself, besides what is used."""
    if not sample.mem_reserved_bytes:
        return []
    return [("+ ", "label"), (units.size(sample.mem_reserved_bytes), "text"), (" reserved", "label")]


def is_narrowed(sample: GpuSample) -> bool:
    """The link has fewer lanes than it could: a wrong slot, a riser, dirt."""
    width, most = sample.pcie_width, sample.pcie_width_max
    return width is not None and most is not None and width < most


def link_words(sample: GpuSample) -> str:
    """`gen5 x16`; `gen4 x8 of x16` where lanes are missing."""
    if sample.pcie_generation is None or sample.pcie_width is None:
        return ""
    of = f" of x{sample.pcie_width_max}" if is_narrowed(sample) else ""
    return f"gen{sample.pcie_generation} x{sample.pcie_width}{of}"


def link_most(sample: GpuSample) -> str:
    """`gen5 at most`, where the link runs slower now, as it does when it has little to do."""
    now, most = sample.pcie_generation, sample.pcie_generation_max
    return f"gen{most} at most" if now is not None and most is not None and now < most else ""


def share_of_link(sample: GpuSample) -> float | None:
    """The busier direction as a share of what the link carries as it is now."""
    return link_share(
        sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s, sample.pcie_generation, sample.pcie_width
    )


def link(sample: GpuSample) -> Line:
    """`2 % of gen5 x16`."""
    words = link_words(sample)
    if not words:
        return []
    share = share_of_link(sample)
    role = "warn" if is_narrowed(sample) else "label"
    if share is None:
        return [(words, role)]
    return [
        (small_percent(share), "warn" if share >= BUSY_LINK else "strong"),
        (" of ", "label"),
        (words, role),
    ]


def small_percent(share: float) -> str:
    """As `percent`, but what is hardly anything is `<0.1 %` and not `0.0 %`."""
    return "<0.1 %" if 0 < share < 0.0005 else units.percent(share)


def reasons_now(sample: GpuSample) -> str:
    """`power cap, thermal (sw)`; empty where nothing holds it down, or nothing is told."""
    return ", ".join(foreign(reason, 30) for reason in sample.throttle or ())


def held_role(sample: GpuSample) -> str:
    """Of the reasons that hold it down now: heat and what hardware does is worse than a power limit."""
    kinds = {kind_of(reason) for reason in sample.throttle or ()}
    if kinds & {"thermal", "other"} or any("brake" in reason for reason in sample.throttle or ()):
        return "bad"
    return "warn" if "power" in kinds else "label"


def held_now(sample: GpuSample, room: int = 80, name: str = "held by ") -> Line:
    """`held by power cap`, in at most `room` cells; `–` where the device tells no reasons."""
    if sample.throttle is None:
        return [(name, "label"), (units.MISSING, "dim")]
    words = reasons_now(sample)
    if not words:
        return []
    if len(name) + len(words) > room:
        name = name.removeprefix("held ")
    return [(name, "label"), (cut(words, max(4, room - len(name))), held_role(sample))]


def activity(sample: GpuSample) -> list[Line]:
    """What the device's own meters tell of the work inside, one part each; none where it has none."""
    parts: list[Line] = []
    for name, share in (
        ("SM ", sample.sm_active_fraction),
        ("tensor ", sample.tensor_active_fraction),
        ("DRAM ", sample.dram_active_fraction),
        ("warps ", sample.sm_occupancy_fraction),
    ):
        if share is not None:
            parts.append([(name, "label"), (units.percent(share), "strong")])
    if sample.dram_read_bytes_s is not None or sample.dram_write_bytes_s is not None:
        floor = "≥" if sample.dram_is_floor else ""
        parts.append(
            [
                ("DRAM ", "label"),
                *_directions(sample.dram_read_bytes_s, sample.dram_write_bytes_s, floor),
                (" GB/s", "label"),
            ]
        )
    return parts


def _directions(into: float | None, out: float | None, floor: str) -> Line:
    line: Line = []
    for arrow, value in (("▾", into), (" ▴", out)):
        text = units.MISSING if value is None else f"{floor}{value / 1e9:.1f}"
        line += [(arrow, "dim"), (text, "text")]
    return line


def nvlink(sample: GpuSample) -> Line:
    """Both directions of all links together."""
    if sample.nvlink_received_bytes_s is None and sample.nvlink_sent_bytes_s is None:
        links = sample.nvlink_links
        return [] if not links else [("NVLink ", "label"), (f"{links} up", "text")]
    return [
        ("NVLink ", "label"),
        *_directions(sample.nvlink_received_bytes_s, sample.nvlink_sent_bytes_s, ""),
        (" GB/s", "label"),
    ]
