"""llama.cpp in router mode: a front that starts one server per model, at ports of 127.0.0.1.

`/v1/models` tells which model is in which state, and with which arguments its server runs. On this host the
servers are asked themselves. Elsewhere they are asked through the router, `?model=...&autoload=false`, which
answers with an error instead of loading a model. That goes by a model's state in the very look (only `loaded`
is asked), and a model that may fall asleep is left alone: a question would wake it, and keep it awake.
"""

from __future__ import annotations

import math
from functools import partial

import msgspec

from agenttop.collect.children import port_of
from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.composite import Child
from agenttop.collect.engine.front import FrontAdapter, model_name
from agenttop.collect.engine.http import BODY_LIMIT, EngineClient, RefusedError, Reply, UnexpectedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.llamacpp.adapter import IsRouterError, LlamaCppAdapter
from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments, read_arguments
from agenttop.collect.engine.kinds.llamacpp.frames import Props
from agenttop.collect.process import Command, ServerProcess
from agenttop.model.frames import PartSample

_QUERY = "?autoload=false&model=*"
ALLOWED_PATHS = frozenset(
    {"/health", "/props", "/v1/models", f"/slots{_QUERY}", f"/props{_QUERY}", f"/metrics{_QUERY}"}
)
_PROPS_EVERY_S = 60.0
_LOADED = ("loaded", "sleeping")
_ALL = "running waiting decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens"


class _Status(msgspec.Struct):
    value: str = ""
    args: list[str] = []
    failed: bool = False


class _Meta(msgspec.Struct):
    n_ctx: int | None = None
    ftype: str | None = None


class _Model(msgspec.Struct):
    id: str = ""
    status: _Status | None = None
    meta: _Meta | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class ServerOrRouter(LlamaCppAdapter):
    """Reads a llama.cpp server, or a router once it turns out to be one."""

    def __init__(
        self,
        client: EngineClient,
        seen: Circumstances,
        *,
        arguments: ServerArguments | None = None,
    ) -> None:
        super().__init__(client, metrics=seen.metrics, arguments=arguments, pid=seen.pid)
        self.allowed_paths = self.allowed_paths | ALLOWED_PATHS
        self._seen = seen
        self._router: RouterAdapter | None = None

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        if self._router is None:
            try:
                return await super().poll()
            except IsRouterError:
                self._router = RouterAdapter(self.client, self._seen)
                self.name = self._router.name
        return await self._router.poll()


