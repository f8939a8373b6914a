"""The numbers of one level that verdicts about its limit rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agenttop.analyse.machine import LEAST_SAMPLES, Machine, middles
from agenttop.analyse.row import LevelRow
from agenttop.analyse.stats import median
from agenttop.model.frames import EngineSample, GpuSample, HostSample, LoadSample, Turn

FULL = 0.95
"""A pool or a processor filled beyond this is full."""


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
    bandwidth: float | None = None
    """Of the peak of the GPUs' memory: measured, or worked out of weights and steps."""
    bandwidth_measured: bool = False
    bandwidth_why: str | None = None
    ram_bandwidth: float | None = None
    """Of the peak of the RAM, by weights that are left there."""
    ram_bandwidth_why: str | None = None
    channels: str | None = None
    """Memory channels that are empty, in words."""
    thermal_share: float | None = None
    """Of time by the driver's counters, else of samples: held down by heat; of the GPU where that is most."""
    thermal_why: str | None = None
    """The reason, and the GPU."""
    power_share: float | None = None
    power_why: str | None = None
    cpu: float | None = None
    """Median busy share of all cores."""
    ram_available: float | None = None
    """Share of RAM, at least."""
    swapped_in: float | None = None
    """Bytes per second, median."""
    cpu_max: float | None = None
    ram_used_max: float | None = None
    busiest_cores: float | None = None
    """Of the engine's process that uses most, median."""
    steal: float | None = None
    memory_pressure: float | None = None
    """Share of time in which some task waited for memory, median."""
    faults: float | None = None
    """Pages per second read from a disk for the engine, else for anyone; median."""
    limit_stopped: float | None = None
    """Share of periods in which a container's CPU limit stopped it."""
    limit_used: float | None = None
    """Cores used, of those that limit allows; median."""


def look(
    row: LevelRow,
    ended: Sequence[Turn],
    loads: Sequence[LoadSample],
    engines: Sequence[EngineSample],
    machine: Machine,
) -> Seen:
    """The numbers of a level from its row, the requests that ended in it and its samples."""
    limited = Counter(load.client_limited for load in loads if load.client_limited)
    running = [sample.running for sample in engines if sample.running is not None]
    before, whole = _time_before_first(ended)
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
        **_of_machine(row, machine),
    )


def _of_machine(row: LevelRow, machine: Machine) -> dict[str, Any]:
    hosts, gpus = machine.hosts, machine.gpus
    thermal, power = machine.held.kind("thermal"), machine.held.kind("power")
    ram = [
        sample.ram_available_bytes / sample.ram_total_bytes
        for sample in hosts
        if sample.ram_available_bytes is not None and sample.ram_total_bytes
    ]
    utils = _utils(gpus)
    memory = middles((gpu.gpu, gpu.mem_util_fraction) for gpu in gpus).values()
    return {
        "gpu_samples": len(gpus),
        "util": max(utils, default=None),
        "util_together": sum(utils) if utils else None,
        "mem_util": max(memory, default=None),
        "pcie_share": row.pcie_fraction,
        "bandwidth": row.bandwidth_fraction,
        "bandwidth_measured": row.bandwidth_measured,
        "bandwidth_why": row.bandwidth_evidence if row.bandwidth_fraction is not None else None,
        "ram_bandwidth": row.ram_bandwidth_fraction,
        "ram_bandwidth_why": row.ram_bandwidth_evidence,
        "channels": machine.channels,
        "thermal_share": thermal[0] if thermal else None,
        "thermal_why": thermal[1] if thermal else None,
        "power_share": power[0] if power else None,
        "power_why": power[1] if power else None,
        "cpu": row.cpu_fraction_p50,
        "ram_available": min(ram) if len(ram) >= LEAST_SAMPLES else None,
        # One page read back is no shortage; a rate that never pauses is.
        "swapped_in": row.swap_in_bytes_s_p50,
        "cpu_max": row.cpu_max_fraction,
        "ram_used_max": row.ram_used_max_fraction,
        "busiest_cores": row.engine_busiest_cores,
        "steal": row.steal_fraction_p50,
        "memory_pressure": row.pressure_memory_fraction_p50,
        "faults": row.engine_major_faults_s
        if row.engine_major_faults_s is not None
        else row.major_faults_s_p50,
        "limit_stopped": row.cpu_limit_throttled_fraction_p50,
        "limit_used": _of_limit(hosts),
    }


def _utils(gpus: Sequence[GpuSample]) -> list[float]:
    """The median of each GPU. One that tells of visible processes alone may be busier: it counts if full."""
    floors = {gpu.gpu for gpu in gpus if gpu.visible_only}
    found = middles((gpu.gpu, gpu.util_fraction) for gpu in gpus)
    return [util for name, util in found.items() if name not in floors or util >= FULL]


def _of_limit(hosts: Sequence[HostSample]) -> float | None:
    """Cores used of those that a container's limit allows, median."""
    shares = [
        host.cpu_limited_used_cores / host.cpu_limit_cores
        for host in hosts
        if host.cpu_limited_used_cores is not None and host.cpu_limit_cores
    ]
    return median(shares) if len(shares) >= LEAST_SAMPLES else None


def _time_before_first(ended: Sequence[Turn]) -> tuple[float, float]:
    """Seconds before the first token, and of the whole, of all requests that were answered."""
    before = whole = 0.0
    for turn in ended:
        if turn.t_sent is not None and turn.t_first_token is not None and turn.t_last_token is not None:
            before += turn.t_first_token - turn.t_sent
            whole += turn.t_last_token - turn.t_sent
    return before, whole
