"""llama-swap: which of its models run, and the servers it starts for them.

`/running` and `/v1/models` read what it holds in memory. `/upstream/...` is never asked: it starts models.
A server is asked at its own port, and only while llama-swap calls it `ready`. Whatever it is (llama.cpp,
vLLM, anything else) is found out there.
"""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import msgspec

from agenttop.collect.children import port_of
from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.composite import Child
from agenttop.collect.engine.front import FrontAdapter, model_name
from agenttop.collect.engine.http import EngineClient, EngineError, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.engine.kinds.openai import Models
from agenttop.collect.process import ServerProcess
from agenttop.errors import UsageError
from agenttop.model.frames import PartSample
from agenttop.model.text import clean
from agenttop.model.url import is_local, normalise, origin_of

NAME = "llama-swap"
_IDENTITY_EVERY_S = 30.0
_READY = "ready"
_ALL = "running decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens"
_FIXES = {
    "--metrics": "add --metrics to the model's cmd in llama-swap's configuration",
    "--slots": "remove --no-slots from the model's cmd in llama-swap's configuration",
}


class _Model(msgspec.Struct):
    """Its `cmd` is left alone: it may hold keys."""

    model: str = ""
    state: str = ""
    proxy: str = ""
    """Where it listens; since 2026."""


class _Running(msgspec.Struct):
    running: list[_Model] | None


class _Version(msgspec.Struct):
    version: str = ""


class LlamaSwapAdapter(FrontAdapter):
    """Reads one llama-swap, and the servers of its models where they can be seen."""

    name = NAME
    allowed_paths = frozenset({"/running", "/v1/models", "/api/version"})
    alive_path = "/running"

    def __init__(self, client: EngineClient, seen: Circumstances) -> None:
        super().__init__(client, seen, fixes=_FIXES)
        self._version: str | None = None
        self._configured: list[str] = []
        self._identified_at = -math.inf

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        reply = await self.client.get("/running")
        found = reply.json(_Running) if reply.status == 200 else None
        if found is None:
            if reply.status == 404:
                raise ChangedError
            raise UnexpectedError(f"answers GET /running with {reply.status} and no list of models")
        running = {model_name(model.model): model for model in found.running or ()}
        models = {name: running[name] for name in sorted(running) if name}
        await self._identify()
        loaded = [name for name, model in models.items() if model.state == _READY]
        await self._kin.look(again=self._models.has_moved(loaded))
        reasons = Reasons(self._url, reply.at)
        why = (
            "requests that wait for a model to be swapped in wait in llama-swap, which does not tell how many"
        )
        reasons.add("waiting", why)
        children = self._children({name: models[name] for name in loaded})
        blind = self._explain(loaded, children, reasons)
        merged = await self._servers.look(children)
        if merged.died:
            await self._kin.look(again=True)
        merged = msgspec.structs.replace(merged, figures=merged.figures | {"waiting": None})
        known = [*models, *(name for name in self._configured if name not in models)]
        shown = self._models.shown(loaded, known)
        identity = self._identity(self.client.now(), version=self._version, model=shown)
        identity = msgspec.structs.replace(identity, running=None if loaded else 0)
        parts = [self._part(identity.t, name, models.get(name)) for name in known]
        return self._reading(identity, parts, loaded, merged, reasons, blind=blind)

    async def _identify(self) -> None:
        if self.client.now() - self._identified_at < _IDENTITY_EVERY_S:
            return
        self._identified_at = self.client.now()
        listed = (await self.client.get("/v1/models")).json(Models)
        names = (model_name(model.id) for model in listed.data) if listed is not None else ()
        self._configured = sorted({name for name in names if name})
        try:
            version = (await self.client.get("/api/version")).json(_Version)
        except EngineError:
            version = None  # older ones have no such thing
        self._version = clean(version.version, 40) or None if version is not None else None

    def _children(self, ready: dict[str, _Model]) -> list[Child]:
        if self._kin.process is None:
            return []
        servers = {port_of(each): each for each in self._kin.servers}
        children: list[Child] = []
        for name, model in ready.items():
            url = self._loopback(model.proxy)
            process = servers.get(urlsplit(url).port) if url is not None else _named(servers, name)
            if url is None and process is None and len(ready) == len(servers) == 1:
                process = next(iter(servers.values()))
            if url is None and process is not None:
                url = f"http://127.0.0.1:{port_of(process)}"
            if url is not None:
                children.append(Child(url=url, part=name, process=process))
        return children

    def _loopback(self, proxy: str) -> str | None:
        """Where a server listens on this host; None for what is elsewhere, this one itself, or no address."""
        try:
            url = normalise(proxy)
        except UsageError:
            return None
        return url if is_local(url) and origin_of(url) != origin_of(self._url) else None

    def _explain(self, loaded: list[str], children: list[Child], reasons: Reasons) -> bool:
        """Why servers of ready models cannot be read; whether there are such."""
        self._kin.awaited = False
        told = {child.part for child in children}
        unseen = [name for name in loaded if name not in told]
        if not unseen:
            return False
        if self._kin.process is None:
            reasons.add(_ALL, *self._kin.hidden())
        else:
            self._kin.awaited = True
            why = f"the server of {unseen[0]} does not run on this host, or is not seen as llama-swap's"
            reasons.add(_ALL, why, "update llama-swap, which then tells where each of its servers listens")
        return True

    def _part(self, t: float, name: str, model: _Model | None) -> PartSample:
        return PartSample(
            t=t,
            engine=self._url,
            part=name,
            role="model",
            state=model_name(model.state) or None if model is not None else "stopped",
        )


def _named(servers: dict[int | None, ServerProcess], name: str) -> ServerProcess | None:
    """The server that was started under the model's name."""
    options = ("--alias", "-a", "--served-model-name")
    found = [each for each in servers.values() if each.command.value(*options) == name]
    return found[0] if len(found) == 1 else None


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return LlamaSwapAdapter(client, seen)


KIND = EngineKind(
    name=NAME,
    allowed_paths=LlamaSwapAdapter.allowed_paths,
    adapter=_adapter,
    owners=("llama-swap",),
    signs=(Sign("/running", lambda reply: reply.has("running")),),
    look=ProcessLook(
        programs=r"llama-swap[\w.-]*",
        ports=(8080,),
        port_options=("--listen", "-listen"),
        images=("mostlygeek/llama-swap",),
    ),
    reads_children=True,
)
