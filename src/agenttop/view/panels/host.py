"""CPU, memory, disks and network of the host."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import HostSample
from agenttop.view.glyphs import EIGHTHS_UP, bar, heat, spark, trend_cells
from agenttop.view.spans import Line, spread
from agenttop.view.store import Store

GIB = 1024**3


def host(store: Store, width: int, height: int) -> list[Line]:
    """As many lines as fit, the most telling first. Bars are worse the fuller they are."""
    sample = store.host
    if sample is None:
        return [[("host   ", "label"), ("waiting for the first sample", "dim")]]
    if height == 1:
        return [one_line(sample, width)]
    gauge = max(6, min(24, width - 39))
    lines = [
        _cpu(store, sample, width, gauge),
        _ram(sample, width, gauge),
        spread([_swap(sample), _pressure(sample)], width, 3),
        spread([_disk(sample), _net(sample)], width, 3),
    ]
    cores = _cores(sample, width)
    if cores:
        lines.insert(1 if height >= 5 else 4, cores)
    return lines[:height]


def one_line(sample: HostSample, width: int) -> Line:
    """CPU and memory in one line."""
    cpu, ram, total = sample.cpu_fraction, sample.ram_used_bytes, sample.ram_total_bytes
    return spread(
        [
            [("CPU  ", "label"), *bar(cpu, 6, heat(cpu)), (f" {units.percent(cpu)}", "strong")],
            [("max core ", "label"), (units.percent(sample.cpu_max_core_fraction), "text")],
            [
                ("RAM ", "label"),
                *bar(_share(ram, total), 6, heat(_share(ram, total))),
                (" ", "text"),
                *of_gib(ram, total),
            ],
            _swap(sample),
            [("load ", "label"), (_plain(sample.load_1m), "text")],
        ],
        width,
    )


def of_gib(used: float | None, total: float | None) -> Line:
    """`11.2 / 64.0 GiB`."""
    if used is None:
        return [(units.MISSING, "dim")]
    if total is None:
        return [(units.size(used), "strong")]
    digits = 0 if total >= 99.5 * GIB else 1
    return [(f"{used / GIB:.{digits}f}", "strong"), (f" / {total / GIB:.{digits}f} GiB", "label")]


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _plain(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.1f}"


def _cpu(store: Store, sample: HostSample, width: int, gauge: int) -> Line:
    cpu = sample.cpu_fraction
    parts: list[Line] = [
        [("CPU  ", "label"), *bar(cpu, gauge, heat(cpu)), (f" {units.percent(cpu):>5}", "strong")],
        [("max core ", "label"), (f"{units.percent(sample.cpu_max_core_fraction):>5}", "text")],
        [("load ", "label"), (_plain(sample.load_1m), "text")],
    ]
    if sample.cpu_limit_cores is not None:
        parts.insert(1, [("limit ", "label"), (f"{sample.cpu_limit_cores:g} cores", "text")])
    room = width - sum(len(text) for part in parts for text, _ in part) - 8
    if room >= 12:
        cells = trend_cells(room - 2)
        parts.append([(spark(store.columns("host", "cpu_fraction", cells, 60 // cells), 1.0), "dim")])
    return spread(parts, width)


def _ram(sample: HostSample, width: int, gauge: int) -> Line:
    used, total = sample.ram_used_bytes, sample.ram_total_bytes
    parts: list[Line] = [
        [
            ("RAM  ", "label"),
            *bar(_share(used, total), gauge, heat(_share(used, total))),
            (" ", "text"),
            *of_gib(used, total),
        ],
        [("cached ", "label"), (units.size(sample.ram_cached_bytes), "text")],
    ]
    if sample.ram_limit_bytes is not None:
        limited = of_gib(sample.ram_limited_used_bytes, sample.ram_limit_bytes)
        parts.insert(1, [("limit ", "label"), *limited])
    return spread(parts, width)


def _cores(sample: HostSample, width: int) -> Line:
    """One column per logical core; more cores than columns are drawn as the busiest of each group."""
    shares = sample.cpu_per_core
    if not shares or width < 20:
        return []
    room = width - 5
    group = -(-len(shares) // room)
    columns = [max(shares[start : start + group]) for start in range(0, len(shares), group)]
    text = "".join(EIGHTHS_UP[1 + min(7, int(max(0.0, share) * 7.999))] for share in columns)
    note = f"  {len(shares)} cores" + (f", {group} a column" if group > 1 else "")
    return [("core ", "label"), (text, "text"), (note, "dim")]


def _swap(sample: HostSample) -> Line:
    used = sample.swap_used_bytes
    moving = (sample.swap_in_bytes_s or 0) + (sample.swap_out_bytes_s or 0)
    line: Line = [
        ("swap ", "label"),
        (units.size(used), "warn" if moving > 1e6 else "text" if used else "dim"),
    ]
    if moving > 1e6:
        line.append((f" moving {units.byte_rate(moving)}", "warn"))
    return line


def _pressure(sample: HostSample) -> Line:
    figures = (
        ("cpu", sample.pressure_cpu_fraction),
        ("mem", sample.pressure_memory_fraction),
        ("io", sample.pressure_io_fraction),
    )
    if all(value is None for _, value in figures):
        return []
    line: Line = [("waits ", "label")]
    for name, value in figures:
        role = "warn" if value is not None and value > 0.1 else "text"
        line += [(f"{name} ", "dim"), (f"{units.percent(value)} ", role)]
    return line


def flow(name: str, into: float | None, out: float | None) -> Line:
    """Both ways in one unit; it changes to GB/s only where a link is that fast."""
    fast = max(into or 0.0, out or 0.0) >= 999.5e6
    divisor, unit = (1e9, "GB/s") if fast else (1e6, "MB/s")
    line: Line = [(name, "label")]
    for arrow, value in (("▾", into), ("▴", out)):
        line += [(f" {arrow}", "dim"), (units.MISSING if value is None else f"{value / divisor:.1f}", "text")]
    return [*line, (f" {unit}", "label")]


def _disk(sample: HostSample) -> Line:
    return flow("disk", sample.disk_read_bytes_s, sample.disk_write_bytes_s)


def _net(sample: HostSample) -> Line:
    return flow("net", sample.net_received_bytes_s, sample.net_sent_bytes_s)
