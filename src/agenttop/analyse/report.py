"""What the search for the knee found: the types behind `agenttop knee --json`."""

from __future__ import annotations

from typing import Any

import msgspec


class SecondOpinion(msgspec.Struct, frozen=True, kw_only=True):
    """Two straight lines fitted to the curve: where they cross."""

    agents: float | None = None
    agrees: bool | None = None
    """Within one tested level of the knee; both finding none agrees, too. None: it could not be asked."""
    why: str


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """The level from which each further agent adds less than a quarter of what the first one brought."""

    agents: int | None = None
    low: int | None = None
    """With `high`: where nine of ten repetitions would put it, or the tested levels around it."""
    high: int | None = None
    second_opinion: SecondOpinion
    unconfirmed: int | None = None
    """Where `agents` is None: a level that looks like the knee, if only a further level confirmed it."""
    already_past: bool = False
    """The knee lies at or below the smallest level tested."""
    soft_ceiling: bool = False
    """All levels share one total, so the knee lies below: `agents` are the fewest that have all of it."""
    why: str


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents fit, by arithmetic, before anybody tried."""

    agents: int | None = None
    """The last number that fits."""
    rests_on: str | None = None
    """KV pool or slots."""
    verified: bool | None = None
    """Whether tested levels bear it out; None while none beyond it was tested."""
    why: str


class Cliff(msgspec.Struct, frozen=True, kw_only=True):
    """The level at which things get worse for good."""

    agents: int | None = None
    low: int | None = None
    """The largest level below it that was fine; the cliff lies above it and not above `agents`."""
    cause: str | None = None
    """throughput, preemptions, KV pool full, prefix hits lost, requests refused."""
    why: str
    predicted: Prediction | None = None


class Attainment(msgspec.Struct, frozen=True, kw_only=True):
    """How far one level meets the SLO."""

    agents: int
    met: int | None = None
    requests: int | None = None
    fraction: float | None = None
    low: float | None = None
    """With `high`: Wilson interval of `fraction`, 95 %."""
    high: float | None = None
    passes: bool
    sure: bool
    """The whole interval lies on one side of the share asked for."""
    why: str | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The largest tested level that meets the SLO."""

    slo: str
    agents: int | None = None
    """The largest level that passes below the smallest that fails; None when the smallest one fails."""
    fails_at: int | None = None
    """The smallest level that fails; None when none does."""
    monotone: bool
    """No level passes above one that fails."""
    levels: list[Attainment] = []
    why: str


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The universal scalability law (Gunther, arXiv 0808.1431) fitted to the curve."""

    serial_fraction: float | None = None
    crosstalk: float | None = None
    first_agent: float | None = None
    """Throughput of one agent alone, by the fit; in the unit of the report's `measure`."""
    peak_agents: float | None = None
    """Where the fitted curve is highest; None when it never falls."""
    error_fraction: float | None = None
    """Root mean square of the relative distance of the levels from the fit."""
    why: str


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The per-agent rate that does not fall any further."""

    decode_tok_s_per_agent: float
    from_agents: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From one tested level to the next."""

    start: int
    end: int
    gain_fraction: float
    """What each agent added brought, as a share of what the first one brought: smoothed."""


class KneeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Three figures, and what they rest on."""

    schema: int = 1
    measure: str
    """decode_tok_s or completions_per_min: the throughput that is judged."""
    noise_fraction: float | None = None
    """Scatter of a level's throughput from one repetition to the next, as a share of it."""
    noise_from: str
    """repetitions, requests, curve or assumed."""
    knee: Knee
    cliff: Cliff
    capacity: Capacity | None = None
    scaling: Scaling
    floor: Floor | None = None
    steps: list[Step] = []
    left_out: list[str] = []
    """Levels that were not used, with the reason."""
    throttled: str | None = None
    """Which levels had GPUs whose clocks were held down, for how long and by what; None where none had."""
    sentence: str

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `agenttop knee --json` prints them."""
        plain = msgspec.to_builtins(self)
        assert isinstance(plain, dict)
        return plain
