"""What held the clocks of GPUs down: for how long, by which reason, and on which of them.

Shares are of time where the driver counts it, else of the samples that showed the reason. They are taken for
each GPU by itself, so that one which throttles does not hide among others that do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agenttop.analyse.used import label
from agenttop.model import units
from agenttop.model.frames import GpuSample
from agenttop.model.throttle import kind_of

LEAST_SAMPLES = 3
"""Fewer samples of a GPU are no series."""

WORTH_SAYING = 0.005
"""A smaller share is not worth a word."""

UNNAMED = {"power": "power limit", "thermal": "thermal limit"}
"""What a time counter of a whole kind is called where no reason of it is told."""

Shares = dict[str, float]


@dataclass(frozen=True, slots=True)
class Held:
    """Shares of a span in which something held the clocks down."""

    looked: bool
    """Some GPU told whether anything held it down."""
    means: Shares = field(default_factory=dict)
    """By reason, the mean over the GPUs."""
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By reason, the largest share of a GPU, and that GPU."""
    gpus: int = 0

    def trouble(self) -> Shares:
        """The largest shares of a GPU by reasons that nobody chose."""
        return {reason: share for reason, (share, _) in self.worst.items() if kind_of(reason) != "chosen"}

    def kind(self, kind: str) -> tuple[float, str] | None:
        """Of one kind (`model.throttle.kind_of`) the largest share of a GPU, and what and where that was."""
        if not self.looked:
            return None
        of_kind = [(share, reason) for reason, (share, _) in self.worst.items() if kind_of(reason) == kind]
        share, reason = max(of_kind, default=(0.0, ""))
        return share, f"{reason} on {self.worst[reason][1]}" if share else ""

    def sentence(self) -> str | None:
        """`throttled 12 % of this level: power cap (GPU0)`; None where nothing is worth a word."""
        trouble = sorted(self.trouble().items(), key=lambda item: -item[1])
        trouble = [(reason, share) for reason, share in trouble if share >= WORTH_SAYING]
        if not trouble:
            return None
        (main, share), *others = trouble
        where = self.worst[main][1]
        if self.gpus > 1:
            where += f", {units.percent(self.means[main])} on average of {self.gpus} GPUs"
        text = f"throttled {units.percent(share)} of this level: {main} ({where})"
        also = [f"{units.percent(less)} {reason} ({self.worst[reason][1]})" for reason, less in others]
        return text + (f", also {', '.join(also)}" if also else "")


def held_down(samples: Sequence[GpuSample]) -> Held:
    """The shares by reason; `samples` of whole cards, in order of t."""
    by_gpu: dict[str, list[GpuSample]] = defaultdict(list)
    for sample in samples:
        by_gpu[sample.gpu].append(sample)
    known = {name: found for name, some in by_gpu.items() if (found := _of_gpu(some)) is not None}
    if not known:
        return Held(looked=False)
    reasons = {reason for shares in known.values() for reason in shares}
    worst = {}
    for reason in sorted(reasons):
        share, name = max((shares.get(reason, 0.0), name) for name, shares in known.items())
        worst[reason] = (share, label(by_gpu[name][-1]))
    means = {
        reason: sum(shares.get(reason, 0.0) for shares in known.values()) / len(known)
        for reason in sorted(reasons)
    }
    return Held(True, means, worst, len(known))


def _of_gpu(samples: Sequence[GpuSample]) -> Shares | None:
    """By reason, of one GPU; None where it tells nothing. A reason that is counted and never held is 0."""
    seen = [sample.throttle for sample in samples if sample.throttle is not None]
    shares: Shares = {}
    if len(seen) >= LEAST_SAMPLES:
        for reasons in seen:
            for reason in set(reasons):
                shares[reason] = shares.get(reason, 0.0) + 1 / len(seen)
    counted = _by_time(samples)
    # A counter that stood still while samples showed its reason does not count on this device.
    shares |= {reason: share for reason, share in counted.items() if share > 0 or reason not in shares}
    for kind, name in (("power", "throttle_power_fraction"), ("thermal", "throttle_thermal_fraction")):
        if any(kind_of(reason) == kind for reason in counted):
            continue
        whole = _mean([(getattr(sample, name), sample.window_s) for sample in samples])
        if whole is not None:
            # A counter of a whole kind also catches what came and went between two samples.
            of_kind = {reason: share for reason, share in shares.items() if kind_of(reason) == kind}
            reason = max(of_kind, key=lambda reason: of_kind[reason], default=UNNAMED[kind])
            shares[reason] = max(whole, shares.get(reason, 0.0))
    if not shares and len(seen) < LEAST_SAMPLES:
        return None
    return {reason: min(1.0, share) for reason, share in shares.items()}


def _by_time(samples: Sequence[GpuSample]) -> Shares:
    reasons = {reason for sample in samples for reason in sample.throttle_shares}
    found = {
        reason: _mean([(sample.throttle_shares.get(reason), sample.window_s) for sample in samples])
        for reason in reasons
    }
    return {reason: share for reason, share in found.items() if share is not None}


def _mean(values: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Of shares, each for its window; None of fewer than `LEAST_SAMPLES`."""
    known = [(share, window or 0.0) for share, window in values if share is not None]
    if len(known) < LEAST_SAMPLES:
        return None
    length = sum(window for _, window in known)
    if length <= 0:
        return sum(share for share, _ in known) / len(known)
    return sum(share * window for share, window in known) / length
