"""Any server with an OpenAI-compatible API: who it is, which model it serves, whether it lives.

What runs inside cannot be told from that API. Engines whose own figures are not read yet are shown under
their own name, and every figure says why it is missing.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.http import EngineClient, EngineError, Reply, UnexpectedError
from agenttop.collect.engine.kind import GENERIC, Circumstances, EngineKind
from agenttop.collect.engine.stated import STREAMS, Stated, StatedAdapter
from agenttop.model.frames import EngineSample
from agenttop.model.text import clean

_MODELS_PATH = "/v1/models"
_MODEL_PATHS = {"TGI": "/info"}
"""Engines that tell their model elsewhere."""
_VERSION_PATHS = {"Ollama": "/api/version", "TGI": "/info"}
_EVERY_S = 3.0
_EARLY_S = 0.3
"""A tick may come a little before its time."""
_FIGURES = "running waiting slots kv_used_tokens kv_pool_tokens decode_tok_s prefill_tok_s"


class Model(msgspec.Struct):
    """One entry of `/v1/models`."""

    id: str = ""
    owned_by: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: list[Model] = []


class _Info(msgspec.Struct):
    """TGI's `/info`, and the replies that hold a version alone."""

    model_id: str = ""
    max_total_tokens: int | None = None
    version: str = ""


class OpenAIAdapter:
    """Reads identity and liveness of one server."""

    def __init__(self, client: EngineClient, name: str = GENERIC, *, pid: int | None = None) -> None:
        self.client = client
        self.name = name
        self.allowed_paths = allowed_paths(name)
        self._url = client.base_url
        self._pid = pid
        self._version: str | None = None
        self._asked_version = False
        self._path = _MODEL_PATHS.get(name, _MODELS_PATH)
        self._reply: Reply | None = None

    async def alive(self) -> bool:
        """The list of models is the cheapest request: SGLang's `/health`, for one, runs inference."""
        try:
            await self.client.get(self._path, answer_s=2.0)
        except EngineError:
            return False
        return True

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The server itself is asked every 3 s."""
        reply = self._reply
        if reply is None or self.client.now() - reply.at >= _EVERY_S - _EARLY_S:
            reply = await self.client.get(self._path)
            if reply.status == 404 or "llama.cpp" in reply.headers.get("server", ""):
                raise ChangedError
            if reply.status != 200:
                raise UnexpectedError(f"answers GET {self._path} with {reply.status}")
            self._reply = reply
        await self._ask_version()
        model = self._model(reply)
        reasons = Reasons(self._url, reply.at)
        who = (
            "an OpenAI-compatible API"
            if self.name == GENERIC
            else f"{self.name}, which is not read yet: its API"
        )
        reasons.add(_FIGURES, f"{who} shows only the model")
        sample = EngineSample(
            t=reply.at,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=self._version,
            model=clean(model.id, 80) or None,
            pid=self._pid,
            context_limit_tokens=model.max_model_len if (model.max_model_len or 0) > 0 else None,
        )
        return EngineReading(sample=sample, missing=reasons.frames)

    def _model(self, reply: Reply) -> Model:
        if self._path != _MODELS_PATH:
            info = reply.json(_Info) or _Info()
            return Model(id=info.model_id, max_model_len=info.max_total_tokens)
        listed = reply.json(Models) or Models()
        return listed.data[0] if listed.data else Model()

    async def _ask_version(self) -> None:
        path = _VERSION_PATHS.get(self.name)
        if path is None or self._asked_version:
            return
        self._asked_version = True
        found = (await self.client.get(path)).json(_Info)
        self._version = clean(found.version, 40) or None if found is not None else None


def allowed_paths(name: str) -> frozenset[str]:
    """What may be asked of an engine of this name."""
    paths = {_MODEL_PATHS.get(name, _MODELS_PATH), _VERSION_PATHS.get(name)}
    return frozenset(path for path in paths if path is not None)


ABOUT = Stated(
    name=GENERIC,
    why=f"an OpenAI-compatible API tells which models it serves and nothing of its work; {STREAMS}",
)


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return StatedAdapter(client, ABOUT, pid=seen.pid)


KIND = EngineKind(name=GENERIC, allowed_paths=ABOUT.allowed, adapter=_adapter, rank=1000)
"""For what is no other kind; it is not in the entry-point group."""
