"""What is read of LMDeploy's `/metrics`. Pure.

Tokens are counted with every step of the engine, a prompt when its first token comes. `engine` is the
data-parallel rank. Requests wait in two places: in the API server for a free handle, and in the engine.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition
from agenttop.collect.engine.histogram import MAX_TOTAL, Histogram
from agenttop.model.text import clean

PREFIXES = ("lmdeploy:", "lmdeploy_")
CATALOGUE = Catalogue(
    PREFIXES,
    {
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "api_waiting": ("num_api_requests_waiting",),
        "fraction": ("gpu_cache_usage_perc",),
        "hit_rate": ("prefix_cache_hit_rate",),
        "prompt": ("prompt_tokens_total",),
        "output": ("generation_tokens_total",),
        "cached": ("cached_tokens_total",),
        "finished": ("request_success_total",),
        "drafts": ("spec_decode_num_drafts_total",),
        "drafted": ("spec_decode_num_draft_tokens_total",),
        "accepted": ("spec_decode_num_accepted_tokens_total",),
        "first_tokens": ("time_to_first_token_seconds_count",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("iter_token_latency",),
        "e2e": ("e2e_request_latency_seconds",),
        "queue": ("request_queue_time_seconds",),
        "prefill": ("request_prefill_time_seconds",),
        "decode": ("request_decode_time_seconds",),
    },
)


class Engine(msgspec.Struct, frozen=True):
    """One data-parallel engine."""

    name: str
    running: int | None = None
    waiting: int | None = None
    fraction: float | None = None
    output: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not in this version. Counters are since the start of the server."""

    at: float
    model: str | None
    engines: tuple[Engine, ...]
    running: int | None
    waiting: int | None
    """Of the engines."""
    api_waiting: int
    """Of the API server."""
    hit_rate: float | None
    prompt: int | None
    output: int | None
    cached: int | None
    finished: int | None
    reasons: dict[str, int]
    drafts: int | None
    drafted: int | None
    accepted: int | None
    first_tokens: int | None
    histograms: dict[str, Histogram]

    @property
    def counters(self) -> dict[str, float | None]:
        """What never goes back while the server lives."""
        return {
            "output": self.output,
            "prompt": self.prompt,
            "finished": self.finished,
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            **{f"output {engine.name}": engine.output for engine in self.engines},
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of LMDeploy's own in the text."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    rates = [value for _, value in found.series("hit_rate") if 0 <= value < MAX_TOTAL]
    model = found.labels("running").get("model_name") or found.labels("output").get("model_name") or ""
    return Figures(
        at=at,
        model=clean(model, 80) or None,
        engines=_engines(found),
        running=found.count("running"),
        waiting=found.count("waiting"),
        api_waiting=found.count("api_waiting") or 0,
        hit_rate=min(1.0, sum(rates) / len(rates)) if rates else None,
        prompt=found.count("prompt"),
        output=found.count("output"),
        cached=found.count("cached"),
        finished=found.count("finished"),
        reasons=_reasons(found),
        drafts=found.count("drafts"),
        drafted=found.count("drafted"),
        accepted=found.count("accepted"),
        first_tokens=found.count("first_tokens"),
        histograms=dict(found.histograms),
    )


def _engines(found: Exposition) -> tuple[Engine, ...]:
    running, waiting, output = found.each("running"), found.each("waiting"), found.each("output")
    fractions = found.each("fraction")
    names = list(dict.fromkeys([*running, *fractions]))
    return tuple(
        Engine(
            clean(name, 20),
            _count(running.get(name)),
            _count(waiting.get(name)),
            min(1.0, max(0.0, fractions[name])) if name in fractions else None,
            value if (value := output.get(name)) is not None and value >= 0 else None,
        )
        for name in names
    )


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 else None


def _reasons(found: Exposition) -> dict[str, int]:
    """`ResponseType.FINISH` and the like; every one is there from the start, with 0."""
    return {
        name.rpartition(".")[2].lower(): count
        for name, count in found.counts("finished", "finished_reason").items()
        if count and name.rpartition(".")[2]
    }
