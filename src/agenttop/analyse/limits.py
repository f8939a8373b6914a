"""What a level was limited by, and the series that prove it. Without them there is no verdict.

Each rule looks at one candidate and answers with its evidence, or with nothing. Rules stand in the order in
which a cause hides the ones behind it: while the client is the limit, nothing is known of the engine; while
the pool overflows, rates are those of requests that are done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenttop.analyse.sight import FULL, Seen, look
from agenttop.model import units

__all__ = ["BOTTLENECKS", "Limit", "Seen", "bottleneck", "host_at_ease", "look"]

NOTHING = "nothing is saturated"

ROOMY = 0.90
"""A pool filled less than this has room for another request."""

BUSY = 0.80
"""A memory bus or a link busy for more than this share carries about what it can: there are always gaps."""

METER = 0.65
"""A device's own count of moved bytes, as a share of the peak: NVIDIA's guide to its profiling metrics calls
about 80 % of the peak the most that can be reached, and this is 80 % of that."""

FLOOR = 0.6
"""The same worked out of the weights: KV cache is not in it, and kernels that stream reach 75 to 85 %."""

QUEUED_SHARE = 0.2
"""Requests held back in more than this share of the samples are a queue and not a moment's."""

THROTTLED_SHARE = 0.2
CLIENT_SHARE = 0.1

WAITING_SHARE = 0.5
"""Agents that spend more than this share of their requests before the first token wait for prefill."""

PROMPT_HEAVY = 100
"""With more prompt tokens than this for each one of output an engine spends most of its time on prompts: a
step that decodes takes as long as one that computes some dozens of prompt tokens."""

SEVERAL = 1.5
"""With so many requests at a time, on average, some wait for others."""

IDLE_SHARE = 0.05

CONSTANT_SHARE = 0.15
"""Totals that differ by less are the same total."""

GROWN = 1.25
"""A level with this many times the agents, or the wait, is a larger one."""

TURNS = (0.9, 1.1)
"""Several GPUs whose utilisations add up to this may take turns, as with layers split between them: then
none looks busy and all are."""

WHOLE_CORE = 0.9
"""Of a core: a process that uses more has a thread that never waits, be it work or a wait for the GPU."""

GPU_WAITS = 0.6
"""A GPU busy for less than this share, under an engine that is never idle, waits for its host."""

STOLEN = 0.1
"""Of the cores' time, given to other guests by the hypervisor."""

STARVING = 0.1
"""Of the time, in which some task waited for memory."""

FAULTS = 100.0
"""Pages a second that come from a disk: 0.4 MB/s, which no loaded model reads."""

STOPPED = 0.2
"""Of the periods of a container's CPU limit."""

AT_EASE_CPU = 0.5
AT_EASE_RAM = 0.9
"""Below these CPU and RAM are called no bottleneck."""

MEAGRE = 0.5
"""An agent added that brings less than this share of what those before it had marks a limit near."""

BOTTLENECKS = (
    "client", "KV pool", "thermal throttle", "PCIe", "slots", "prefill budget", "admission queue",
    "decode bandwidth", "power throttle", "CPU/RAM", "compute", NOTHING,
)  # fmt: skip
"""All verdicts, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The verdict on a level."""

    name: str | None
    """One of `BOTTLENECKS`; None where no series proves any."""
    evidence: str
    """The numbers it rests on; without a verdict, what is lacking."""


def bottleneck(seen: Seen, before: Sequence[Seen] = ()) -> Limit:
    """The limit of a level; `before` are other levels of the session, of which smaller ones are compared."""
    smaller = [other for other in before if other.agents * GROWN <= seen.agents]
    proven = [(name, evidence) for name, rule in _RULES if (evidence := rule(seen, smaller)) is not None]
    if proven:
        (name, evidence), *others = proven
        also = "".join(f"; also {other}: {why}" for other, why in others[:2])
        return Limit(name, evidence + also)
    gain = _gained(seen, smaller)
    if gain is not None and gain < MEAGRE:
        return Limit(None, f"cannot be told: no series is full{_gain(seen, smaller)}")
    lacks = _lacks(seen)
    if lacks:
        return Limit(None, f"cannot be told without {', '.join(lacks)}")
    return Limit(NOTHING, _at_ease(seen))


