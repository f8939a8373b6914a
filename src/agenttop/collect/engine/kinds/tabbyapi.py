"""TabbyAPI: the model that is loaded, and how. It tells nothing of what it does.

`/health` is open; the rest needs a key, which TabbyAPI makes for itself at its first start. Where there is no
key, what is open is shown. None of the GETs loads a model.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import KEY_HINT, ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.fields import Fields, fields_of, model_name
from agenttop.collect.engine.http import EngineClient, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook
from agenttop.collect.engine.stated import nothing_shown
from agenttop.model.frames import EngineSample, Missing

NAME = "TabbyAPI"
ALLOWED = frozenset({"/health", "/v1/model"})
_EVERY_S = 3.0
_FIGURES = (
    "running waiting decode_tok_s prefill_tok_s last_decode_tok_s slots slots_total output_tokens_total "
    "kv_used_tokens kv_used_fraction memory_bytes"
)


class TabbyAdapter:
    """Reads one TabbyAPI server."""

    name = NAME
    allowed_paths = ALLOWED

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._health = Asked(client, "/health", _EVERY_S)
        self._model = Asked(client, "/v1/model", _EVERY_S)

    async def alive(self) -> bool:
        """`/health` answers from memory, and needs no key."""
        return await self.client.answers("/health")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The server itself is asked every 3 s."""
        reply = await self._health.answer()
        if reply.status == 404:
            raise ChangedError
        health = Fields(reply.json(dict)) if reply.status in (200, 503) else Fields()
        if not health.has("status"):
            raise UnexpectedError(f"answers GET /health with {reply.status}")
        sample = self._sample(reply.at)
        if health.text("status") == "unhealthy" or reply.status == 503:
            note = "TabbyAPI says that it is unhealthy: its log says why"
            return EngineReading(
                sample=msgspec.structs.replace(sample, state="busy", note=note),
                missing=nothing_shown(self._url, sample.t, "TabbyAPI is not well"),
            )
        card = await self._model.answer_if_any()
        if self._model.locked:
            return self._locked(sample)
        if card is not None and card.status == 404:
            raise ChangedError
        found = fields_of(card)
        told = found.object("parameters")
        sample = msgspec.structs.replace(
            sample,
            model=model_name(found.text("id", 200)),
            context_limit_tokens=told.positive("max_seq_len"),
            kv_layout="paged" if told.positive("cache_size") else None,
            kv_pool_tokens=told.positive("cache_size"),
            kv_dtype=told.text("cache_mode", 40),
            sequences_max=told.positive("max_batch_size"),
        )
        return EngineReading(sample=sample, missing=self._missing(sample, answered=card is not None))

    def _sample(self, t: float) -> EngineSample:
        return EngineSample(t=t, engine=self._url, url=self._url, name=NAME, state="ok", pid=self._pid)

    def _locked(self, sample: EngineSample) -> EngineReading:
        how = "does not accept the key that was given" if self.client.has_key else f"wants a key: {KEY_HINT}"
        note = f"TabbyAPI at {self._url} lives, and {how}; the keys are in its api_tokens.yml"
        return EngineReading(
            sample=msgspec.structs.replace(sample, state="unauthorised", note=note),
            missing=nothing_shown(self._url, sample.t, "TabbyAPI needs a key", KEY_HINT),
        )

    def _missing(self, sample: EngineSample, *, answered: bool) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add(
            _FIGURES, "TabbyAPI tells speeds in its replies and its log alone, and its use not at all"
        )
        reasons.add("version quantisation", "TabbyAPI's API does not tell it")
        loaded = "model context_limit_tokens kv_pool_tokens kv_dtype sequences_max"
        if not answered:
            reasons.add(loaded, "GET /v1/model is not answered")
            return reasons.frames
        if sample.model is None:
            reasons.add(
                loaded, "no model is loaded", "load one: POST /v1/model/load, or model_name in config.yml"
            )
            return reasons.frames
        for field in loaded.split()[1:]:
            if getattr(sample, field) is None:
                reasons.add(field, "GET /v1/model does not tell it")
        return reasons.frames


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return TabbyAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=ALLOWED,
    adapter=_adapter,
    owners=("tabbyapi",),
    look=ProcessLook(
        programs=r"(?i:[^/]*tabby-?api[^/]*)/(?:main|start)\.py",
        ports=(5000,),
        images=("theroyallab/tabbyapi",),
    ),
)
