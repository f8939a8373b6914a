"""What is read of Dynamo's `/metrics`: of its front end, and of one worker. Pure.

- `inflight_requests` of the front end are all that it has not answered to the end, `queued_requests` those of
  them that have had no first token: they wait, or are being prefilled, which it cannot tell apart.
- `output_tokens_total` moves with every token that goes out. Input tokens are counted with the first token,
  cached ones partly at the end, so that what had to be computed cannot be told while requests run.
- Context, blocks, their size and the number of sequences are those of one worker of the model, and there is
  no count of workers.
- A worker's `percent` of its KV cache is a share, 0 to 1. Its engine's own metrics are passed through.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition
from agenttop.collect.engine.histogram import Histogram
from agenttop.model.text import clean

FRONT_PREFIXES = ("dynamo_frontend_", "nv_llm_http_service_")
_FRONT = Catalogue(
    FRONT_PREFIXES,
    {
        "inflight": ("inflight_requests",),
        "queued": ("queued_requests",),
        "output": ("output_tokens_total",),
        "input": ("input_sequence_tokens_sum",),
        "cached": ("cached_tokens_sum",),
        "requests": ("requests_total",),
        "context": ("model_context_length",),
        "blocks": ("model_total_kv_blocks",),
        "block": ("model_kv_cache_block_size",),
        "sequences": ("model_max_num_seqs",),
        "ready": ("model_ready",),
        "uptime": ("event_loop_delay_seconds_count",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds",),
        "e2e": ("request_duration_seconds",),
    },
)
_WORKER = Catalogue(
    ("dynamo_component_",),
    {
        "inflight": ("inflight_requests",),
        "requests": ("requests_total",),
        "fraction": ("gpu_cache_usage_percent", "kvstats_gpu_cache_usage_percent"),
        "blocks": ("total_blocks", "kvstats_total_blocks"),
        "active": ("kvstats_active_blocks",),
        "uptime": ("uptime_seconds",),
    },
)
MOST_MODELS = 64


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a front end. Settings are those of one of its workers."""

    name: str
    inflight: int | None = None
    queued: int | None = None
    output: float | None = None
    context: int | None = None
    pool: int | None = None
    """KV tokens."""
    sequences: int | None = None
    ready: bool | None = None

    @property
    def answering(self) -> int | None:
        """Requests that have had their first token."""
        if self.inflight is None or self.queued is None:
            return None
        return max(0, self.inflight - self.queued)


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape of a front end."""

    at: float
    models: tuple[Model, ...]
    inflight: int | None
    queued: int | None
    output: int | None
    prompt: int | None
    cached: int | None
    finished: int | None
    finish_reasons: dict[str, int]
    histograms: Mapping[str, Histogram]

    @property
    def answering(self) -> int | None:
        """Requests that have had their first token."""
        if self.inflight is None:
            return None
        return max(0, self.inflight - (self.queued or 0)) if self.queued is not None else None

    @property
    def counters(self) -> dict[str, float | None]:
        """What never goes back while the front end lives."""
        return {
            "output": self.output,
            "prompt": self.prompt,
            "finished": self.finished,
            **{f"output/{model.name}": model.output for model in self.models},
        }


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime of a worker tells, whatever its engine is."""

    inflight: int | None
    """Requests at the endpoint that generates."""
    finished: int | None
    fraction: float | None
    """Fill of its KV pool."""


def read_front(text: str, at: float) -> Front | None:
    """None where the page is not a front end's."""
    found = _FRONT.read(text)
    if not found.is_the_engines:
        return None
    return Front(
        at=at,
        models=_models(found),
        inflight=_or_zero(found, "inflight"),
        queued=_or_zero(found, "queued"),
        output=found.count("output"),
        prompt=found.count("input"),
        cached=found.count("cached"),
        finished=found.count("requests"),
        finish_reasons=_endings(found),
        histograms=found.histograms,
    )


def read_worker(text: str) -> Worker | None:
    """None where the page is not a worker's."""
    found = _WORKER.read(text)
    if not found.is_the_engines:
        return None
    fractions = [min(1.0, max(0.0, value)) for value in found.each("fraction", "dp_rank").values()]
    fraction = sum(fractions) / len(fractions) if fractions else None
    blocks, active = found.total("blocks"), found.total("active")
    if fraction is None and blocks and active is not None:
        fraction = min(1.0, active / blocks)
    inflight = found.each("inflight", "dynamo_endpoint").get("generate")
    finished = found.each("requests", "dynamo_endpoint").get("generate")
    return Worker(
        inflight=int(inflight) if inflight is not None and inflight >= 0 else None,
        finished=int(finished) if finished is not None and finished >= 0 else None,
        fraction=fraction,
    )


def _or_zero(found: Exposition, key: str) -> int | None:
    """A gauge that is not there before a model's first request."""
    count = found.count(key)
    return (
        0
        if count is None and found.total("requests") is None and found.total("uptime") is not None
        else count
    )


def _models(found: Exposition) -> tuple[Model, ...]:
    keys = ("inflight", "queued", "output", "context", "blocks", "block", "sequences", "ready")
    values = {
        key: {name: value for name, value in found.each(key, "model").items() if value >= 0} for key in keys
    }
    names: dict[str, str] = {}
    for key in keys:
        for name in values[key]:
            shown = clean(name, 80)
            if shown and len(names) < MOST_MODELS:
                names.setdefault(name, shown)

    def count(key: str, name: str) -> int | None:
        value = values[key].get(name)
        return int(value) if value is not None else None

    def size(key: str, name: str) -> int | None:
        value = count(key, name) or 0
        return value if 0 < value < 10**12 else None

    models = []
    for name, shown in names.items():
        blocks, block = size("blocks", name), size("block", name)
        ready = count("ready", name)
        models.append(
            Model(
                name=shown,
                inflight=count("inflight", name) if values["inflight"] else _or_zero(found, "inflight"),
                queued=count("queued", name) if values["queued"] else _or_zero(found, "queued"),
                output=values["output"].get(name),
                context=size("context", name),
                pool=blocks * block if blocks and block and blocks * block < 10**12 else None,
                sequences=size("sequences", name),
                ready=bool(ready) if ready is not None else None,
            )
        )
    return tuple(models)


def _endings(found: Exposition) -> dict[str, int]:
    """How requests ended: success, or what went wrong."""
    by_status, errors = found.counts("requests", "status"), found.counts("requests", "error_type")
    if errors:
        by_status.pop("error", None)
    return {**by_status, **errors}