def _client(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if seen.client_share is None or seen.client_share <= CLIENT_SHARE:
        return None
    return (
        f"the client was the limit in {units.percent(seen.client_share)} of the seconds ({seen.client_why})"
    )


def _pool(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    fill = f"KV pool {units.percent(seen.kv_active)} full at most" if seen.kv_active is not None else ""
    if seen.preemptions:
        return f"{units.plural(seen.preemptions, 'preemption')}" + (f", {fill}" if fill else "")
    held_back = seen.waiting_share is not None and seen.waiting_share > 0
    if seen.kv_active is not None and seen.kv_active >= FULL and held_back:
        return f"{fill} while requests waited in {units.percent(seen.waiting_share)} of the samples"
    return None


def _thermal(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if seen.thermal_share is None or seen.thermal_share <= THROTTLED_SHARE:
        return None
    return f"heat held the clocks down for {_of_it(seen, seen.thermal_share, seen.thermal_why)}"


def _power(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if seen.power_share is None or seen.power_share <= THROTTLED_SHARE:
        return None
    return f"a power limit held the clocks down for {_of_it(seen, seen.power_share, seen.power_why)}"


def _of_it(seen: Seen, share: float, why: str | None) -> str:
    named = f"{why}, " if why else ""
    return f"{units.percent(share)} of it ({named}{seen.gpu_samples} GPU samples)"


def _pcie(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if seen.pcie_share is None or seen.pcie_share <= BUSY:
        return None
    share = units.percent(seen.pcie_share)
    return f"PCIe carries {share} of what its link can (median of {seen.gpu_samples} samples)"


def _slots(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if not _queues(seen) or seen.slots_total is None or (seen.running_max or 0) < seen.slots_total:
        return None
    return f"{_queue(seen)} with all {seen.slots_total} slots taken{_room(seen)}"


def _prefill(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if seen.prefill_share is None or not seen.prefill_tok_s or seen.agents < 2:
        return None
    share = f"{units.percent(seen.prefill_share)} of the agents' request time is spent before the first token"
    per_output = seen.prefill_tok_s / seen.decode_tok_s if seen.decode_tok_s else 0.0
    mostly = f"{per_output:.0f} prompt tokens are computed for each one of output"
    if per_output < PROMPT_HEAVY and (seen.prefill_share <= WAITING_SHARE or _queues(seen)):
        # What waits in a queue waits for those ahead of it: for their prefill only where that is their work.
        return None
    proof = share if seen.prefill_share > WAITING_SHARE else mostly
    rate = units.rate(seen.prefill_tok_s)
    for other in smaller:
        if not (other.prefill_tok_s and other.wait_s and seen.wait_s):
            continue
        constant = abs(seen.prefill_tok_s / other.prefill_tok_s - 1) <= CONSTANT_SHARE
        if constant and seen.wait_s >= GROWN * other.wait_s:
            was = f"{units.rate(other.prefill_tok_s)} with {units.plural(other.agents, 'agent')}"
            grown = f"{units.seconds(other.wait_s)} to {units.seconds(seen.wait_s)}"
            return f"prefill stays at {rate} tok/s ({was}) while the wait grows from {grown}; {proof}"
    # Without a smaller level: several requests that all wait for prefill share one budget.
    if seen.prefill_share > WAITING_SHARE and (seen.prefilling or 0.0) >= SEVERAL:
        return f"{share}; {seen.prefilling:.1f} requests at a time wait for it at {rate} tok/s"
    if per_output >= PROMPT_HEAVY and (seen.in_flight or 0.0) >= SEVERAL and _never_idle(seen):
        return (
            f"{mostly}; {seen.in_flight:.1f} requests at a time share {rate} tok/s, the engine is never idle"
        )
    return None


def _admission(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if not _queues(seen) or seen.kv_active is None or seen.kv_active >= ROOMY:
        return None
    return f"{_queue(seen)}{_room(seen)}"


def _bandwidth(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    if (seen.prefill_share or 0.0) > WAITING_SHARE:
        return None
    proofs = []
    if seen.mem_util is not None and not seen.bandwidth_measured:
        if seen.mem_util >= BUSY:
            share = units.percent(seen.mem_util)
            proofs.append(f"GPU memory busy {share} (median of {seen.gpu_samples} samples)")
    elif seen.bandwidth is not None and seen.bandwidth >= (METER if seen.bandwidth_measured else FLOOR):
        proofs.append(f"{units.percent(seen.bandwidth)} of the GPU memory's peak ({seen.bandwidth_why})")
    if seen.ram_bandwidth is not None and seen.ram_bandwidth >= FLOOR:
        proofs.append(f"{units.percent(seen.ram_bandwidth)} of the RAM's peak ({seen.ram_bandwidth_why})")
    return f"{', '.join(proofs)}{_gain(seen, smaller)}" if proofs else None


def _memory_at_ease(seen: Seen) -> str | None:
    """That the GPUs' memory is not full, with the number; None where it is, or nothing tells.

    A device's count of bytes goes before the share of time in which its memory did anything.
    """
    if seen.bandwidth_measured and seen.bandwidth is not None:
        return f"{units.percent(seen.bandwidth)} of its peak" if seen.bandwidth < METER else None
    return units.percent(seen.mem_util) if seen.mem_util is not None and seen.mem_util < BUSY else None


def _compute(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    memory = _memory_at_ease(seen)
    if seen.util is None or seen.util < FULL or memory is None:
        return None
    gain = _gained(seen, smaller)
    if gain is None or gain >= MEAGRE:
        return None
    return (
        f"GPU busy {units.percent(seen.util)}, its memory only {memory}"
        f" (medians of {seen.gpu_samples} samples){_gain(seen, smaller)}"
    )


def _host(seen: Seen, smaller: Sequence[Seen]) -> str | None:
    reasons = []
    if seen.cpu is not None and seen.cpu >= FULL - 0.1:
        reasons.append(f"CPU busy {units.percent(seen.cpu)} (median)")
    if seen.limit_used is not None and seen.limit_used >= FULL - 0.1:
        reasons.append(
            f"{units.percent(seen.limit_used)} of the cores that its limit allows are used (median)"
        )
    if (seen.limit_stopped or 0.0) >= STOPPED:
        reasons.append(f"stopped by its CPU limit in {units.percent(seen.limit_stopped)} of the periods")
    if (seen.steal or 0.0) >= STOLEN:
        reasons.append(f"{units.percent(seen.steal)} of the CPU time goes to other guests of this machine")
    if _one_core(seen) and (seen.util or 1.0) < GPU_WAITS and _never_idle(seen):
        reasons.append(
            f"the engine's busiest process uses {seen.busiest_cores:.1f} cores while the GPU is busy only"
            f" {units.percent(seen.util)}"
        )
    if seen.swapped_in:
        reasons.append(f"swapping in {units.byte_rate(seen.swapped_in)} (median)")
    if (seen.memory_pressure or 0.0) >= STARVING:
        reasons.append(f"tasks waited for memory in {units.percent(seen.memory_pressure)} of the time")
    if (seen.faults or 0.0) >= FAULTS:
        reasons.append(f"{units.count(seen.faults)} pages a second are read back from a disk (median)")
    if seen.ram_available is not None and seen.ram_available < 1 - FULL:
        reasons.append(f"RAM {units.percent(seen.ram_available)} available at least")
    if reasons and seen.channels:
        reasons.append(f"only {seen.channels}")
    return ", ".join(reasons) or None


def _one_core(seen: Seen) -> bool:
    return seen.busiest_cores is not None and seen.busiest_cores >= WHOLE_CORE


def _never_idle(seen: Seen) -> bool:
    return seen.idle_share is not None and seen.idle_share < IDLE_SHARE


def host_at_ease(seen: Seen) -> str | None:
    """`CPU never above 6 %, RAM never above 41 %: not the bottleneck`; None where that cannot be said."""
    if seen.simulated or seen.cpu_max is None or seen.ram_used_max is None or _host(seen, ()) is not None:
        return None
    if (
        seen.cpu_max >= AT_EASE_CPU
        or seen.ram_used_max >= AT_EASE_RAM
        or (seen.ram_bandwidth or 0.0) >= FLOOR
    ):
        return None
    if _one_core(seen) and (seen.util is None or seen.util < ROOMY):
        return None  # one thread may be what everything waits for
    cpu, ram = units.percent(seen.cpu_max), units.percent(seen.ram_used_max)
    text = f"CPU never above {cpu}, RAM never above {ram}"
    if seen.swapped_in is not None:
        text += ", no swapping"
    if _one_core(seen):
        text += f", the GPU busy {units.percent(seen.util)} while one process uses a whole core"
    return f"{text}: not the bottleneck"


Rule = Callable[[Seen, Sequence[Seen]], str | None]

_RULES: tuple[tuple[str, Rule], ...] = (
    ("client", _client),
    ("KV pool", _pool),
    ("thermal throttle", _thermal),
    ("PCIe", _pcie),
    ("slots", _slots),
    ("prefill budget", _prefill),
    ("admission queue", _admission),
    ("decode bandwidth", _bandwidth),
    ("power throttle", _power),
    ("CPU/RAM", _host),
    ("compute", _compute),
)


def _queues(seen: Seen) -> bool:
    return seen.waiting_share is not None and seen.waiting_share > QUEUED_SHARE


def _queue(seen: Seen) -> str:
    return f"requests waited in {units.percent(seen.waiting_share)} of the samples"


def _room(seen: Seen) -> str:
    return f", KV pool {units.percent(seen.kv_active)} full at most" if seen.kv_active is not None else ""


def _gained(seen: Seen, smaller: Sequence[Seen]) -> float | None:
    """What each agent more than the next smaller level brought, as a share of what those before had."""
    near = max(smaller, key=lambda other: other.agents, default=None)
    if near is None or not near.decode_tok_s or seen.decode_tok_s is None:
        return None
    each = (seen.decode_tok_s - near.decode_tok_s) / (seen.agents - near.agents)
    return each / (near.decode_tok_s / near.agents)


def _gain(seen: Seen, smaller: Sequence[Seen]) -> str:
    gain = _gained(seen, smaller)
    return (
        "" if gain is None else f"; each agent more brings {units.percent(max(0.0, gain))} of those before it"
    )


def _lacks(seen: Seen) -> list[str]:
    """Series without which nobody can say that nothing is saturated."""
    wanted = {
        "GPU utilisation": seen.util,
        "GPU memory utilisation": seen.mem_util
        if seen.mem_util is not None or not seen.bandwidth_measured
        else seen.bandwidth,
        "the engine's queue": seen.waiting_share,
        "the KV pool": seen.kv_active,
        "CPU use": 0.0 if seen.simulated else seen.cpu,
    }
    lacking = [name for name, value in wanted.items() if value is None]
    if seen.util is not None and seen.util >= FULL:
        # Busy all the time by the driver's count: how near to what it can do, only other levels tell.
        lacking.append("a smaller level to compare with, since the GPU is never idle")
    elif seen.util is not None and seen.util < ROOMY and TURNS[0] <= (seen.util_together or 0) <= TURNS[1]:
        lacking.append("knowing whether the GPUs work at the same time or take turns")
    return lacking


def _at_ease(seen: Seen) -> str:
    cpu = "" if seen.cpu is None else f", CPU {units.percent(seen.cpu)}"
    return (
        f"GPU busy {units.percent(seen.util)}, its memory {_memory_at_ease(seen)}, KV pool"
        f" {units.percent(seen.kv_active)} full at most{cpu}, requests waited in"
        f" {units.percent(seen.waiting_share)} of the samples"
    )
