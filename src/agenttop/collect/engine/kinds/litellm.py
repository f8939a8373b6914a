"""LiteLLM proxy: what passes through it, deployment by deployment.

It has no slots, no KV cache and no rates of its own: it counts tokens when a request has ended. Its figures
stand in `/metrics/` where its prometheus callback is on. `/health` is never asked: it sends a request to
every model. Neither is `/health/drain`, which takes the proxy out of service. What needs a key is asked with
one only: a refused question counts as a failed request in its metrics.
"""

from __future__ import annotations

import math
from collections import deque
from urllib.parse import urlsplit

import msgspec

from agenttop.collect.engine.base import KEY_HINT, ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.exposition import Catalogue, Exposition
from agenttop.collect.engine.histogram import MAX_TOTAL, LatencyWindow
from agenttop.collect.engine.http import EngineClient, Reply, UnauthorisedError, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import Models
from agenttop.errors import UsageError
from agenttop.model.frames import EngineSample, PartSample
from agenttop.model.text import clean
from agenttop.model.url import normalise
from agenttop.wire.prometheus import Labels, parse

NAME = "LiteLLM"
_LIMIT = 8_000_000
"""Bytes of `/metrics/`: 36 kB to begin with; every key, user and model adds series."""
_EVERY_S, _EARLY_S = 2.0, 0.3
_MODELS_EVERY_S = 60.0
_AGAIN_S = 60.0
"""Until `/metrics/` is asked again after it was not there, or wanted a key."""
_WINDOW_S = 60.0
_MOST_DEPLOYMENTS = 64
_STATES = {0: "healthy", 1: "partial outage", 2: "complete outage"}
_CATALOGUE = Catalogue(
    ("litellm_",),
    {
        "in_flight": ("in_flight_requests",),
        "input": ("input_tokens_metric_total", "input_tokens_total"),
        "cached": ("input_cached_tokens_metric_total",),
        "output": ("output_tokens_metric_total", "output_tokens_total"),
        "finished": ("deployment_total_requests_total", "deployment_total_requests"),
    },
    histograms={
        "ttft": ("llm_api_time_to_first_token_metric",),
        "e2e": ("request_total_latency_metric",),
        "queue": ("request_queue_time_seconds",),
    },
)
_STATE = "litellm_deployment_state"
_PER_TOKEN = "litellm_deployment_latency_per_output_token"
_OF_DEPLOYMENTS = frozenset({_STATE, f"{_PER_TOKEN}_sum", f"{_PER_TOKEN}_count"})
_NOT_ITS_OWN = (
    "decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens waiting quantisation "
    "context_limit_tokens preemptions_total draft_acceptance itl"
)
_FROM_METRICS = "running prompt_tokens_total output_tokens_total finished_total latencies"
_MEASURES = ("ttft", "e2e", "queue")
_TOTALS = "prompt_tokens_total cached_tokens_total output_tokens_total finished_total"
_CALLBACK = 'add to the proxy\'s config.yaml: litellm_settings: {callbacks: ["prometheus"]}'
_OPEN = "litellm_settings: {require_auth_for_metrics_endpoint: false}"


class Deployment(msgspec.Struct, frozen=True):
    """One model at one address, as the proxy's metrics tell it."""

    identity: str
    name: str
    address: str
    state: int | None = None
    seconds: float = 0.0
    """Latencies per output token, added up over its requests."""
    requests: int = 0


