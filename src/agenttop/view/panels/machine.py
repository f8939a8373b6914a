"""The machine: its GPUs one by one, the host, its memory, what it is made of, and who uses it."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import HostSample
from agenttop.view.derived import derived, lines_of
from agenttop.view.glyphs import bar, heat
from agenttop.view.gpus import of_gib
from agenttop.view.look import Look
from agenttop.view.panels.details import LABEL, Pair, grid, section
from agenttop.view.panels.gpu import no_gpu
from agenttop.view.panels.host import both_ways, composition, limits, memory_bar
from agenttop.view.panels.machine_gpu import gpu_block
from agenttop.view.panels.missing import of_machine
from agenttop.view.panels.processes import processes
from agenttop.view.rows import SILENT_STATES, engine_in_focus
from agenttop.view.simulated import gpus, notice
from agenttop.view.spans import Line, fit_at_most, foreign, pad, spread, wrap
from agenttop.view.store import Store

GIB = 1024**3


def machine(store: Store, room: int, look: Look | None = None) -> list[Line]:
    """All lines, for a screen that scrolls."""
    shown = gpus(store, look)
    lines: list[Line] = []
    for sample in shown:
        lines += [*([[]] if lines else []), *gpu_block(store, sample, room)]
    if not shown:
        lines.append(no_gpu(store, room))
    lines += _derived(store, room, look)
    real = notice(store, engine_in_focus(store, look)) is not None
    title = "Host, the real one, which simulates" if real else "Host"
    if store.host is not None:
        lines += section(title, _host(store.host, room))
        lines += section("Memory of the host", _memory(store, store.host, room))
    lines += section("Hardware", _hardware(store, room))
    lines += section("Processes", processes(store, room, look))
    lines += section("Not known, and why", of_machine(store, room))
    return [fit_at_most(line, room) for line in lines]


def _derived(store: Store, room: int, look: Look | None) -> list[Line]:
    """What follows for the engine in focus, with what it rests on."""
    engine = engine_in_focus(store, look)
    if engine is None or engine.state in (*SILENT_STATES, "loading"):
        return []
    lines: list[Line] = []
    before = ""
    seen = bool(gpus(store, look))
    for name, value, evidence, known in lines_of(derived(store, engine, look)):
        if not known and not seen:
            continue  # without a GPU there is nothing that could be told
        told = wrap(foreign(evidence, 300), room - LABEL - 20, "label") or [[]]
        if evidence == before:
            told = [[("by the same", "dim")]]
        before = evidence
        lines.append([(pad(name, LABEL), "label"), *_padded(value, 20), *told[0]])
        lines += [[(" " * (LABEL + 20), "text"), *line] for line in told[1:]]
    name = foreign(engine.name, 20)
    return section(f"Derived of {name} and its GPUs now", lines)


def _padded(value: Line, cells: int) -> Line:
    text = "".join(part for part, _ in value)
    return [*value, (" " * max(1, cells - len(text)), "text")]


def _host(sample: HostSample, room: int) -> list[Line]:
    lines = [spread(limits(sample), room)] if limits(sample) else []
    return lines + grid([pair for pair in _host_pairs(sample) if pair[1]], room)


def _share(value: float | None, warn: float) -> Line:
    return [] if value is None else [(units.percent(value), "warn" if value >= warn else "text")]


def _host_pairs(sample: HostSample) -> list[Pair]:
    cpu = sample.cpu_fraction
    loads = [f"{load:.1f}" for load in (sample.load_1m, sample.load_5m, sample.load_15m) if load is not None]
    return [
        ("CPU", [*bar(cpu, 10, heat(cpu)), (f" {units.percent(cpu)}", "strong")]),
        ("busiest core", _share(sample.cpu_max_core_fraction, 0.98)),
        ("CPU in iowait", _share(sample.iowait_fraction, 0.05)),
        ("stolen", _share(sample.steal_fraction, 0.02)),
        ("clock", _clock(sample)),
        ("CPU power", _watts(sample.cpu_power_w)),
        ("DRAM power", _watts(sample.dram_power_w)),
        ("CPU heat", _celsius(sample.cpu_temperature_c)),
        ("load", [(", ".join(loads), "text")] if loads else []),
        ("wait for CPU", _pressure(sample.pressure_cpu_fraction, None)),
        ("wait for RAM", _pressure(sample.pressure_memory_fraction, sample.pressure_memory_full_fraction)),
        ("wait for I/O", _pressure(sample.pressure_io_fraction, sample.pressure_io_full_fraction)),
        ("disks", both_ways(sample.disk_read_bytes_s, sample.disk_write_bytes_s)),
        ("busiest disk", _disk(sample)),
        ("network", both_ways(sample.net_received_bytes_s, sample.net_sent_bytes_s)),
    ]


def _clock(sample: HostSample) -> Line:
    if sample.cpu_mhz is None:
        return []
    most = f" of {sample.cpu_max_mhz:.0f}" if sample.cpu_max_mhz else ""
    return [(f"{sample.cpu_mhz:.0f}", "text"), (f"{most} MHz", "label")]


def _watts(value: float | None) -> Line:
    return [] if value is None else [(f"{value:.0f} W", "text")]


def _celsius(value: float | None) -> Line:
    return [] if value is None else [(f"{value:.0f} °C", "text")]


def _pressure(some: float | None, full: float | None) -> Line:
    if some is None:
        return []
    line: Line = [("some ", "label"), (units.percent(some), "warn" if some > 0.1 else "text")]
    if full is not None:
        line += [("  all ", "label"), (units.percent(full), "bad" if full > 0.01 else "text")]
    return line


def _disk(sample: HostSample) -> Line:
    if sample.disk_busy_fraction is None:
        return []
    name = f"{foreign(sample.disk_busiest, 14)} " if sample.disk_busiest else ""
    return [(name, "label"), *_share(sample.disk_busy_fraction, 0.5), (" busy", "label")]


def _memory(store: Store, sample: HostSample, room: int) -> list[Line]:
    parts = composition(sample)
    used = of_gib(sample.ram_used_bytes, sample.ram_total_bytes)
    length = max(10, min(60, room - LABEL - 24))
    lines: list[Line] = [
        [(pad("RAM", LABEL), "label"), *memory_bar(sample, length), (" ", "text"), *used, (" used", "label")]
    ]
    if parts:
        first = [span for span in parts[0] if span[0].strip()]
        lines.append(spread([[(" " * LABEL, "text"), *first], *parts[1:]], room))
    lines += grid([pair for pair in _memory_pairs(sample) if pair[1]], room)
    return lines + _numa(store, sample, room)


def _memory_pairs(sample: HostSample) -> list[Pair]:
    def size(value: float | None) -> Line:
        return [] if value is None else [(units.size(value), "text")]

    moved = [(sample.swap_in_bytes_s, "in"), (sample.swap_out_bytes_s, "out")]
    rates = [f"{name} {units.byte_rate(rate)}" for rate, name in moved if rate is not None]
    moves = any((rate or 0) > 1e6 for rate, _ in moved)
    faults = sample.major_faults_s
    return [
        ("available", size(sample.ram_available_bytes)),
        ("page cache", size(sample.ram_cached_bytes)),
        ("shared", size(sample.ram_shared_bytes)),
        ("swap", of_gib(sample.swap_used_bytes, sample.swap_total_bytes)),
        ("swap moves", [(", ".join(rates), "warn" if moves else "text")] if rates else []),
        (
            "major faults",
            [(f"{units.count(faults)}/s", "warn" if faults >= 50 else "text")] if faults is not None else [],
        ),
    ]


def _numa(store: Store, sample: HostSample, room: int) -> list[Line]:
    """Of each node what is free and which cores it has."""
    known = store.hardware
    totals = known.numa_total_bytes if known is not None else []
    cores = known.numa_nodes if known is not None else []
    lines: list[Line] = []
    for node, free in enumerate(sample.numa_free_bytes or ()):
        total = totals[node] if node < len(totals) else None
        used = (total - free) / total if total else None
        line: Line = [(pad(f"NUMA node {node}", LABEL), "label"), *bar(used, 20, heat(used))]
        line += [(f" {units.size(free)}", "text"), (" free", "label")]
        if node < len(cores):
            line.append((f"  cores {foreign(cores[node], 40)}", "label"))
        lines.append(line)
    return lines


def _hardware(store: Store, room: int) -> list[Line]:
    known, session = store.hardware, store.session
    pairs: list[Pair] = []
    if session is not None and session.cpu:
        pairs.append(("processor", [(foreign(session.cpu, 60), "text")]))
    if known is None:
        return grid(pairs, room)
    cores = [units.plural(known.sockets, "socket")] if known.sockets is not None else []
    cores += [f"{known.cores_physical} cores"] if known.cores_physical is not None else []
    cores += [f"{known.cores_logical} threads"] if known.cores_logical is not None else []
    pairs.append(("cores", [(", ".join(cores), "text")] if cores else []))
    kind = "-".join(
        part for part in (foreign(known.memory_type or "", 12), str(known.memory_mt_s or "")) if part
    )
    pairs.append(("memory", [(kind, "text")] if kind else []))
    if known.memory_modules is not None:
        of = f" of {known.memory_slots} slots" if known.memory_slots is not None else " slots"
        pairs.append(("modules", [(f"in {known.memory_modules}{of}", "text")]))
    pairs.append(("channels", channels(store)))
    if known.memory_from:
        pairs.append(("read from", [(foreign(known.memory_from, 30), "dim")]))
    if known.virtual:
        pairs.append(("runs in", [(foreign(known.virtual, 30), "text")]))
    return grid([pair for pair in pairs if pair[1]], room)


def channels(store: Store) -> Line:
    """`2 of 4 channels: at most 83.2 GB/s`; a warning where some are empty."""
    known = store.hardware
    if known is None or (known.memory_channels is None and known.memory_peak_bytes_s is None):
        return []
    filled, total = known.memory_channels, known.memory_channels_total
    line: Line = []
    if filled is not None:
        of = f" of {total}" if total is not None else ""
        empty = total is not None and filled < total
        line.append((f"{filled}{of} channels", "warn" if empty else "text"))
    if known.memory_peak_bytes_s is not None:
        line.append((f"{': ' if line else ''}at most {known.memory_peak_bytes_s / 1e9:.1f} GB/s", "strong"))
    return line
