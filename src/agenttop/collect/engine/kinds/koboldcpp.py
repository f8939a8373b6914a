"""KoboldCpp: `/api/extra/perf` for the request that ended last and the queue, and what it is.

Its speeds are those of the last request that has ended, and are shown as such. Builds before the speeds were
told (2024) tell milliseconds for each token. All GETs answer from memory, also through the proxy of its
router mode, which swaps models only for requests that generate. `/api/extra/generate/check` would show what
is being written, and is never asked.
"""

from __future__ import annotations

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons, restart_event
from agenttop.collect.engine.fields import Fields, fields_of, model_name
from agenttop.collect.engine.http import CutError, EngineClient, Reply, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.served import settled
from agenttop.model.frames import EngineSample, Missing

NAME = "KoboldCpp"
ALLOWED = frozenset(
    {"/api/extra/perf", "/api/extra/version", "/api/v1/model", "/api/extra/true_max_context_length"}
)
_IDENTITY_EVERY_S = 60.0
_PROTECTED = "protected-model"
_NO_MODEL = "inactive"
_MOST_TOK_S = 1e7


class KoboldAdapter:
    """Reads one KoboldCpp server."""

    name = NAME
    allowed_paths = ALLOWED

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._version = Asked(client, "/api/extra/version", _IDENTITY_EVERY_S)
        self._model = Asked(client, "/api/v1/model", _IDENTITY_EVERY_S)
        self._context = Asked(client, "/api/extra/true_max_context_length", _IDENTITY_EVERY_S)
        self._uptime_s: float | None = None

    async def alive(self) -> bool:
        """`/api/extra/version` answers from memory, and needs no password."""
        return await self.client.answers("/api/extra/version")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        reply = await self.client.get("/api/extra/perf")
        if reply.status in (502, 503, 504):
            raise CutError(f"answers GET /api/extra/perf with {reply.status}: it loads a model, or has ended")
        if reply.status == 404:
            raise ChangedError
        perf = fields_of(reply)
        if not perf.has("queue"):
            raise UnexpectedError(f"answers GET /api/extra/perf with {reply.status} and no figures")
        restarted = self._is_restarted(perf)
        version = fields_of(await self._version.answer_if_any())
        if version and version.text("result") != NAME:
            raise ChangedError
        name = model_name(fields_of(await self._model.answer_if_any()).text("result", 200))
        context = fields_of(await self._context.answer_if_any()).positive("value")
        hidden = name is not None and name.endswith(_PROTECTED)
        sample = EngineSample(
            t=reply.at,
            engine=self._url,
            url=self._url,
            name=NAME,
            state="ok",
            version=version.text("version", 40),
            model=None if hidden or name == _NO_MODEL else name,
            pid=self._pid,
            context_limit_tokens=context,
            running=0 if perf.number("idle") == 1 else None,
            waiting=perf.count("queue"),
            finished_total=perf.count("total_gens"),
            last_decode_tok_s=_speed(perf, "last_eval_speed", "last_eval"),
            last_prefill_tok_s=_speed(perf, "last_process_speed", "last_process"),
        )
        missing = self._missing(reply.at, sample, hidden=hidden, no_model=name == _NO_MODEL)
        return EngineReading(
            sample=sample,
            missing=missing,
            events=[restart_event(reply.at, NAME, self._url)] if restarted else [],
        )

    def _is_restarted(self, perf: Fields) -> bool:
        """By the time it is up. A change of the model is a restart, too."""
        before, self._uptime_s = self._uptime_s, perf.number("uptime")
        restarted = before is not None and self._uptime_s is not None and self._uptime_s < before
        if restarted:
            for asked in (self._version, self._model, self._context):
                asked.doubt()
        return restarted

    def _missing(self, t: float, sample: EngineSample, *, hidden: bool, no_model: bool) -> list[Missing]:
        reasons = Reasons(self._url, t)
        reasons.add(
            "decode_tok_s prefill_tok_s",
            "KoboldCpp tells the speeds of a request when it has ended: see the last request's",
        )
        if sample.running is None:
            reasons.add("running", "KoboldCpp tells that it is at work, not on how many requests")
        reasons.add("slots slots_total", "KoboldCpp does not tell what each request does")
        reasons.add(
            "kv_pool_tokens kv_used_tokens kv_used_fraction",
            "KoboldCpp does not tell how full its context is",
        )
        reasons.add(
            "prompt_tokens_total output_tokens_total cached_tokens_total",
            "KoboldCpp counts requests, not tokens",
        )
        reasons.add("quantisation", "KoboldCpp tells the name of the model's file alone")
        if sample.last_decode_tok_s is None:
            reasons.add("last_decode_tok_s last_prefill_tok_s", "no request has ended yet")
        if hidden:
            reasons.add(
                "model",
                "it is shown to holders of its password alone",
                "give it like a key: --api-key-env NAME",
            )
        elif no_model:
            reasons.add("model", "no text model is loaded")
        elif sample.model is None:
            reasons.add("model", "GET /api/v1/model does not tell it")
        if sample.context_limit_tokens is None:
            reasons.add("context_limit_tokens", "GET /api/extra/true_max_context_length does not tell it")
        return settled(sample, reasons, "GET /api/extra/perf does not tell it")


def _speed(perf: Fields, tok_s: str, ms_each: str) -> float | None:
    """Tokens per second of the last request, from either of the two units; 0 stands for none yet."""
    if perf.has(tok_s):
        speed = perf.number(tok_s)
    else:
        each = perf.number(ms_each)
        speed = 1000 / each if each is not None and each > 1e-4 else None
    return speed if speed is not None and 0 < speed < _MOST_TOK_S else None


def _shows(reply: Reply) -> bool:
    return fields_of(reply).text("result") == NAME


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return KoboldAdapter(client, pid=seen.pid)


KIND = EngineKind(
    name=NAME,
    allowed_paths=ALLOWED,
    adapter=_adapter,
    owners=("koboldcpp",),
    signs=(Sign("/api/extra/version", _shows),),
    look=ProcessLook(programs=r"koboldcpp[\w.-]*", ports=(5001,), images=("koboldai/koboldcpp",)),
    rank=40,
)
