"""LM Studio: which models are loaded, and how. It tells nothing of what they do.

`/api/v1/models` from 0.4 on, `/api/v0/models` from 0.3.6 on. Listing loads no model: only requests that
generate do. A path it does not know is answered with 200 and a line in its log, so which of the two lists
there is, is found out once.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.fields import Fields, fields_of, model_name
from agenttop.collect.engine.http import EngineClient, Reply, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.model.frames import EngineSample, Missing, PartSample

NAME = "LM Studio"
LISTS = ("/api/v1/models", "/api/v0/models")
_EVERY_S = 3.0
MOST_PARTS = 64
"""Models that are told; loaded ones come first."""
_UNKNOWN_PATH = "Unexpected endpoint or method"


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """One model, or one of several copies of it."""

    name: str
    state: str
    """loaded, not-loaded, loading, ..., in LM Studio's word."""
    quantisation: str | None = None
    context: int | None = None
    """That it is loaded with."""
    most_context: int | None = None
    parallel: int | None = None
    """Requests it works on at once."""


class LmStudioAdapter:
    """Reads one LM Studio server."""

    name = NAME
    allowed_paths = frozenset(LISTS)

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._lists = [Asked(client, path, _EVERY_S) for path in LISTS]

    async def alive(self) -> bool:
        """The list is the cheapest there is."""
        return await self.client.answers(self._lists[0].path)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The server itself is asked every 3 s."""
        reply, models = await self._look()
        models.sort(key=lambda model: (model.state != "loaded", model.name))
        loaded = [model for model in models if model.state == "loaded"]
        only = loaded[0] if len(loaded) == 1 else None
        sample = EngineSample(
            t=reply.at,
            engine=self._url,
            url=self._url,
            name=NAME,
            state="ok",
            model=only.name if only is not None else None,
            pid=self._pid,
            context_limit_tokens=only.context if only is not None else None,
            quantisation=only.quantisation if only is not None else None,
            sequences_max=only.parallel if only is not None else None,
        )
        parts = [
            PartSample(
                t=reply.at,
                engine=self._url,
                part=model.name,
                role="model",
                state=model.state,
                context_limit_tokens=model.context or model.most_context,
                quantisation=model.quantisation,
            )
            for model in models[:MOST_PARTS]
        ]
        return EngineReading(sample=sample, parts=parts, missing=self._missing(sample, len(loaded)))

    async def _look(self) -> tuple[Reply, list[Loaded]]:
        """The models, by the newest list there is. Raises EngineError, ChangedError."""
        statuses = []
        for asked in list(self._lists):
            reply = await asked.answer()
            found = fields_of(reply)
            if found.has("models") or found.has("data"):
                self._lists = [asked]
                return reply, _newer(found) if found.has("models") else _older(found)
            statuses.append(reply.status)
        if 404 in statuses:
            raise ChangedError
        raise UnexpectedError(f"answers GET {LISTS[-1]} with {statuses[-1]} and no models")

    def _missing(self, sample: EngineSample, loaded: int) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add(
            "running waiting decode_tok_s prefill_tok_s last_decode_tok_s slots slots_total",
            "LM Studio's API tells which models are loaded, not what they do",
            "lms ps --json shows which model generates and how many requests wait",
        )
        reasons.add(
            "kv_pool_tokens kv_used_tokens kv_used_fraction memory_bytes",
            "LM Studio tells neither its KV cache nor the memory of its models",
        )
        reasons.add("version", "LM Studio's API does not tell it")
        if loaded == 0:
            reasons.add(
                "model context_limit_tokens quantisation", "no model is loaded; the next request loads one"
            )
        elif loaded > 1:
            reasons.add(
                "model context_limit_tokens quantisation", "several models are loaded: each has its own"
            )
        else:
            for field in ("context_limit_tokens", "quantisation"):
                if getattr(sample, field) is None:
                    reasons.add(field, "this version does not tell it of a loaded model", "update LM Studio")
        if sample.sequences_max is None and loaded == 1:
            reasons.add("sequences_max", "this version does not tell it", "update LM Studio")
        return reasons.frames


def _newer(found: Fields) -> list[Loaded]:
    """`/api/v1/models`: a model may be loaded several times, each under a name of its own."""
    models = []
    for row in found.objects("models"):
        key = model_name(row.text("key", 200))
        if key is None:
            continue
        quantisation = row.object("quantization").text("name", 40)
        most = row.positive("max_context_length")
        instances = row.objects("loaded_instances")
        for instance in instances:
            config = instance.object("config")
            models.append(
                Loaded(
                    name=model_name(instance.text("id", 200)) or key,
                    state="loaded",
                    quantisation=quantisation,
                    context=config.positive("context_length"),
                    most_context=most,
                    parallel=config.positive("parallel"),
                )
            )
        if not instances:
            models.append(Loaded(name=key, state="not-loaded", quantisation=quantisation, most_context=most))
    return models


def _older(found: Fields) -> list[Loaded]:
    """`/api/v0/models`."""
    models = []
    for row in found.objects("data"):
        name = model_name(row.text("id", 200))
        if name is not None:
            models.append(
                Loaded(
                    name=name,
                    state=row.text("state", 40) or "unknown",
                    quantisation=row.text("quantization", 40),
                    context=row.positive("loaded_context_length"),
                    most_context=row.positive("max_context_length"),
                )
            )
    return models


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return LmStudioAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=LmStudioAdapter.allowed_paths,
    adapter=_adapter,
    owners=("organization_owner",),
    signs=(
        Sign("/props", lambda reply: _UNKNOWN_PATH in (fields_of(reply).text("error", 200) or "")),
        Sign("/api/v0/models", lambda reply: '"compatibility_type"' in reply.text()),
    ),
    look=ProcessLook(programs=r"LM Studio.*|llmster", ports=(1234,)),
)
