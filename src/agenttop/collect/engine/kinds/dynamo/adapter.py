"""NVIDIA Dynamo. Two addresses lead here.

The front end takes requests and passes them on to workers; it knows its models, what is in flight, and every
token that goes out. What happens inside an engine is told by the metrics port of its worker
(`DYN_SYSTEM_PORT`, off unless set), where the engine's own metrics are passed through.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from agenttop.collect.engine.base import KEY_HINT, ChangedError, EngineReading, Reasons, restart_event
from agenttop.collect.engine.counters import CounterWindow, Makeup
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import (
    CutError,
    EngineClient,
    UnauthorisedError,
    UnexpectedError,
)
from agenttop.collect.engine.kinds.dynamo.metrics import Front, Model, Worker, read_front, read_worker
from agenttop.collect.engine.kinds.vllm import frames as vllm
from agenttop.collect.engine.kinds.vllm.metrics import Figures, read
from agenttop.collect.engine.kinds.vllm.work import Work
from agenttop.model.frames import EngineSample, PartSample
from agenttop.model.text import clean

PAGE_LIMIT = 8_000_000
_MODELS_EVERY_S = 60.0
_GATEWAY = (502, 503, 504)
_INSIDE = (
    "kv_used_fraction kv_used_tokens kv_pool_tokens kv_dtype preemptions_total prefill_tok_s "
    "prefix_hits_tokens_total prefix_queries_tokens_total drafted_tokens_total accepted_tokens_total "
    "draft_acceptance tokens_per_step quantisation"
)
_WORKER_FIX = "start the workers with DYN_SYSTEM_PORT=8081 and name that port with --url"
BEFORE_TOKEN = "before their first token"


class DynamoAdapter:
    """Reads one front end, or one worker."""

    name = "Dynamo"
    allowed_paths = frozenset({"/metrics", "/v1/models"})

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the process that listens, where it can be seen."""
        self.client = client
        client.prove_by("/v1/models")
        self._url = client.base_url
        self._pid = pid
        self._window = CounterWindow()
        self._makeup = Makeup()
        self._latency = LatencyWindow(self._url)
        self._work = Work(self._url)
        self._role: str | None = None
        self._served: list[str] = []
        self._locked = False
        self._models_at = -math.inf

    async def alive(self) -> bool:
        """Its metrics come from memory."""
        return await self.client.answers("/metrics", limit=PAGE_LIMIT)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        reply = await self.client.get("/metrics", limit=PAGE_LIMIT)
        if "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        if reply.status in _GATEWAY:
            raise CutError(f"answers GET /metrics with {reply.status}: what serves it is gone, or starts")
        if reply.status not in (200, 404):
            raise UnexpectedError(f"answers GET /metrics with {reply.status}")
        text = reply.text() if reply.status == 200 else ""
        front = read_front(text, reply.at)
        worker = read_worker(text) if front is None else None
        role = "front" if front is not None else "worker" if worker is not None else None
        if role is None or self._role not in (None, role):
            raise ChangedError
        self._role = role
        if front is not None:
            await self._ask_models()
            return self._of_front(front)
        assert worker is not None
        return self._of_worker(worker, read(text, reply.at), reply.at)

    async def _ask_models(self) -> None:
        if self.client.now() - self._models_at < _MODELS_EVERY_S:
            return
        try:
            reply = await self.client.get("/v1/models")
        except UnauthorisedError:
            self._locked, self._models_at = True, self.client.now()
            return
        found = (reply.json(dict[str, Any]) if reply.status == 200 else None) or {}
        data = found.get("data")
        rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
        if rows and str(rows[0].get("owned_by") or "nvidia").lower() != "nvidia":
            raise ChangedError
        self._served = [name for row in rows[:64] if (name := clean(str(row.get("id") or ""), 80))]
        # While no worker has come there is no model, which is soon looked at again.
        self._locked, self._models_at = False, reply.at if self._served else self.client.now() - 50.0

    # The front end

    def _of_front(self, found: Front) -> EngineReading:
        events = []
        gauges: dict[str, float | None] = {"answering": found.answering}
        for model in found.models:
            gauges[f"answering/{model.name}"] = model.answering
        if self._makeup.changed(model.name for model in found.models):
            self._window = CounterWindow()
            self._latency.forget()
        if self._window.add(found.at, found.counters, gauges):
            self._latency.forget()
            events.append(restart_event(found.at, self.name, self._url))
        decode, running = self._window.rate("output"), self._window.mean("answering")
        each = decode / running if decode is not None and running else None
        names = self._served or [model.name for model in found.models]
        only = found.models[0] if len(found.models) == 1 else None
        sample = EngineSample(
            t=found.at,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            model=names[0] if len(names) == 1 else None,
            pid=self._pid,
            front=True,
            window_s=self._window.span_s,
            running=found.answering,
            waiting=found.queued,
            waiting_reasons={BEFORE_TOKEN: found.queued} if found.queued else {},
            context_limit_tokens=only.context if only is not None else None,
            decode_tok_s=decode,
            per_sequence_tok_s=each,
            per_sequence_of=running if each is not None else None,
            prompt_tokens_total=found.prompt,
            cached_tokens_total=found.cached,
            output_tokens_total=found.output,
            finished_total=found.finished,
            finish_reasons=found.finish_reasons,
        )
        parts = [self._part(found.at, model) for model in found.models]
        reasons = self._missing_of_front(found, only, len(names))
        latencies = self._latency.add(found.at, found.histograms)
        return EngineReading(
            sample=sample, latencies=latencies, parts=parts, missing=reasons.frames, events=events
        )

    def _part(self, t: float, model: Model) -> PartSample:
        ready = {True: "ready", False: "not ready", None: None}[model.ready]
        per_worker = model.pool is not None
        return PartSample(
            t=t,
            engine=self._url,
            part=model.name,
            role="model",
            state=ready,
            running=model.answering,
            waiting=model.queued,
            kv_pool_tokens=model.pool,
            context_limit_tokens=model.context,
            decode_tok_s=self._window.rate(f"output/{model.name}"),
            note="its pool is that of one worker" if per_worker else None,
        )

    def _missing_of_front(self, found: Front, only: Model | None, models: int) -> Reasons:
        reasons = Reasons(self._url, found.at)
        reasons.add("slots_total", "Dynamo has no slots: its workers' engines batch as they can")
        reasons.add("version", "Dynamo does not tell it")
        reasons.add(_INSIDE, "the front end does not see into the engines of its workers", _WORKER_FIX)
        why = "the front end tells it of one worker, and not how many workers there are"
        reasons.add("sequences_max", why, _WORKER_FIX)
        if self._locked:
            reasons.add("model", "GET /v1/models needs a key", KEY_HINT)
        elif models != 1:
            why = "no worker has come with a model" if models == 0 else "it serves several: see its parts"
            reasons.add("model", why)
        if only is None or only.context is None:
            why = "its models have limits of their own" if models > 1 else "no worker has told it"
            reasons.add("context_limit_tokens", why)
        if found.output is None:
            reasons.add(
                "decode_tok_s output_tokens_total",
                "no request has come yet, or this version does not count them",
            )
        for field, value in (("running", found.answering), ("waiting", found.queued)):
            if value is None:
                reasons.add(field, "this version does not tell it")
        if not found.histograms:
            reasons.add("latencies", "no request has ended yet")
        return reasons

    # A worker

    def _of_worker(self, worker: Worker, found: Figures | None, t: float) -> EngineReading:
        events = []
        rates = vllm.Rates()
        sample = EngineSample(t=t, engine=self._url, url=self._url, name=self.name, state="ok", pid=self._pid)
        given = vllm.Settings()
        parts: list[PartSample] = []
        latencies = []
        reasons = Reasons(self._url, t)
        reasons.add("version", "Dynamo does not tell it")
        reasons.add("context_limit_tokens", "a worker does not tell it", "name the front end with --url")
        if found is not None:
            if self._work.add(found):
                events.append(restart_event(t, self.name, self._url))
            rates, latencies = self._work.rates(found), self._work.latencies(found)
            sample = vllm.with_figures(sample, found, rates, given)
            parts = vllm.parts(t, self._url, found, rates, "rank")
            vllm.figures(reasons, found)
            vllm.gauges(reasons, found)
            if found.kv_dtype is None:
                reasons.add("kv_dtype", "its engine does not tell it here")
        else:
            why = "of its engine's own metrics only vLLM's are read here"
            reasons.add(vllm.FIGURES, why, "name the front end with --url")
        reasons.add("sequences_max quantisation", "a worker does not tell its engine's settings")
        return EngineReading(
            sample=msgspec.structs.replace(sample, **_filled(sample, worker)),
            latencies=latencies,
            parts=parts,
            missing=_without(reasons, sample, worker),
            events=events,
        )


def _filled(sample: EngineSample, worker: Worker) -> dict[str, Any]:
    """What the runtime tells where the engine does not."""
    told = {
        "running": worker.inflight,
        "kv_used_fraction": worker.fraction,
        "finished_total": worker.finished,
    }
    return {
        field: value for field, value in told.items() if value is not None and getattr(sample, field) is None
    }


def _without(reasons: Reasons, sample: EngineSample, worker: Worker) -> list[Any]:
    """The reasons for what is still missing."""
    there = {f"{sample.engine}:{field}" for field in _filled(sample, worker)}
    return [frame for frame in vllm.once_each(reasons.frames) if frame.what not in there]
