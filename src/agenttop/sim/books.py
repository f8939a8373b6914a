"""What a simulated server counts about its requests: totals and histograms since it started."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from agenttop.sim.asking import Job

_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
            480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
          40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
            40.0, 80.0)  # fmt: skip
"""Bounds of vLLM 0.32's histograms, from its `/metrics`."""


class Histogram:
    """Counts of values by upper bound, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        """By the first bound that is not below the value; the last: above all bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def token_bounds(most: int) -> list[float]:
    """1, 2, 5, 10 ... up to `most`: the bounds of vLLM's histograms of tokens."""
    bounds: list[float] = []
    power = 1
    while power <= most:
        bounds += [float(m * power) for m in (1, 2, 5) if m * power <= most]
        power *= 10
    return bounds


class Books:
    """One life of a server; a restarted one begins new books."""

    def __init__(self, context_limit: int) -> None:
        tokens = token_bounds(context_limit)
        self.first_token = Histogram(_FIRST)
        self.between_tokens = Histogram(_BETWEEN)
        self.per_output_token = Histogram(_BETWEEN)
        self.whole = Histogram(_LATENCY)
        self.queued = Histogram(_LATENCY)
        self.inference = Histogram(_LATENCY)
        self.prefill = Histogram(_LATENCY)
        self.decode = Histogram(_LATENCY)
        self.prompt_tokens = Histogram(tokens)
        self.output_tokens = Histogram(tokens)
        self.asked_tokens = Histogram(tokens)
        self.computed_tokens = Histogram(tokens)
        self.ended: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.predicted_tokens = 0
        """Output tokens of requests that have ended: llama.cpp counts them only then."""
        self.predicted_s = 0.0
        self.prompt_s = 0.0
        self.longest = 0
        """The longest sequence so far."""
        self.slot_steps = 0
        """Slots that took part in a step, summed over the steps (llama.cpp)."""

    def token(self, job: Job, t: float) -> None:
        """One more output token of a request, `job.last` being the time of the one before it."""
        if job.last is None:
            self.first_token.observe(t - job.arrived)
            self.prompt_s += t - (job.started or job.arrived)
        else:
            self.between_tokens.observe(t - job.last)
            self.slot_steps += 1
        self.longest = max(self.longest, job.prompt.tokens + job.done)

    def end(self, job: Job, t: float, reason: str) -> None:
        """A request has ended: stop, length, abort or error."""
        self.ended[reason] += 1
        started = job.started if job.started is not None else t
        if job.first is not None:
            self.predicted_tokens += job.done
            self.predicted_s += t - job.first
        if reason not in ("stop", "length") or job.first is None:
            return
        self.whole.observe(t - job.arrived)
        self.queued.observe(started - job.arrived)
        self.inference.observe(t - started)
        self.prefill.observe(job.first - started)
        self.decode.observe(t - job.first)
        if job.done > 1:
            self.per_output_token.observe((t - job.first) / (job.done - 1))
        self.prompt_tokens.observe(job.prompt.tokens)
        self.output_tokens.observe(job.done)
        self.computed_tokens.observe(job.prompt.tokens - job.cached)
        if job.limit is not None:
            self.asked_tokens.observe(job.limit)