class RouterAdapter(FrontAdapter):
    """Reads one router and the servers of its models."""

    name = "llama.cpp router"
    allowed_paths = ALLOWED_PATHS
    alive_path = "/health"

    def __init__(self, client: EngineClient, seen: Circumstances) -> None:
        fixes = {"--metrics": "start the router with --metrics, which its servers inherit"}
        super().__init__(client, seen, kind=LlamaCppAdapter.name, fixes=fixes)
        self._version: str | None = None
        self._props_at = -math.inf

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        await self._identify()
        models = await self._list()
        loaded = [name for name, model in models.items() if _state(model) in _LOADED]
        await self._kin.look(again=self._models.has_moved(loaded))
        reasons = Reasons(self._url, self.client.now())
        if self._version is None:
            reasons.add("version", "this build of llama.cpp does not know its own number")
        children = self._children(models, reasons)
        if loaded and all(_state(models[name]) == "sleeping" for name in loaded):
            why = "its models sleep until a request comes, and agenttop does not wake them"
            reasons.add("decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens", why)
        blind = any(frame.what.endswith(":running") for frame in reasons.frames)
        merged = await self._servers.look(children)
        if merged.died:
            await self._kin.look(again=True)
        t = self.client.now()
        if any(_state(model) == "loading" for model in models.values()):
            reasons.add("waiting", "requests for a model that is being loaded wait in the router")
            figures = merged.figures | {"waiting": None}
            merged = msgspec.structs.replace(merged, figures=figures)
        identity = self._identity(t, version=self._version, model=self._models.shown(loaded, list(models)))
        parts = [self._part(t, name, model) for name, model in models.items()]
        return self._reading(identity, parts, loaded, merged, reasons, blind=blind)

    async def _identify(self) -> None:
        if self.client.now() - self._props_at < _PROPS_EVERY_S:
            return
        reply = await self.client.get("/props")
        props = reply.json(Props) if reply.status == 200 else None
        if props is None or props.role != "router":
            raise ChangedError
        self._version, self._props_at = props.version, reply.at

    async def _list(self) -> dict[str, _Model]:
        """By name, in a stable order."""
        reply = await self.client.get("/v1/models")
        found = reply.json(_Models) if reply.status == 200 else None
        if found is None:
            if reply.status == 404:
                raise ChangedError
            raise UnexpectedError(f"answers GET /v1/models with {reply.status} and no list of models")
        if found.data and all(model.status is None for model in found.data):
            raise ChangedError  # a server with one model has come
        named = {model_name(model.id): model for model in found.data}
        return {name: named[name] for name in sorted(named) if name}

    def _children(self, models: dict[str, _Model], reasons: Reasons) -> list[Child]:
        children: list[Child] = []
        self._kin.awaited = False
        for name, model in models.items():
            if _state(model) != "loaded":
                continue
            if self._kin.process is not None:
                server = self._server(model)
                if server is not None:
                    children.append(Child(url=f"http://127.0.0.1:{_port(model)}", part=name, process=server))
                else:
                    self._kin.awaited = True
                    reasons.add(_ALL, f"{name}: its server is not seen among the children of the router yet")
            elif model.status is not None and model.status.args and not _may_sleep(model.status.args):
                children.append(
                    Child(url=self._url, part=name, adapter=partial(_through, self.client, model.id, model))
                )
            else:
                why = f"{name} may fall asleep, and asking the router for its slots would keep it awake"
                reasons.add(_ALL, why, "run agenttop on the router's host, as the same user")
        return children

    def _server(self, model: _Model) -> ServerProcess | None:
        return next((each for each in self._kin.servers if port_of(each) == _port(model)), None)

    def _part(self, t: float, name: str, model: _Model) -> PartSample:
        meta = model.meta if model.meta is not None and _state(model) in _LOADED else _Meta()
        failed = model.status is not None and model.status.failed
        return PartSample(
            t=t,
            engine=self._url,
            part=name,
            role="model",
            state=model_name(_state(model)) or None,
            running=0 if _state(model) == "sleeping" else None,
            context_limit_tokens=meta.n_ctx if meta.n_ctx and 0 < meta.n_ctx < 1 << 40 else None,
            quantisation=model_name(meta.ftype) or None,
            note="its server ended with an error" if failed else None,
        )


class _Through(EngineClient):
    """Asks one loaded model's server through its router."""

    def __init__(self, router: EngineClient, model: str) -> None:
        super().__init__(router.base_url, LlamaCppAdapter.allowed_paths, now=router.now)
        self._router = router
        self._query = {"autoload": "false", "model": model}

    async def get(
        self,
        path: str,
        *,
        query: object = None,
        limit: int = BODY_LIMIT,
        answer_s: float | None = None,
    ) -> Reply:
        """See `EngineClient.get`; `query` is the router's."""
        own = None if path == "/health" else self._query
        reply = await self._router.get(path, query=own, limit=limit, answer_s=answer_s)
        self.reply_s = reply.seconds
        if reply.status == 400:
            raise RefusedError("does not run that model any more")
        return reply

    async def close(self) -> None:
        """The connection is the router's."""


def _through(client: EngineClient, name: str, model: _Model) -> EngineAdapter:
    arguments = read_arguments(model.status.args) if model.status is not None else None
    # /metrics is left alone: each question stands in the router's log, and a scrape resets two gauges.
    return LlamaCppAdapter(_Through(client, name), metrics=False, arguments=arguments)


def _state(model: _Model) -> str:
    return model.status.value if model.status is not None else ""


def _port(model: _Model) -> int | None:
    arguments = model.status.args if model.status is not None else []
    return port_of(ServerProcess(pid=0, command=Command(arguments)))


def _may_sleep(arguments: list[str]) -> bool:
    return (read_arguments(arguments).sleep_idle_s or -1) >= 0
