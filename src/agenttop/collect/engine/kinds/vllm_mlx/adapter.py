"""vllm-mlx: `/v1/status` for what its requests do, `/health` for what it is, `/metrics` where that is on.

All three are read from memory: none loads a model that was unloaded, or keeps it from being unloaded.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import KEY_HINT, ChangedError, EngineReading, restart_event
from agenttop.collect.engine.exposition import Catalogue
from agenttop.collect.engine.fields import fields_of, model_name
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import EngineClient, UnauthorisedError, UnexpectedError
from agenttop.collect.engine.kinds.vllm_mlx import frames
from agenttop.collect.engine.kinds.vllm_mlx.status import Status, read
from agenttop.collect.engine.kinds.vllm_mlx.work import Work
from agenttop.collect.engine.stated import nothing_shown
from agenttop.model.frames import EngineSample, LatencySample

NAME = "vllm-mlx"
ALLOWED = frozenset({"/v1/status", "/health", "/metrics"})
CATALOGUE = Catalogue(
    ("vllm_mlx_",),
    {"loaded": ("model_loaded",)},
    histograms={"ttft": ("inference_ttft_seconds",), "e2e": ("inference_request_duration_seconds",)},
)
_HEALTH_EVERY_S = 60.0
_METRICS_EVERY_S = 5.0
_METRICS_AGAIN_S = 60.0
"""Where it is off: that changes with a restart only."""


class VllmMlxAdapter:
    """Reads one vllm-mlx server."""

    name = NAME
    allowed_paths = ALLOWED

    def __init__(
        self, client: EngineClient, *, pid: int | None = None, sequences_max: int | None = None
    ) -> None:
        """`pid` and `sequences_max` are told by the server's process, where it can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._sequences_max = sequences_max
        self._health = Asked(client, "/health", _HEALTH_EVERY_S)
        self._metrics = Asked(client, "/metrics", _METRICS_EVERY_S)
        self._metrics_off = False
        self._latencies = LatencyWindow(self._url)
        self._work = Work()

    async def alive(self) -> bool:
        """`/health` answers from memory, and needs no key."""
        return await self.client.answers("/health")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        try:
            reply = await self.client.get("/v1/status")
        except UnauthorisedError:
            return await self._locked()
        if reply.status == 404:
            raise ChangedError
        found = read(fields_of(reply), reply.at)
        if found is None:
            raise UnexpectedError(f"answers GET /v1/status with {reply.status} and no status")
        health = fields_of(await self._health.answer_if_any())
        simple = health.text("engine_type") == "simple"
        sample = self._sample(found.at, found.model or model_name(health.text("model_name", 200)))
        if found.registry is not None:
            return self._of_registry(sample, found)
        if found.state == "not_loaded" or found.residency in ("unloaded", "loading", "unloading", "failed"):
            return self._without_model(sample, found)
        restarted = self._work.went_back(found)
        if restarted:
            self._forget()
        self._work.update(found)
        latencies = await self._ask_latencies()
        most = 1 if simple else self._sequences_max
        return EngineReading(
            sample=msgspec.structs.replace(
                frames.with_figures(sample, found, self._work), sequences_max=most
            ),
            slots=frames.slots(found.at, self._url, self._work),
            latencies=latencies,
            missing=frames.missing(
                found.at,
                self._url,
                found,
                self._work,
                sequences_known=most is not None,
                metrics_off=self._metrics_off,
            ),
            events=[restart_event(found.at, NAME, self._url)]
            if restarted and found.residency is None
            else [],
        )

    def _sample(self, t: float, model: str | None) -> EngineSample:
        return EngineSample(
            t=t, engine=self._url, url=self._url, name=NAME, state="ok", model=model, pid=self._pid
        )

    async def _locked(self) -> EngineReading:
        """What is open without a key. Raises EngineError."""
        reply = await self.client.get("/health")
        health = fields_of(reply)
        sample = self._sample(reply.at, model_name(health.text("model_name", 200)))
        return EngineReading(
            sample=frames.locked(sample, self._url, given=self.client.has_key),
            missing=nothing_shown(self._url, reply.at, "vllm-mlx needs a key", KEY_HINT),
        )

    def _of_registry(self, sample: EngineSample, found: Status) -> EngineReading:
        loaded = [model.name for model in found.registry or () if model.state == "loaded"]
        shown = msgspec.structs.replace(sample, model=loaded[0] if len(loaded) == 1 else None)
        missing = frames.missing(
            found.at, self._url, found, self._work, sequences_known=False, metrics_off=False
        )
        parts = frames.parts(found.at, self._url, found)
        return EngineReading(sample=shown, parts=parts, missing=missing)

    def _without_model(self, sample: EngineSample, found: Status) -> EngineReading:
        self._forget()
        if found.residency == "loading":
            state, note = "loading", "loading the model"
        elif found.residency == "failed":
            state, note = "down", "it could not load its model: its log says why"
        else:
            state, note = "asleep", "its model is unloaded; the next request loads it"
        return EngineReading(
            sample=msgspec.structs.replace(sample, state=state, note=note),
            missing=nothing_shown(self._url, found.at, note),
        )

    async def _ask_latencies(self) -> list[LatencySample]:
        if not self._metrics.due:
            return []
        reply = await self._metrics.answer_if_any()
        self._metrics_off = reply is not None and reply.status == 404
        if self._metrics_off:
            self._metrics.put_off(_METRICS_AGAIN_S)
        if reply is None or reply.status != 200:
            return []
        return self._latencies.add(reply.at, CATALOGUE.read(reply.text()).histograms)

    def _forget(self) -> None:
        """Another process, or its model loaded anew: nothing seen before belongs to it."""
        self._work = Work()
        self._latencies.forget()
