"""The figures of the machine over a level: what held its GPUs down, what they drew and moved, and what the
engine and others used of the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agenttop.analyse import energy
from agenttop.analyse.bandwidth import Bandwidth, Decoding, channels, link_of, of_engine
from agenttop.analyse.figure import Figure, unknown
from agenttop.analyse.held import Held, held_down
from agenttop.analyse.levels import Span
from agenttop.analyse.material import Material, within
from agenttop.analyse.row import LevelRow
from agenttop.analyse.stats import median
from agenttop.analyse.used import Used, used_gpus
from agenttop.model import units
from agenttop.model.frames import EngineSample, GpuSample, HostSample, ProcessSample
from agenttop.model.processes import Totals, totals
from agenttop.model.throttle import kind_of

LEAST_SAMPLES = 3
"""Fewer samples of a GPU or a host are no series."""

OTHERS = 1.25
"""An engine that decodes so many times what the session received served others, too."""

LOOKS = 300
"""Of the engine's processes, evenly over the span: each is a sum over all of them."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """What was seen of the machine in a level."""

    used: Used
    gpus: Sequence[GpuSample]
    """Samples of the engine's cards and instances."""
    hosts: Sequence[HostSample]
    """None of them where the engine is simulated, or runs elsewhere."""
    held: Held
    bandwidth: Bandwidth
    channels: str | None
    """Memory channels that are empty, in words."""
    figures: Figures
    """By the names of `LevelRow`."""


def of_level(material: Material, span: Span, row: LevelRow, engines: Sequence[EngineSample]) -> Machine:
    """The machine over the steady window of a level.

    `row`: with the rates of its requests; `engines`: samples of its engine within the window.
    """
    gpus = within(material.gpus, span.steady, span.end)
    everywhere = within(material.engines, span.steady, span.end)
    processes = within(material.processes, span.steady, span.end)
    used = used_gpus(row.engine, everywhere, gpus, processes)
    local = bool(used.cards) or used.in_ram
    hosts = within(material.hosts, span.steady, span.end) if local and not row.simulated else []
    # Of a GPU that does not answer, or late, nothing is known of now.
    answering = [gpu for gpu in gpus if gpu.state == "ok"]
    mine, cards = used.of_all(answering), used.of_cards(answering)
    held = held_down(cards)
    own = [process for process in processes if process.engine is not None and process.engine == row.engine]
    looks = _looks(own)
    band = of_engine(
        next(reversed(engines), None),
        _decoding(row, engines),
        used.of_all(gpus),
        material.hardware if not row.simulated else None,
        without=None if used.in_ram and not row.simulated else used.how,
        held_bytes=_held_bytes(looks, used),
        ram_bytes=next((host.ram_total_bytes for host in reversed(hosts) if host.ram_total_bytes), None),
    )
    figures = _throttling(cards, held) | _clocks(cards) | _moved(band, mine)
    figures |= _energy(material, span, row, used, hosts, engines)
    figures |= _host(hosts) | _processes(looks) | {"gpus_from": used.how}
    return Machine(used, mine, hosts, held, band, channels(material.hardware), figures)