class LiteLlmAdapter:
    """Reads one LiteLLM proxy."""

    name = NAME
    allowed_paths = frozenset({"/health/readiness", "/metrics/", "/v1/models", "/health/backlog"})

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        self.client = client
        client.prove_by("/health/readiness")
        self._url = client.base_url
        self._pid = pid
        self._model: str | None = None
        self._models_at = -math.inf
        self._metrics_next = -math.inf
        self._refused: tuple[str, str] | None = None
        """Why there are no metrics, and what helps."""
        self._latencies = LatencyWindow(self._url)
        self._seen: dict[str, bool] = {}
        """Measures of which there is something to tell."""
        self._pace = PerToken()
        self._last: EngineReading | None = None
        self._at = -math.inf

    async def alive(self) -> bool:
        """Readiness is answered from memory, and needs no key."""
        return await self.client.answers("/health/readiness")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The proxy itself is asked every 2 s."""
        if self._last is not None and self.client.now() - self._at < _EVERY_S - _EARLY_S:
            return msgspec.structs.replace(self._last, latencies=[])
        self._at = self.client.now()
        await self._ask_models()
        metrics = await self._scrape()
        if metrics is None:
            await self._check()
        t = metrics.at if metrics is not None else self.client.now()
        found = _CATALOGUE.read(metrics.text()) if metrics is not None else None
        reasons = Reasons(self._url, t)
        why = "LiteLLM passes requests on and counts their tokens when they have ended"
        reasons.add(_NOT_ITS_OWN, why, "watch the engines behind it: --url for each")
        sample = EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=NAME,
            state="ok",
            model=self._model,
            pid=self._pid,
            front=True,
            running=_in_flight(found) if found is not None else await self._backlog(),
        )
        reasons.add("version", "LiteLLM tells its version only to those who may manage it")
        if self._model is None and not self.client.has_key:
            reasons.add("model", "the list of models needs a key", KEY_HINT)
        if self._refused is not None:
            fields = [name for name in _FROM_METRICS.split() if getattr(sample, name, None) is None]
            reasons.add(" ".join(fields), *self._refused)
        parts: list[PartSample] = []
        if found is not None and metrics is not None:
            sample = _with_totals(sample, found)
            totals = [name for name in _TOTALS.split() if getattr(sample, name) is None]
            reasons.add(" ".join(totals), "the proxy has counted none since it was started")
            parts = [self._part(t, each) for each in deployments(metrics.text())[:_MOST_DEPLOYMENTS]]
        latencies = self._latencies.add(t, found.histograms) if found is not None else []
        self._seen |= {each.measure: each.count > 0 for each in latencies}
        if found is not None:
            unseen = [measure for measure in _MEASURES if not self._seen.get(measure)]
            reasons.add(" ".join(unseen), "no request has ended in the last minute, or since it is watched")
        self._last = EngineReading(sample=sample, latencies=latencies, parts=parts, missing=reasons.frames)
        return self._last

    async def _scrape(self) -> Reply | None:
        """`/metrics/`; None where it may not be read, which is noted."""
        if self.client.now() < self._metrics_next:
            return None
        try:
            reply = await self.client.get("/metrics/", limit=_LIMIT)
        except UnauthorisedError:
            self._metrics_next = self.client.now() + _AGAIN_S
            fix = f"{KEY_HINT}; or add to the proxy's config.yaml: {_OPEN}"
            self._refused = "the proxy's metrics need a key", fix
            return None
        if reply.status != 200 or reply.content_type == "text/html":
            self._metrics_next = self.client.now() + _AGAIN_S
            self._refused = "the proxy's metrics are off", _CALLBACK
            return None
        self._refused = None
        return reply

    async def _check(self) -> None:
        """Whether it is still a LiteLLM, and well."""
        reply = await self.client.get("/health/readiness")
        if reply.status == 404:
            raise ChangedError
        if reply.status != 200:
            raise UnexpectedError(f"answers GET /health/readiness with {reply.status}: it shuts down")

    async def _backlog(self) -> int | None:
        """Requests in flight, where there are no metrics but a key."""
        if not self.client.has_key:
            return None
        try:
            found = (await self.client.get("/health/backlog")).json(_Backlog)
        except UnauthorisedError:
            return None
        return _without_ours(found.in_flight_requests) if found is not None else None

    async def _ask_models(self) -> None:
        if not self.client.has_key or self.client.now() - self._models_at < _MODELS_EVERY_S:
            return
        self._models_at = self.client.now()
        listed = (await self.client.get("/v1/models")).json(Models)
        names = [clean(model.id, 80) for model in listed.data] if listed is not None else []
        self._model = next((name for name in names if name), None)

    def _part(self, t: float, each: Deployment) -> PartSample:
        pace = self._pace.of(t, each)
        return PartSample(
            t=t,
            engine=self._url,
            part=f"{each.name} ({each.identity[:8]})",
            role="deployment",
            state=_STATES.get(each.state) if each.state is not None else None,
            url=_served_at(each.address),
            note=pace,
        )


class PerToken:
    """Time per output token of each deployment, of the requests that ended in the last minute. Pure."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, float, int]]] = {}

    def of(self, t: float, each: Deployment) -> str | None:
        """As a sentence; None while no request has ended."""
        looks = self._looks.setdefault(each.identity, deque())
        if looks and (each.requests < looks[-1][2] or each.seconds < looks[-1][1]):
            looks.clear()  # the proxy was restarted
        looks.append((t, each.seconds, each.requests))
        while len(looks) > 2 and looks[1][0] <= t - _WINDOW_S:
            looks.popleft()
        ended = each.requests - looks[0][2]
        if ended <= 0:
            return None
        mean_ms = (each.seconds - looks[0][1]) / ended * 1000
        span = f"the last {t - looks[0][0]:.0f} s"
        return f"{mean_ms:.3g} ms per output token: the mean of {ended} that ended in {span}"


