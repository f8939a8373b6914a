"""oMLX: `/api/status`, which it makes for tools that ask again and again, and the state of each model.

Its totals move when a request ends, and its speeds are averages over the session: neither is a rate of now,
and neither is shown as one. Both GETs are read from memory and load no model. `/health` is open where the
rest needs a key.
"""

from __future__ import annotations

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import KEY_HINT, ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.fields import Fields, fields_of, model_name
from agenttop.collect.engine.http import EngineClient, UnauthorisedError, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.served import settled
from agenttop.collect.engine.stated import nothing_shown
from agenttop.model.frames import EngineSample, Missing, PartSample

NAME = "oMLX"
ALLOWED = frozenset({"/api/status", "/v1/models/status", "/health"})
_MODELS_EVERY_S = 10.0
MOST_PARTS = 64
"""Models that are told; loaded ones come first."""


class OmlxAdapter:
    """Reads one oMLX server."""

    name = NAME
    allowed_paths = ALLOWED

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._models = Asked(client, "/v1/models/status", _MODELS_EVERY_S)
        self._loaded: list[str] = []

    async def alive(self) -> bool:
        """`/health` answers from memory, and needs no key."""
        return await self.client.answers("/health")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        try:
            reply = await self.client.get("/api/status")
        except UnauthorisedError:
            return await self._locked()
        if reply.status == 404:
            raise ChangedError
        found = fields_of(reply)
        if not found.has("status"):
            raise UnexpectedError(f"answers GET /api/status with {reply.status} and no status")
        names = found.texts("loaded_models", 200)
        if names != self._loaded:
            self._models.doubt()
        self._loaded = names
        listed = await self._models.answer_if_any()
        rows = fields_of(listed).objects("models")
        sample = self._sample(reply.at, found, _in_use(names, rows))
        return EngineReading(
            sample=sample,
            parts=self._parts(reply.at, rows, names),
            missing=self._missing(reply.at, sample, names, listed=bool(rows)),
        )

    async def _locked(self) -> EngineReading:
        """What is open without a key. Raises EngineError."""
        reply = await self.client.get("/health")
        health = fields_of(reply)
        how = "does not accept the key that was given" if self.client.has_key else f"wants a key: {KEY_HINT}"
        sample = EngineSample(
            t=reply.at,
            engine=self._url,
            url=self._url,
            name=NAME,
            state="unauthorised",
            note=f"oMLX at {self._url} lives, and {how}",
            pid=self._pid,
            memory_bytes=health.object("engine_pool").size("current_model_memory"),
        )
        return EngineReading(
            sample=sample, missing=nothing_shown(self._url, reply.at, "oMLX needs a key", KEY_HINT)
        )

    def _sample(self, t: float, found: Fields, row: Fields) -> EngineSample:
        active, waiting = found.count("active_requests"), found.count("waiting_requests")
        share = found.number("cache_efficiency")
        return EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=NAME,
            state="ok",
            version=found.text("version", 40),
            model=model_name(row.text("id", 200)),
            pid=self._pid,
            context_limit_tokens=row.positive("max_context_window"),
            # Those that wait are among the active ones.
            running=max(0, active - (waiting or 0)) if active is not None else None,
            waiting=waiting,
            prompt_tokens_total=found.count("total_prompt_tokens"),
            cached_tokens_total=found.count("total_cached_tokens"),
            output_tokens_total=found.count("total_completion_tokens"),
            finished_total=found.count("total_requests"),
            prefix_hit_fraction=min(1.0, share / 100) if share is not None else None,
            memory_bytes=found.size("model_memory_used"),
        )

    def _parts(self, t: float, rows: list[Fields], loaded: list[str]) -> list[PartSample]:
        found: dict[str, PartSample] = {}
        for row in rows or [Fields({"id": name, "loaded": True}) for name in loaded]:
            name = model_name(row.text("id", 200))
            if name is not None:
                state = (
                    "loaded" if row.flag("loaded") else "loading" if row.flag("is_loading") else "unloaded"
                )
                found[name] = PartSample(
                    t=t,
                    engine=self._url,
                    part=name,
                    role="model",
                    state=state,
                    context_limit_tokens=row.positive("max_context_window"),
                    memory_bytes=row.size("actual_size") or None if state == "loaded" else None,
                    note="pinned" if row.flag("pinned") else None,
                )
        return sorted(found.values(), key=lambda part: (part.state == "unloaded", part.part))[:MOST_PARTS]

    def _missing(self, t: float, sample: EngineSample, loaded: list[str], *, listed: bool) -> list[Missing]:
        reasons = Reasons(self._url, t)
        reasons.add(
            "decode_tok_s prefill_tok_s",
            "oMLX counts tokens when a request ends, and its speeds are averages over the session; rates of "
            "now are in its admin panel alone",
        )
        reasons.add(
            "last_decode_tok_s last_prefill_tok_s", "oMLX averages over all requests, not the last one"
        )
        reasons.add(
            "slots slots_total", "GET /api/status tells how many requests run, not what each of them does"
        )
        reasons.add(
            "kv_pool_tokens kv_used_tokens kv_used_fraction",
            "oMLX tells its KV cache to its admin panel alone",
        )
        reasons.add("preemptions_total", "its API does not tell it")
        if not loaded:
            reasons.add("model context_limit_tokens", "no model is loaded; the next request loads one")
        elif sample.model is None:
            reasons.add(
                "model context_limit_tokens", "several models are loaded, and which is used is not told"
            )
        elif sample.context_limit_tokens is None:
            reasons.add("context_limit_tokens", "GET /v1/models/status does not tell it")
        if not listed:
            reasons.add("models", "GET /v1/models/status does not answer", "update oMLX")
        return settled(sample, reasons, "GET /api/status does not tell it")


def _in_use(loaded: list[str], rows: list[Fields]) -> Fields:
    """Of the loaded models, the one that was used last."""
    found = [row for row in rows if row.flag("loaded") and row.text("id", 200)]
    if found:
        return max(found, key=lambda row: row.number("last_access") or 0.0)
    return Fields({"id": loaded[0]}) if len(loaded) == 1 else Fields()


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OmlxAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=ALLOWED,
    adapter=_adapter,
    owners=("omlx",),
    signs=(Sign("/api/status", lambda reply: reply.has("models_discovered", "model_memory_used")),),
    look=ProcessLook(programs=r"omlx(?:-server)?", modules=("omlx",), ports=(8000,)),
)
