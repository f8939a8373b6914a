"""The numbers of one level that verdicts about its limit rest on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agenttop.analyse.row import LevelRow
from agenttop.analyse.stats import median
from agenttop.model.frames import EngineSample, GpuSample, HostSample, LoadSample, Turn
from agenttop.model.link import link_share
from agenttop.model.throttle import POWER, THERMAL

LEAST_SAMPLES = 3
"""Fewer samples of a GPU or a host are no series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a level. None is what no series tells."""

    agents: int
    simulated: bool = False
    """Nothing is known of the simulated host's own CPU and RAM."""
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    wait_s: float | None = None
    client_share: float | None = None
    """Of the driver's seconds: those in which it, and not the engine, was the limit."""
    client_why: str | None = None
    kv_active: float | None = None
    """Share of the pool held by requests in progress, at most; all of it where that is not told apart."""
    preemptions: int | None = None
    waiting_share: float | None = None
    """Of the engine's samples: those with requests held back."""
    running_max: int | None = None
    slots_total: int | None = None
    prefill_share: float | None = None
    """Of the time of all requests: the part before the first token."""
    prefilling: float | None = None
    """Requests without a first token at a time, on average."""
    in_flight: float | None = None
    """Requests at a time, on average."""
    idle_share: float | None = None
    """Of the engine's samples: those in which it ran nothing."""
    gpu_samples: int = 0
    util: float | None = None
    """Median of the busiest GPU, as are memory and link."""
    util_together: float | None = None
    """Sum of the GPUs' medians: near 1 when they take turns all the time."""
    mem_util: float | None = None
    pcie_share: float | None = None
    """Of what the link can carry in one direction."""
    thermal_share: float | None = None
    """Of GPU samples or of time, by the driver's counters: held down by heat."""
    power_share: float | None = None
    cpu: float | None = None
    """Median busy share of all cores."""
    ram_available: float | None = None
    """Share of RAM, at least."""
    swapped_in: float | None = None
    """Bytes per second, at most."""


def look(
    row: LevelRow,
    ended: Sequence[Turn],
    loads: Sequence[LoadSample],
    engines: Sequence[EngineSample],
    hosts: Sequence[HostSample],
    gpus: Sequence[GpuSample],
) -> Seen:
    """The numbers of a level from its row, the requests that ended in it and its samples."""
    limited = Counter(load.client_limited for load in loads if load.client_limited)
    running = [sample.running for sample in engines if sample.running is not None]
    before, whole = _time_before_first(ended)
    cpu = [sample.cpu_fraction for sample in hosts if sample.cpu_fraction is not None]
    ram = [
        sample.ram_available_bytes / sample.ram_total_bytes
        for sample in hosts
        if sample.ram_available_bytes is not None and sample.ram_total_bytes
    ]
    utils = _middles((gpu.gpu, gpu.util_fraction) for gpu in gpus)
    swapped = [sample.swap_in_bytes_s for sample in hosts if sample.swap_in_bytes_s is not None]
    return Seen(
        agents=row.agents,
        simulated=row.simulated,
        decode_tok_s=row.decode_tok_s,
        prefill_tok_s=row.prefill_tok_s,
        wait_s=row.wait_s_p50,
        client_share=sum(limited.values()) / len(loads) if loads else None,
        client_why=limited.most_common(1)[0][0] if limited else None,
        kv_active=row.kv_active_max_fraction
        if row.kv_active_max_fraction is not None
        else row.kv_max_fraction,
        preemptions=row.preemptions,
        waiting_share=row.waiting_fraction,
        running_max=max(running, default=None),
        slots_total=row.slots_total,
        prefill_share=before / whole if whole else None,
        prefilling=before / row.window_s if whole and row.window_s else None,
        in_flight=min(float(row.agents), whole / row.window_s) if whole and row.window_s else None,
        idle_share=sum(count == 0 for count in running) / len(running)
        if len(running) >= LEAST_SAMPLES
        else None,
        gpu_samples=len(gpus),
        util=max(utils, default=None),
        util_together=sum(utils) if utils else None,
        mem_util=_busiest((gpu.gpu, gpu.mem_util_fraction) for gpu in gpus),
        pcie_share=_busiest((gpu.gpu, _link_share(gpu)) for gpu in gpus),
        thermal_share=_held(gpus, THERMAL, "throttle_thermal_fraction"),
        power_share=_held(gpus, POWER, "throttle_power_fraction"),
        cpu=median(cpu) if len(cpu) >= LEAST_SAMPLES else None,
        ram_available=min(ram) if len(ram) >= LEAST_SAMPLES else None,
        # One page read back is no shortage; a rate that never pauses is.
        swapped_in=median(swapped) if len(swapped) >= LEAST_SAMPLES else None,
    )


def _time_before_first(ended: Sequence[Turn]) -> tuple[float, float]:
    """Seconds before the first token, and of the whole, of all requests that were answered."""
    before = whole = 0.0
    for turn in ended:
        if turn.t_sent is not None and turn.t_first_token is not None and turn.t_last_token is not None:
            before += turn.t_first_token - turn.t_sent
            whole += turn.t_last_token - turn.t_sent
    return before, whole


def _busiest(values: Iterable[tuple[str, float | None]]) -> float | None:
    """The largest of the GPUs' medians."""
    return max(_middles(values), default=None)


def _middles(values: Iterable[tuple[str, float | None]]) -> list[float]:
    """The median of each GPU with a series."""
    known: dict[str, list[float]] = defaultdict(list)
    for gpu, value in values:
        if value is not None:
            known[gpu].append(value)
    middles = [median(series) for series in known.values() if len(series) >= LEAST_SAMPLES]
    return [middle for middle in middles if middle is not None]


def _link_share(gpu: GpuSample) -> float | None:
    return link_share(gpu.pcie_received_bytes_s, gpu.pcie_sent_bytes_s, gpu.pcie_generation, gpu.pcie_width)


def _held(gpus: Sequence[GpuSample], words: tuple[str, ...], counter: str) -> float | None:
    """Share of samples with such a reason, or of the time by the driver's own counters, whichever is more."""
    looked = [gpu.throttle for gpu in gpus if gpu.throttle is not None]
    timed = [share for gpu in gpus if (share := getattr(gpu, counter)) is not None]
    shares = []
    if len(looked) >= LEAST_SAMPLES:
        hit = sum(any(word in reason for reason in reasons for word in words) for reasons in looked)
        shares.append(hit / len(looked))
    if len(timed) >= LEAST_SAMPLES:
        shares.append(sum(timed) / len(timed))
    return max(shares, default=None)