class _Backlog(msgspec.Struct):
    in_flight_requests: int | None = None


def deployments(text: str) -> list[Deployment]:
    """All of them, in a stable order. Pure."""
    samples = parse(text, _OF_DEPLOYMENTS)
    found: dict[str, Deployment] = {}
    for labels, value in samples.get(_STATE, []):
        identity = _label(labels, "model_id")
        state = int(value) if value in _STATES else None
        if identity and identity not in found:
            found[identity] = _deployment(identity, labels, state)
        elif identity and found[identity].state != state:
            # A failed request may leave a series with another name: which one is of now is not told.
            found[identity] = msgspec.structs.replace(found[identity], state=None)
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for labels, value in samples.get(f"{_PER_TOKEN}_sum", []):
        if 0 <= value < MAX_TOTAL:
            identity = _label(labels, "model_id")
            sums[identity] = sums.get(identity, 0.0) + value
    for labels, value in samples.get(f"{_PER_TOKEN}_count", []):
        if 0 <= value < MAX_TOTAL:
            identity = _label(labels, "model_id")
            counts[identity] = counts.get(identity, 0) + int(value)
            if identity:
                found.setdefault(identity, _deployment(identity, labels, None))
    return [
        msgspec.structs.replace(each, seconds=sums.get(identity, 0.0), requests=counts.get(identity, 0))
        for identity, each in sorted(found.items(), key=lambda item: (item[1].name, item[0]))
    ]


def _deployment(identity: str, labels: Labels, state: int | None) -> Deployment:
    name = _label(labels, "litellm_model_name") or "?"
    return Deployment(identity, name, _label(labels, "api_base"), state)


def _label(labels: Labels, name: str) -> str:
    return clean(labels.get(name, ""), 80)


def _served_at(address: str) -> str | None:
    """The origin alone: what stands before or behind it may hold a key."""
    parts = urlsplit(address) if address.isprintable() else urlsplit("")
    try:
        return normalise(f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else "")
    except (UsageError, ValueError):
        return None


def _in_flight(found: Exposition) -> int | None:
    return _without_ours(found.count("in_flight"))


def _without_ours(count: int | None) -> int | None:
    """The question itself is in flight while it is answered."""
    return max(0, count - 1) if count is not None and count < 1 << 40 else None


def _with_totals(sample: EngineSample, found: Exposition) -> EngineSample:
    # Questions that were refused stand there too, without a deployment.
    finished = {
        identity: int(value)
        for identity, value in found.each("finished", "model_id").items()
        if identity not in ("", "None") and value >= 0
    }
    return msgspec.structs.replace(
        sample,
        prompt_tokens_total=found.count("input"),
        cached_tokens_total=found.count("cached"),
        output_tokens_total=found.count("output"),
        finished_total=sum(finished.values()) if finished else None,
    )


def _is_litellm(reply: Reply) -> bool:
    fields = reply.fields()
    return {"status", "db"} == fields or {"status", "db", "litellm_version"} <= fields


def _is_its_front_page(reply: Reply) -> bool:
    text = reply.text()[:20_000]
    return text.strip() == '"LiteLLM: RUNNING"' or "<title>LiteLLM API" in text


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return LiteLlmAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=LiteLlmAdapter.allowed_paths,
    adapter=_adapter,
    signs=(Sign("/", _is_its_front_page), Sign("/health/readiness", _is_litellm)),
    look=ProcessLook(programs=r"litellm", ports=(4000,), images=("berriai/litellm",)),
)
