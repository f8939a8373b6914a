"""What has held a GPU's clocks down, and when: the history behind its strip in time.

Rules
- A reason's share of a second comes from the device's time counters; of one that is not counted it is whether
  the device named it when it was looked at.
- Reasons overlap in time. So the share of several together is the largest of them, which is the least it can
  be, and never their sum.
- What somebody has chosen (a clock that was set by hand) holds the clocks down too, but is no trouble: it is
  named, and not counted.
"""

from __future__ import annotations

import math
from collections import deque

from agenttop.model.frames import GpuSample
from agenttop.model.throttle import kind_of
from agenttop.view.series import WINDOW_S, Series

HELD_SHARE = 0.03
"""A reason that held for less of a look than this has not begun."""

QUIET_S = 20.0
"""A reason that was away for so long begins anew when it is back."""

MOST_REASONS = 24
ALL = "all"
KINDS = ("power", "thermal", "other")


class Held:
    """Of one GPU: a series of each reason, of each kind of reasons and of all, and where reasons begin."""

    def __init__(self, pace: float = 1.0) -> None:
        """`pace`: session seconds per second."""
        self._pace = pace
        self._series = {name: Series(pace) for name in (ALL, *KINDS)}
        self._reasons: dict[str, Series] = {}
        self._seen: dict[str, float] = {}
        self.begins: deque[tuple[float, str]] = deque(maxlen=WINDOW_S)
        """When a reason began, and which; the newest last."""

    @property
    def reasons(self) -> dict[str, Series]:
        """The reasons that the device has told of, chosen ones included."""
        return self._reasons

    def series(self, kind: str = ALL) -> Series:
        """Share of each second held down by reasons of a kind, or by any."""
        return self._series[kind]

    def put(self, gpu: GpuSample) -> None:
        """Take in one sample."""
        told = shares_of(gpu)
        known = told or {}
        for reason in known:
            if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
                self._reasons[reason] = Series(self._pace)
        t, window_s = gpu.t, gpu.window_s
        nothing = None if told is None else 0.0
        for reason, series in self._reasons.items():
            series.put(t, known.get(reason, nothing), window_s)
        most = dict.fromkeys((ALL, *KINDS), nothing)
        for reason, share in known.items():
            kind = kind_of(reason)
            if kind == "chosen":
                continue
            most[kind] = max(most[kind] or 0.0, share)
            most[ALL] = max(most[ALL] or 0.0, share)
            if share >= HELD_SHARE:
                self._begin(t, reason)
        for kind, value in most.items():
            self._series[kind].put(t, value, window_s)

    def _begin(self, t: float, reason: str) -> None:
        last = self._seen.get(reason)
        if last is None or t - last > QUIET_S * self._pace:
            if last is None and len(self._seen) >= MOST_REASONS:
                return
            self.begins.append((t, reason))
        self._seen[reason] = t


def shares_of(gpu: GpuSample) -> dict[str, float] | None:
    """Reason to its share of the sample's window; None where the device tells nothing about reasons, or
    nothing of now."""
    if gpu.state in ("lost", "late", "asleep"):
        return None
    if gpu.throttle is None and not gpu.throttle_shares and _of_kinds(gpu) == (None, None):
        return None
    if gpu.window_s is None and not gpu.throttle_shares:
        return None  # the first look: counters tell shares from the next one on, and a mask tells a moment
    found = {reason: share for reason, share in gpu.throttle_shares.items() if math.isfinite(share)}
    for reason in gpu.throttle or ():
        found.setdefault(reason, 1.0)
    if not gpu.throttle_shares:
        _by_kind(found, gpu)
    return {reason: min(1.0, max(0.0, share)) for reason, share in found.items()}


def _of_kinds(gpu: GpuSample) -> tuple[float | None, float | None]:
    return gpu.throttle_power_fraction, gpu.throttle_thermal_fraction


def _by_kind(found: dict[str, float], gpu: GpuSample) -> None:
    """Of a device whose counters tell kinds and no reasons, the share stands for the reasons named."""
    for kind, share in zip(("power", "thermal"), _of_kinds(gpu), strict=True):
        if share is None or not math.isfinite(share):
            continue
        named = [reason for reason in found if kind_of(reason) == kind]
        for reason in named or [kind]:
            found[reason] = share


def mean_over(series: Series, seconds: int, now: float) -> float | None:
    """Share of the last `seconds` for which it is known; None where it is not known at all."""
    known = [value for value in series.last(seconds, now) if value is not None]
    return sum(known) / len(known) if known else None
