"""The machine in lines of plain text to be pasted into a message: one for each GPU, one for the host."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import GpuSample, HostSample
from agenttop.model.throttle import kind_of
from agenttop.view.gpus import (
    GIB,
    activity,
    celsius,
    label,
    link_words,
    margin_c,
    memory_kind,
    memory_name,
    share_of_link,
    short_name,
    small_percent,
    util,
    watts,
)
from agenttop.view.held import shares_of
from agenttop.view.panels.missing import reason_of
from agenttop.view.simulated import in_order, is_simulated
from agenttop.view.spans import Line, foreign, plain
from agenttop.view.store import Store

GAP = "  "


def machine_lines(store: Store) -> list[str]:
    """A line for the host, and one for each GPU or why there is none."""
    lines = [host_line(store, store.host)] if store.host is not None else []
    lines += [gpu_line(store, sample) for sample in in_order(store.gpus.values())]
    if not store.gpus:
        missing = store.missing.get("gpu")
        why = foreign(missing.why, 160).removeprefix("no GPU: ") if missing and missing.why else "none seen"
        lines.append(f"no GPU: {why}")
    return lines


def gpu_line(store: Store, sample: GpuSample) -> str:
    """`GPU0 RTX 5090  97 % busy  VRAM 24.1/31.8 GiB  62 °C  486/575 W  held: power cap 12 %  PCIe in 1.2 out
    0.3 GB/s of gen5 x16`; what is not known is left out, and a GPU that tells nothing says why."""
    invented = " SIMULATED" if is_simulated(sample) else ""
    name = label(sample) if sample.parent is None else f"GPU{sample.index}, instance {sample.mig_instance}:"
    parts = [f"{name} {short_name(sample)}{invented}"]
    if sample.state != "ok":
        age = f" for {units.seconds(sample.age_s)}" if sample.state == "late" and sample.age_s else ""
        parts.append(f"{foreign(sample.state, 12).upper()}{age}")
        if sample.state != "late":
            return GAP.join([*parts, reason_of(store, sample)]).rstrip()
    if sample.util_fraction is not None:
        parts.append(f"{util(sample)} busy")
    parts += [_memory(sample), _heat(sample)]
    if sample.power_w is not None:
        parts.append(watts(sample).replace(" / ", "/"))
    parts += [_held(sample), _clock(sample), _link(sample)]
    inside = ", ".join(_text(part) for part in activity(sample))
    inside = inside.replace("▾", "read ").replace("▴", "written ")
    parts += [
        inside,
        f"not well: {'; '.join(foreign(each, 60) for each in sample.health)}" if sample.health else "",
    ]
    return GAP.join(part for part in parts if part)


def _text(line: Line) -> str:
    return plain(line).strip()


def _memory(sample: GpuSample) -> str:
    used, total = sample.mem_used_bytes, sample.mem_total_bytes
    if used is None:
        return ""
    floor = "≥" if sample.visible_only else ""
    of = f"/{total / GIB:.1f}" if total else ""
    kind = _text(memory_kind(sample))
    return f"{memory_name(sample)} {floor}{used / GIB:.1f}{of} GiB{f' ({kind})' if kind else ''}"


def _heat(sample: GpuSample) -> str:
    if sample.temperature_c is None:
        return ""
    margin = margin_c(sample)
    near = f" ({margin:.0f} below its limit)" if margin is not None and margin > 0 else ""
    return celsius(sample.temperature_c) + (near if margin is None or margin > 0 else " (at its limit)")


def _held(sample: GpuSample) -> str:
    """What holds it down, each with its share of the window where that is counted."""
    shares = shares_of(sample)
    if shares is None:
        return ""
    told = []
    for reason, share in sorted(shares.items(), key=lambda item: -item[1]):
        now = reason in (sample.throttle or ())
        if share < 0.005 and not now:
            continue
        counted = reason in sample.throttle_shares
        chosen = " (chosen)" if kind_of(reason) == "chosen" else ""
        told.append(f"{foreign(reason, 30)}{f' {units.percent(share)}' if counted else ''}{chosen}")
    return f"held: {', '.join(told)}" if told else "held: by nothing"


def _clock(sample: GpuSample) -> str:
    if sample.sm_clock_mhz is None:
        return ""
    most = f"/{sample.sm_clock_max_mhz}" if sample.sm_clock_max_mhz else ""
    return f"{sample.sm_clock_mhz}{most} MHz"


def _link(sample: GpuSample) -> str:
    into, out, words = sample.pcie_received_bytes_s, sample.pcie_sent_bytes_s, link_words(sample)
    if into is None and out is None:
        return f"PCIe {words}" if words else ""
    fast = max(into or 0.0, out or 0.0) >= 99.5e6
    divisor, unit = (1e9, "GB/s") if fast else (1e6, "MB/s")
    rates = " ".join(
        f"{name} {value / divisor:.1f}" for name, value in (("in", into), ("out", out)) if value is not None
    )
    share = share_of_link(sample)
    used = f", {small_percent(share)}" if share is not None else ""
    return f"PCIe {rates} {unit}{f' of {words}{used}' if words else ''}"


def host_line(store: Store, sample: HostSample) -> str:
    """`box1  CPU 6 % of 12 cores  RAM 11.2/64.0 GiB  limit 3.7 of 4 cores, 15.1/16.0 GiB`."""
    name = foreign(store.session.host, 30) if store.session is not None else "host"
    cores = f" of {len(sample.cpu_per_core)} cores" if sample.cpu_per_core else ""
    parts = [name, f"CPU {units.percent(sample.cpu_fraction)}{cores}"]
    if sample.ram_used_bytes is not None and sample.ram_total_bytes is not None:
        parts.append(f"RAM {_pair(sample.ram_used_bytes, sample.ram_total_bytes)}")
    parts.append(_limits(sample))
    if sample.ram_mapped_bytes is not None:
        parts.append(f"mapped files {units.size(sample.ram_mapped_bytes)}")
    moving = (sample.swap_in_bytes_s or 0.0) + (sample.swap_out_bytes_s or 0.0)
    if moving > 1e6:
        parts.append(f"swap moves {units.byte_rate(moving)}")
    for words, share, least in (
        ("iowait", sample.iowait_fraction, 0.05),
        ("steal", sample.steal_fraction, 0.02),
        ("tasks wait for memory", sample.pressure_memory_fraction, 0.1),
    ):
        if share is not None and share >= least:
            parts.append(f"{words} {units.percent(share)}")
    if sample.cpu_power_w is not None:
        parts.append(f"CPU {sample.cpu_power_w:.0f} W")
    return GAP.join(part for part in parts if part)


def _pair(used: float, total: float) -> str:
    return f"{used / GIB:.1f}/{total / GIB:.1f} GiB"


def _limits(sample: HostSample) -> str:
    """Of a container: what is used of what is allowed."""
    told = []
    if sample.cpu_limit_cores is not None:
        used = f"{sample.cpu_limited_used_cores:.1f} of " if sample.cpu_limited_used_cores is not None else ""
        told.append(f"{used}{sample.cpu_limit_cores:g} cores")
    if sample.cpu_limit_throttled_fraction:
        told.append(f"stopped {units.percent(sample.cpu_limit_throttled_fraction)}")
    if sample.ram_limit_bytes is not None:
        if sample.ram_limited_used_bytes is not None:
            told.append(_pair(sample.ram_limited_used_bytes, sample.ram_limit_bytes))
        else:
            told.append(units.size(sample.ram_limit_bytes))
    return f"LIMIT {', '.join(told)}" if told else ""
