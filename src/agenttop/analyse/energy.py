"""Energy over a span of time: of GPUs from their counters, else from their power; and what is drawn at rest.

Rules
- A counter counts through gaps, so two readings of it are enough; its value at the ends of the span lies on
  the line between the readings around them. A counter that goes back was reset, one whose source changes is
  two.
- Without a counter the power is integrated over the samples; a gap longer than `GAP_S` is not covered.
- A counter that disagrees with the power by more than `AGREE` is not believed: some boards count a fraction
  of what they draw.
- At least `COVERED` of the span must be known; what is missing is filled up at the same power.
- Power at rest is the median over samples in which all engines had run nothing for `REST_S`: clocks and fans
  take that long to settle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agenttop.analyse.figure import Figure, unknown
from agenttop.analyse.stats import median
from agenttop.analyse.used import Used, label
from agenttop.model import units
from agenttop.model.frames import EngineSample, GpuSample, HostSample

GAP_S = 5.0
"""Of real time."""

COVERED = 0.9
AGREE = 1.5
REST_S = 15.0

LEAST_RESTING = 5
"""Samples at rest that are needed."""

SCOPES = {
    "board": "GPU boards",
    "chip": "GPU chips without their memory",
    "socket": "the socket, CPU cores included",
    "module": "the module, CPU included",
}
"""`GpuSample.power_scope` in words."""

WITH_CPU = frozenset({"socket", "module"})


@dataclass(frozen=True, slots=True)
class Energy:
    """What was drawn over a span."""

    gpu_j: Figure
    """Of the GPUs."""
    total_j: Figure
    """With CPU packages and RAM where these are measured; None where nothing but the GPUs is."""
    covers: str
    """What `gpu_j` is of: GPU boards, ..."""


def of_span(
    used: Used,
    gpus: Sequence[GpuSample],
    hosts: Sequence[HostSample],
    start: float,
    end: float,
    speedup: float = 1.0,
) -> Energy:
    """The energy from `start` to `end`.

    `gpus` in order of t, also those around the span; `hosts` those within it.
    """
    cards: dict[str, list[GpuSample]] = defaultdict(list)
    for sample in used.of_cards(gpus):
        cards[sample.gpu].append(sample)
    scopes = {some[-1].power_scope for some in cards.values()}
    covers = " and ".join(sorted(SCOPES.get(scope or "", "GPUs") for scope in scopes))
    if not cards:
        return Energy(unknown(used.how), unknown(used.how), covers)
    if used.parts:
        why = "it uses MIG instances, and power is told of whole cards only"
        return Energy(unknown(why), unknown(why), covers)
    each = [of_gpu(some, start, end, speedup) for some in cards.values()]
    lacking = next((figure for figure in each if figure.value is None), None)
    if lacking is not None:
        return Energy(lacking, unknown(lacking.evidence), covers)
    total = sum(figure.value or 0.0 for figure in each)
    ways = " and ".join(sorted({figure.evidence for figure in each}))
    of_gpus = Figure(total, f"{ways}; {used.how}")
    return Energy(of_gpus, _with_host(total, hosts, end - start, bool(scopes & WITH_CPU), covers), covers)


def of_gpu(samples: Sequence[GpuSample], start: float, end: float, speedup: float = 1.0) -> Figure:
    """The energy of one GPU from `start` to `end`; the evidence is where it is from."""
    gap = GAP_S * speedup
    counted = _counted([s for s in samples if s.energy_j is not None and s.state == "ok"], start, end, gap)
    drawn, covered = _integral(
        [s for s in samples if s.power_w is not None and s.state == "ok"], start, end, gap
    )
    span = end - start
    integral = drawn * span / covered if covered >= COVERED * span > 0 else None
    told = next((sample.energy_source for sample in samples if sample.energy_source), None)
    if counted is not None and (integral is None or 1 / AGREE <= counted / max(integral, 1e-9) <= AGREE):
        return Figure(counted, "energy counter" if told != "power" else "power summed up")
    if integral is not None:
        why = "" if counted is None else " (its energy counter disagrees)"
        return Figure(integral, f"power over time{why}")
    name = label(samples[-1])
    if all(sample.power_w is None and sample.energy_j is None for sample in samples):
        return unknown(f"{name} tells neither energy nor power")
    return unknown(
        f"power of {name} is known for {units.percent(covered / span if span > 0 else 0)} of the time"
    )


def _counted(samples: Sequence[GpuSample], start: float, end: float, gap: float) -> float | None:
    """By the counter; None where it was reset, changed its source or was not read around the span."""
    inside = [index for index, sample in enumerate(samples) if start - gap <= sample.t <= end + gap]
    if len(inside) < 2:
        return None
    some = samples[inside[0] : inside[-1] + 1]
    points = [(sample.t, sample.energy_j or 0.0) for sample in some]
    if len({sample.energy_source for sample in some}) > 1:
        return None
    if any(later[1] < earlier[1] for earlier, later in pairwise(points)):
        return None
    first, last = max(start, points[0][0]), min(end, points[-1][0])
    if last - first < COVERED * (end - start) or last <= first:
        return None
    grown = _at(points, last) - _at(points, first)
    return grown * (end - start) / (last - first)


def _at(points: Sequence[tuple[float, float]], t: float) -> float:
    for (before, low), (after, high) in pairwise(points):
        if before <= t <= after:
            return low + (high - low) * ((t - before) / (after - before) if after > before else 0.0)
    return points[-1][1]


def _integral(samples: Sequence[GpuSample], start: float, end: float, gap: float) -> tuple[float, float]:
    """Joules, and the seconds they cover."""
    joules = covered = 0.0
    for before, after in pairwise(samples):
        length = after.t - before.t
        inside = min(after.t, end) - max(before.t, start)
        if inside <= 0 or length <= 0 or length > gap:
            continue
        joules += inside * ((before.power_w or 0.0) + (after.power_w or 0.0)) / 2
        covered += inside
    return joules, covered


def _with_host(
    gpu_j: float, hosts: Sequence[HostSample], span: float, cpu_included: bool, covers: str
) -> Figure:
    parts, total = [covers], gpu_j
    for title, field in (("CPU packages", "cpu_power_w"), ("RAM", "dram_power_w")):
        known = [value for sample in hosts if (value := getattr(sample, field)) is not None]
        if not hosts or len(known) < COVERED * len(hosts) or (title == "CPU packages" and cpu_included):
            continue
        total += sum(known) / len(known) * span
        parts.append(title)
    if len(parts) == 1 and not cpu_included:
        return unknown("nothing but the GPUs tells its power (CPU packages need permission)")
    return Figure(total, ", ".join(parts))


def at_rest(
    used: Used,
    gpus: Sequence[GpuSample],
    engines: Sequence[EngineSample],
    speedup: float = 1.0,
) -> Figure:
    """Watts of the GPUs together while all engines had run nothing for `REST_S`; all in order of t."""
    power: dict[str, list[float]] = defaultdict(list)
    for start, end in _resting(engines, speedup):
        first = bisect_left(gpus, start, key=lambda gpu: gpu.t)
        for gpu in used.of_cards(gpus[first : bisect_right(gpus, end, key=lambda gpu: gpu.t)]):
            if gpu.power_w is not None and gpu.state == "ok":
                power[gpu.gpu].append(gpu.power_w)
    if not used.cards:
        return unknown(used.how)
    if any(len(power[card]) < LEAST_RESTING for card in used.cards):
        return unknown(
            f"the engine never ran nothing for longer than {units.seconds(REST_S)} in this session"
        )
    watts = sum(median(some) or 0.0 for some in power.values())
    samples = min(map(len, power.values()))
    return Figure(
        watts, f"median of {samples} samples {units.seconds(REST_S)} or more after the last request"
    )


def _resting(engines: Sequence[EngineSample], speedup: float) -> list[tuple[float, float]]:
    """Spans in which every engine was seen to run nothing, without their first `REST_S`."""
    spans: list[tuple[float, float]] = []
    since: float | None = None
    last = 0.0
    busy: dict[str, bool] = {}
    for sample in engines:
        busy[sample.engine] = sample.running is None or sample.running > 0 or bool(sample.waiting)
        gone = since is not None and sample.t - last > GAP_S * speedup
        if since is not None and (gone or busy[sample.engine]):
            spans.append((since + REST_S, last))
            since = None
        if since is None and not any(busy.values()):
            since = sample.t
        last = sample.t
    if since is not None:
        spans.append((since + REST_S, last))
    return [(start, end) for start, end in spans if end > start]
