"""Any server with an OpenAI-compatible API: who it is, which model it serves, whether it lives.

What runs inside cannot be told from that API. Engines whose own figures are not read yet are shown under
their own name, and every figure says why it is missing.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineReading, Reasons
from agenttop.collect.engine.http import EngineClient, EngineError, Reply, UnexpectedError
from agenttop.model.frames import EngineSample
from agenttop.model.text import clean

GENERIC = "openai"

_VERSION_PATHS = {"vLLM": "/version", "Ollama": "/api/version"}
_EVERY_S = 3.0
_FIGURES = "running waiting slots kv_used_tokens kv_pool_tokens decode_tok_s prefill_tok_s"


class Model(msgspec.Struct):
    """One entry of `/v1/models`."""

    id: str = ""
    owned_by: str | None = None
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: list[Model] = []


class _Version(msgspec.Struct):
    version: str


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
        self._models: Reply | None = None

    async def alive(self) -> bool:
        """The list of models is the cheapest request: SGLang's `/health`, for one, runs inference."""
        try:
            await self.client.get("/v1/models", answer_s=2.0)
        except EngineError:
            return False
        return True

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The server itself is asked every 3 s."""
        if self._models is None or self.client.now() - self._models.at >= _EVERY_S - 0.3:
            reply = await self.client.get("/v1/models")
            if reply.status == 404 or "llama.cpp" in reply.headers.get("server", ""):
                raise ChangedError
            if reply.status != 200:
                raise UnexpectedError(f"answers GET /v1/models with {reply.status}")
            self._models = reply
        await self._ask_version()
        listed = self._models.json(Models) or Models()
        model = listed.data[0] if listed.data else Model()
        t = self._models.at
        reasons = Reasons(self._url, t)
        who = (
            "an OpenAI-compatible API"
            if self.name == GENERIC
            else f"{self.name}, which is not read yet: its API"
        )
        reasons.add(_FIGURES, f"{who} shows only the model")
        sample = EngineSample(
            t=t,
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

    async def _ask_version(self) -> None:
        path = _VERSION_PATHS.get(self.name)
        if path is None or self._asked_version:
            return
        self._asked_version = True
        reply = await self.client.get(path)
        found = reply.json(_Version)
        self._version = clean(found.version, 40) if found is not None else None


def allowed_paths(name: str) -> frozenset[str]:
    """What may be asked of an engine of this name."""
    path = _VERSION_PATHS.get(name)
    return frozenset({"/v1/models"} | ({path} if path else set()))
