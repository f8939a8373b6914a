"""CPU, memory, disks and network of the host: whether it is the limit, and a container's limits first."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import HostSample, ProcessSample
from agenttop.view.glyphs import EIGHTHS_UP, bar, heat, spark, stacked, trend_cells
from agenttop.view.gpus import of_gib
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line, cut, foreign, spread
from agenttop.view.spans import width as width_of
from agenttop.view.store import Store

GIB = 1024**3

LINES = 5
"""What every host has to say."""

NOTABLE_FAULTS_S = 50.0
"""Major faults: from so many a second on something is read again and again that did not stay in memory."""

NOTABLE_SWAP_BYTES_S = 1e6
NOTABLE_STEAL = 0.02
NOTABLE_IOWAIT = 0.05
NOTABLE_DISK = 0.5


def host(store: Store, width: int, height: int, look: Look | None = None) -> list[Line]:
    """As many lines as fit, the most telling of them. Bars are worse the fuller they are."""
    sample = store.host
    if sample is None:
        return [[("host   ", "label"), ("waiting for the first sample", "dim")]]
    if height == 1:
        return [one_line(sample, width)]
    gauge = max(6, min(24, width - 39))
    lines: list[tuple[int, Line]] = [
        (0, _cpu(store, sample, width, gauge)),
        (5, _cores(sample, width)),
        *((1, line) for line in _limit_lines(sample, width)),
        (2, _ram(sample, width, gauge)),
        (7, spread(composition(sample), width)),
        (3, spread([_swap(sample), _pressure(sample), _faults(sample)], width, 3)),
        (4, spread([_disk(sample), _net(sample)], width, 3)),
        (6, spread(engine_line(store, sample, look), width)),
        (8, spread(electrics(sample), width)),
    ]
    told = [(rank, line) for rank, line in lines if any(text.strip() for text, _ in line)]
    kept = sorted(range(len(told)), key=lambda at: (told[at][0], at))[:height]
    return [told[at][1] for at in sorted(kept)]


def lines_wanted(store: Store, look: Look | None = None) -> int:
    """Lines that have something to say."""
    sample = store.host
    if sample is None:
        return LINES
    more = (limits(sample), composition(sample), electrics(sample), of_engine(store, look))
    return LINES + sum(bool(parts) for parts in more)


def one_line(sample: HostSample, width: int) -> Line:
    """CPU and memory in one line; what limits them first, where something does."""
    cpu, ram, total = sample.cpu_fraction, sample.ram_used_bytes, sample.ram_total_bytes
    parts: list[Line] = [
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
    ]
    if limits(sample):
        parts = [*limits(sample, brief=True), parts[0], parts[2], parts[3]]
    return spread(parts, width)


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _plain(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.1f}"


def limits(sample: HostSample, *, brief: bool = False) -> list[Line]:
    """A container's limits and how much of each is used, one part each; none where there is no limit."""
    parts: list[Line] = []
    cores, used = sample.cpu_limit_cores, sample.cpu_limited_used_cores
    if cores is not None:
        share = _share(used, cores)
        now = f"{used:.1f} of " if used is not None else ""
        parts.append([(now, heat(share, calm="strong")), (f"{cores:g} cores", "strong")])
    elif sample.cpus_allowed is not None:
        parts.append([("only ", "label"), (units.plural(sample.cpus_allowed, "core"), "strong")])
    stopped = sample.cpu_limit_throttled_fraction
    if stopped is not None and (stopped > 0 or not brief):
        parts.append([("stopped ", "label"), (units.percent(stopped), "bad" if stopped > 0.01 else "text")])
    if sample.ram_limit_bytes is not None:
        share = _share(sample.ram_limited_used_bytes, sample.ram_limit_bytes)
        memory = of_gib(sample.ram_limited_used_bytes, sample.ram_limit_bytes)
        role = heat(share, calm="strong")
        parts.append([("RAM ", "label"), *[(text, role if r == "strong" else r) for text, r in memory]])
    if sample.swap_limit_bytes is not None and not brief:
        words = units.size(sample.swap_limit_bytes) if sample.swap_limit_bytes else "none"
        parts.append([("swap ", "label"), (words, "text")])
    if parts:
        parts[0] = [(" LIMIT ", "badge"), (" ", "text"), *parts[0]]
    return parts


def _limit_lines(sample: HostSample, width: int) -> list[Line]:
    """On one line where they fit, else memory on the next."""
    parts = limits(sample)
    if sum(width_of(part) + 2 for part in parts) - 2 <= width:
        return [spread(parts, width)]
    first = [part for part in parts if not _is_memory(part)]
    rest = [part for part in parts if _is_memory(part)]
    if not first or not rest:
        return [spread(parts, width)]
    return [spread(first, width), [(" " * 8, "text"), *spread(rest, width - 8)]]


def _is_memory(part: Line) -> bool:
    return part[0][0] in ("RAM ", "swap ")