def middles(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """The median of each GPU with a series."""
    known: dict[str, list[float]] = {}
    for gpu, value in values:
        if value is not None:
            known.setdefault(gpu, []).append(value)
    found = {gpu: median(series) for gpu, series in known.items() if len(series) >= LEAST_SAMPLES}
    return {gpu: middle for gpu, middle in found.items() if middle is not None}


def _throttling(cards: Sequence[GpuSample], held: Held) -> Figures:
    looked = [
        any(kind_of(why) != "chosen" for why in gpu.throttle) for gpu in cards if gpu.throttle is not None
    ]
    counted = [share for gpu in cards if (share := _counted(gpu)) is not None]
    # A throttle that comes and goes within a sample shows in the driver's time counters only.
    shares = [sum(some) / len(some) for some in (looked, counted) if some]
    if held.looked:
        shares += [share for why, share in held.means.items() if kind_of(why) != "chosen"]
    return {
        "gpu_throttled_fraction": min(1.0, max(shares)) if shares else None,
        "throttle_shares": {why: share for why, share in held.means.items() if kind_of(why) != "chosen"},
        "throttle_worst_shares": held.trouble(),
        "throttle_chosen_shares": {
            why: share for why, share in held.means.items() if kind_of(why) == "chosen"
        },
        "throttled_why": held.sentence(),
    }


def _counted(gpu: GpuSample) -> float | None:
    """Share of the sample's window held down by power or heat, by the driver's time counters."""
    known = [s for s in (gpu.throttle_power_fraction, gpu.throttle_thermal_fraction) if s is not None]
    return min(1.0, sum(known)) if known else None


def _clocks(cards: Sequence[GpuSample]) -> Figures:
    clocks = middles(
        (gpu.gpu, gpu.sm_clock_mhz / gpu.sm_clock_max_mhz)
        for gpu in cards
        if gpu.sm_clock_mhz is not None and gpu.sm_clock_max_mhz
    )
    margins = [margin for gpu in cards if (margin := _margin(gpu)) is not None]
    return {
        "gpu_clock_fraction_p50": min(clocks.values(), default=None),
        "gpu_margin_c_min": min(margins, default=None),
    }


def _margin(gpu: GpuSample) -> float | None:
    if gpu.temperature_margin_c is not None:
        return gpu.temperature_margin_c
    if gpu.temperature_limit_c is None or gpu.temperature_c is None:
        return None
    return gpu.temperature_limit_c - gpu.temperature_c


def _moved(band: Bandwidth, gpus: Sequence[GpuSample]) -> Figures:
    links = middles((gpu.gpu, link_of(gpu)) for gpu in gpus)
    ram = band.ram_fraction
    return {
        "bandwidth_fraction": band.fraction.value,
        "bandwidth_bytes_s": band.bytes_s.value,
        "bandwidth_at_least": band.fraction.at_least,
        "bandwidth_measured": band.measured,
        "bandwidth_evidence": band.fraction.evidence,
        "ram_bandwidth_fraction": ram.value if ram is not None else None,
        "ram_bandwidth_evidence": ram.evidence if ram is not None else None,
        "pcie_fraction": max(links.values(), default=None),
    }


def _decoding(row: LevelRow, engines: Sequence[EngineSample]) -> Decoding:
    """By the rate that requests felt: between two tokens of one lies one step."""
    running = [sample.running for sample in engines if sample.running]
    drafting = [sample.tokens_per_step for sample in engines if sample.tokens_per_step is not None]
    drafts = not drafting and any(sample.draft_acceptance is not None for sample in engines)
    return Decoding(
        rate=row.decode_tok_s_per_agent_p50,
        sequences=sum(running) / len(running) if running else None,
        tokens_per_step=None if drafts else median(drafting) or 1.0,
    )


def _held_bytes(looks: Sequence[Totals], used: Used) -> int | None:
    sums = [
        sum(amount for gpu, amount in look.gpu_memory.items() if gpu in used.cards | used.parts)
        for look in looks
        if "gpu_memory" not in look.floors
    ]
    return max(sums, default=0) or None


def _energy(
    material: Material,
    span: Span,
    row: LevelRow,
    used: Used,
    hosts: Sequence[HostSample],
    engines: Sequence[EngineSample],
) -> Figures:
    speedup = material.session.speedup
    slack = energy.GAP_S * speedup
    around = within(material.gpus, span.steady - slack, span.end + slack)
    drawn = energy.of_span(used, around, hosts, span.steady, span.end, speedup)
    rest = energy.at_rest(used, material.gpus, material.engines, speedup)
    joules, window = drawn.gpu_j.value, span.window_s
    each = _each_token(drawn.gpu_j, row, used, engines)
    output = (row.decode_tok_s or 0.0) * window
    prompt = None if row.prefill_tok_s is None else row.prefill_tok_s * window
    above = None
    if each.value is not None and joules is not None and rest.value is not None:
        beyond = joules - rest.value * window
        above = beyond / output if beyond > 0 else None
    return {
        "energy_j": joules,
        "energy_from": drawn.gpu_j.evidence,
        "energy_covers": drawn.covers or None,
        "energy_total_j": drawn.total_j.value,
        "energy_total_covers": drawn.total_j.evidence if drawn.total_j.value is not None else None,
        "gpu_power_w": None if joules is None else joules / window,
        "idle_power_w": rest.value,
        "idle_power_from": rest.evidence,
        "joules_per_token": each.value,
        "joules_per_token_why": each.evidence,
        "joules_per_token_all": joules / (output + prompt)
        if each.value is not None and joules is not None and prompt is not None
        else None,
        "joules_per_token_above_idle": above,
        "tokens_per_joule": 1 / each.value if each.value else None,
    }


def _each_token(drawn: Figure, row: LevelRow, used: Used, engines: Sequence[EngineSample]) -> Figure:
    """Joules of an output token; None where what was drawn was not for these tokens alone."""
    if drawn.value is None:
        return drawn
    if not row.decode_tok_s:
        return unknown("no output tokens are known")
    if row.also_busy is not None and (not used.known or used.others):
        return unknown(f"the GPUs worked for others, too: {row.also_busy}")
    rates = [sample.decode_tok_s for sample in engines if sample.decode_tok_s is not None]
    if len(rates) >= LEAST_SAMPLES and sum(rates) / len(rates) > OTHERS * row.decode_tok_s:
        mean, own = units.rate(sum(rates) / len(rates)), units.rate(row.decode_tok_s)
        return unknown(f"the engine decoded {mean} tok/s, {own} of them for the agents of this session")
    return Figure(
        drawn.value / (row.decode_tok_s * row.window_s),
        f"{drawn.value:.0f} J by the {drawn.evidence}",
    )


def _host(hosts: Sequence[HostSample]) -> Figures:
    def series(name: str) -> list[float]:
        return [value for host in hosts if (value := getattr(host, name)) is not None]

    def middle(name: str) -> float | None:
        known = series(name)
        return median(known) if len(known) >= LEAST_SAMPLES else None

    used = [
        1 - host.ram_available_bytes / host.ram_total_bytes
        for host in hosts
        if host.ram_available_bytes is not None and host.ram_total_bytes
    ]
    return {
        "cpu_max_fraction": max(series("cpu_fraction"), default=None),
        "cpu_fraction_p50": middle("cpu_fraction"),
        "ram_used_max_fraction": max(used, default=None),
        "swap_in_bytes_s_p50": middle("swap_in_bytes_s"),
        "major_faults_s_p50": middle("major_faults_s"),
        "pressure_memory_fraction_p50": middle("pressure_memory_fraction"),
        "steal_fraction_p50": middle("steal_fraction"),
        "cpu_limit_throttled_fraction_p50": middle("cpu_limit_throttled_fraction"),
    }


def _processes(looks: Sequence[Totals]) -> Figures:
    cores = [look.cpu_cores for look in looks if look.cpu_cores is not None]
    busiest = [look.busiest_cores for look in looks if look.busiest_cores is not None]
    memory = max(
        (look for look in looks if look.memory_bytes is not None),
        key=lambda look: look.memory_bytes or 0,
        default=None,
    )
    faults = [look.major_faults_s for look in looks if look.major_faults_s is not None]
    enough = len(looks) >= LEAST_SAMPLES
    return {
        "engine_cpu_cores": sum(cores) / len(cores) if cores and enough else None,
        "engine_busiest_cores": median(busiest) if enough else None,
        "engine_memory_bytes": memory.memory_bytes if memory is not None else None,
        "engine_memory_from": memory.memory_from if memory is not None else None,
        "engine_major_faults_s": median(faults) if enough else None,
    }


def _looks(processes: Sequence[ProcessSample]) -> list[Totals]:
    """What the engine's processes used together at each look; at most `LOOKS` of them."""
    times = sorted({process.t for process in processes})
    chosen = set(times[:: max(1, -(-len(times) // LOOKS))])
    newest: dict[int, ProcessSample] = {}
    found = []
    for index, process in enumerate(processes):
        newest[process.pid] = process
        if process.ended:
            del newest[process.pid]
        over = index + 1 == len(processes) or processes[index + 1].t > process.t
        if over and process.t in chosen and newest:
            found.append(totals(list(newest.values())))
    return found