def _cpu(store: Store, sample: HostSample, width: int, gauge: int) -> Line:
    cpu = sample.cpu_fraction
    steal, waiting = sample.steal_fraction, sample.iowait_fraction
    parts: list[Line] = [
        [("CPU  ", "label"), *bar(cpu, gauge, heat(cpu)), (f" {units.percent(cpu):>5}", "strong")],
        [("max core ", "label"), (f"{units.percent(sample.cpu_max_core_fraction):>5}", "text")],
    ]
    if steal is not None and steal >= NOTABLE_STEAL:
        parts.insert(1, [("steal ", "label"), (units.percent(steal), "bad")])
    if waiting is not None and waiting >= NOTABLE_IOWAIT:
        parts.insert(1, [("iowait ", "label"), (units.percent(waiting), "warn")])
    parts.append([("load ", "label"), (_plain(sample.load_1m), "text")])
    room = width - sum(width_of(part) for part in parts) - 8
    if room >= 12:
        cells = trend_cells(room - 2)
        parts.append([(spark(store.columns("host", "cpu_fraction", cells, 60 // cells), 1.0), "dim")])
    return spread(parts, width)


def _ram(sample: HostSample, width: int, gauge: int) -> Line:
    used, total = sample.ram_used_bytes, sample.ram_total_bytes
    parts: list[Line] = [
        [("RAM  ", "label"), *memory_bar(sample, gauge), (" ", "text"), *of_gib(used, total)],
        [("cached ", "label"), (units.size(sample.ram_cached_bytes), "text")],
    ]
    return spread(parts, width)


def memory_bar(sample: HostSample, length: int) -> Line:
    """What is used, part by part where the parts are known."""
    used, total = sample.ram_used_bytes, sample.ram_total_bytes
    parts = _parts_of_ram(sample)
    if not total or parts[0][3] is None:
        share = _share(used, total)
        return bar(share, length, heat(share))
    return stacked([(value or 0, glyph, role) for glyph, role, _, value in parts], total, length)


def _cache(sample: HostSample) -> int | None:
    """Page cache that nobody has mapped and that can be dropped."""
    if sample.ram_cached_bytes is None or sample.ram_mapped_bytes is None:
        return None
    return max(0, sample.ram_cached_bytes - sample.ram_mapped_bytes - (sample.ram_shared_bytes or 0))


def _parts_of_ram(sample: HostSample) -> tuple[tuple[str, str, str, int | None], ...]:
    """Glyph, role, name and bytes: programs' own memory, what else is used (kernel, drivers, shared), mapped
    files (a model that is mapped is there), and other page cache; the cache of ZFS is counted as used."""
    used, own, zfs = sample.ram_used_bytes, sample.ram_anonymous_bytes, sample.ram_zfs_cache_bytes
    other = max(0, used - own - (zfs or 0)) if used is not None and own is not None else None
    role = heat(_share(used, sample.ram_total_bytes))
    return (
        ("█", role, "anon", own),
        ("▓", role, "other", other),
        ("░", "idle", "ZFS cache", zfs),
        ("▒", "decode", "mapped", sample.ram_mapped_bytes),
        ("░", "idle", "cache", _cache(sample)),
    )


SHOWN_FIRST = ("anon", "mapped", "cache", "ZFS cache", "other")


def composition(sample: HostSample) -> list[Line]:
    """What memory is made of, as the bar shows it; the most telling parts first."""
    named: dict[str, Line] = {
        name: [(f"{glyph} ", role), (f"{name} ", "label"), (_gib(value), "text")]
        for glyph, role, name, value in _parts_of_ram(sample)
        if value is not None
    }
    parts = [named[name] for name in SHOWN_FIRST if name in named]
    if parts:
        parts[0] = [("     ", "text"), *parts[0]]
    return parts


def _gib(value: float) -> str:
    return units.size(value).removesuffix(" GiB")


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
    moves = moving > NOTABLE_SWAP_BYTES_S
    line: Line = [
        ("swap ", "label"),
        (units.size(used), "warn" if moves else "text" if used else "dim"),
    ]
    if moves:
        line.append((f" moving {units.byte_rate(moving)}", "warn"))
    return line


def _pressure(sample: HostSample) -> Line:
    figures = (
        ("cpu", sample.pressure_cpu_fraction, None),
        ("mem", sample.pressure_memory_fraction, sample.pressure_memory_full_fraction),
        ("io", sample.pressure_io_fraction, sample.pressure_io_full_fraction),
    )
    if all(value is None for _, value, _ in figures):
        told = sample.memory_pressure
        if told is None:
            return []
        return [("memory pressure ", "label"), (foreign(told, 12), "text" if told == "normal" else "bad")]
    line: Line = [("waits ", "label")]
    for name, some, full in figures:
        role = "warn" if some is not None and some > 0.1 else "text"
        line += [(f"{name} ", "dim"), (f"{units.percent(some)} ", role)]
        if full is not None and full > 0.01:
            line.append((f"(all {units.percent(full)}) ", "bad"))
    return line


def _faults(sample: HostSample) -> Line:
    """Pages that had to come from a disk, once there are many."""
    faults = sample.major_faults_s
    if faults is None or faults < NOTABLE_FAULTS_S:
        return []
    return [("faults ", "label"), (f"{units.count(faults)}/s", "warn")]


def flow(name: str, into: float | None, out: float | None) -> Line:
    """Both ways in one unit; it changes to GB/s only where a link is that fast."""
    fast = max(into or 0.0, out or 0.0) >= 999.5e6
    divisor, unit = (1e9, "GB/s") if fast else (1e6, "MB/s")
    line: Line = [(name, "label")]
    for arrow, value in (("▾", into), ("▴", out)):
        line += [(f" {arrow}", "dim"), (units.MISSING if value is None else f"{value / divisor:.1f}", "text")]
    return [*line, (f" {unit}", "label")]


def both_ways(into: float | None, out: float | None) -> Line:
    """The same without a name."""
    (_, _), (arrow, role), *rest = flow("", into, out)
    return [(arrow.lstrip(), role), *rest]


def _disk(sample: HostSample) -> Line:
    line = flow("disk", sample.disk_read_bytes_s, sample.disk_write_bytes_s)
    busy = sample.disk_busy_fraction
    if busy is not None and busy >= NOTABLE_DISK:
        name = f"{foreign(sample.disk_busiest, 12)} " if sample.disk_busiest else ""
        line += [(f"  {name}busy ", "label"), (units.percent(busy), "warn")]
    return line


def _net(sample: HostSample) -> Line:
    return flow("net", sample.net_received_bytes_s, sample.net_sent_bytes_s)


def electrics(sample: HostSample) -> list[Line]:
    """Clock, power and temperature of the CPU, as far as they are known."""
    parts: list[Line] = []
    if sample.cpu_mhz is not None:
        most = f" of {sample.cpu_max_mhz / 1000:.1f}" if sample.cpu_max_mhz else ""
        parts.append([(f"{sample.cpu_mhz / 1000:.1f}{most}", "text"), (" GHz", "label")])
    if sample.cpu_power_w is not None:
        parts.append([(f"{sample.cpu_power_w:.0f}", "text"), (" W", "label")])
    if sample.dram_power_w is not None:
        parts.append([("DRAM ", "label"), (f"{sample.dram_power_w:.0f}", "text"), (" W", "label")])
    if sample.cpu_temperature_c is not None:
        parts.append([(f"{sample.cpu_temperature_c:.0f}", "text"), (" °C", "label")])
    if parts:
        parts[0] = [("     ", "text"), *parts[0]]
    return parts


def of_engine(store: Store, look: Look | None = None) -> list[ProcessSample]:
    """Processes of the engine in focus."""
    engine = engine_in_focus(store, look)
    if engine is None:
        return []
    return [process for process in store.processes.values() if process.engine == engine.engine]


def engine_line(store: Store, sample: HostSample, look: Look | None = None) -> list[Line]:
    """What the processes of the engine take of CPU and memory, behind its name."""
    parts = engine_parts(store, sample, look)
    engine = engine_in_focus(store, look)
    if not parts or engine is None:
        return []
    return [[(f"{cut(foreign(engine.name, 12), 12)}  ", "accent"), *parts[0]], *parts[1:]]


def engine_parts(store: Store, sample: HostSample, look: Look | None = None) -> list[Line]:
    """What the processes of the engine take of CPU and memory: whether these matter at all."""
    processes = of_engine(store, look)
    if not processes:
        return []
    parts: list[Line] = []
    shares = [process.cpu_fraction for process in processes if process.cpu_fraction is not None]
    if shares:
        cores = len(sample.cpu_per_core) if sample.cpu_per_core else None
        of = f" of {cores} cores" if cores else " cores"
        parts.append([("CPU ", "label"), (f"{sum(shares):.1f}", "strong"), (of, "label")])
    taken = memory_of(processes)
    if taken is not None:
        parts.append([("RAM ", "label"), (units.size(taken[0]), "strong"), (taken[1], "dim")])
    if not parts:
        return []
    return [*parts, [(f"{len(processes)} processes", "dim")] if len(processes) > 1 else []]


def memory_of(processes: list[ProcessSample]) -> tuple[int, str] | None:
    """Bytes that processes take together, and in words how sure that is: what they share is counted once
    where the system tells their proportional sizes, else as often as they share it."""
    proportional = [process.pss_bytes for process in processes if process.pss_bytes is not None]
    if len(proportional) == len(processes):
        return sum(proportional), ""
    resident = [process.rss_bytes for process in processes if process.rss_bytes is not None]
    if len(resident) < len(processes):
        return None
    return sum(resident), " at most" if len(processes) > 1 else ""
