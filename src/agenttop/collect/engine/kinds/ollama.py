"""Ollama: its loaded models, and the servers it starts for them.

`/api/ps` reads what its scheduler holds in memory and counts as no use: it keeps no model loaded. From 0.30
on a GGUF model runs in a stock `llama-server` that Ollama starts, whose slots are read like those of any
other; that does not count as use either. Older ones, and MLX models, run in a runner of Ollama's own, which
tells no figures.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agenttop.collect.children import port_of
from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.composite import Child
from agenttop.collect.engine.front import FrontAdapter, model_name
from agenttop.collect.engine.http import EngineClient, Reply, UnexpectedError
from agenttop.collect.engine.kind import Circumstances, EngineKind, ProcessLook, Sign
from agenttop.collect.hints import kind_of
from agenttop.collect.process import ServerProcess
from agenttop.model.frames import PartSample
from agenttop.model.text import clean

NAME = "Ollama"
_VERSION_EVERY_S = 60.0
_MOST_BYTES = 1 << 53
_FOR_EVER_S = 365 * 86400.0
"""A model that is to stay loaded expires centuries from now."""
_ALL = "running decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens"
_FIXES = {
    "--metrics": "set LLAMA_ARG_ENDPOINT_METRICS=1 in the environment of ollama serve",
    "--slots": "remove LLAMA_ARG_ENDPOINT_SLOTS from the environment of ollama serve",
    "update llama.cpp": "update Ollama",
}


class _Details(msgspec.Struct):
    quantization_level: str | None = None


class _Loaded(msgspec.Struct):
    name: str = ""
    model: str = ""
    size: int | None = None
    size_vram: int | None = None
    expires_at: str | None = None
    context_length: int | None = None
    details: _Details | None = None


class _Running(msgspec.Struct):
    models: list[_Loaded] | None


class _Version(msgspec.Struct):
    version: str = ""


class OllamaAdapter(FrontAdapter):
    """Reads one Ollama, and the servers of its models where they can be seen."""

    name = NAME
    allowed_paths = frozenset({"/api/ps", "/api/version"})
    alive_path = "/api/version"

    def __init__(self, client: EngineClient, seen: Circumstances) -> None:
        super().__init__(client, seen, fixes=_FIXES)
        self._version: str | None = None
        self._version_at = -math.inf
        self._blobs = Blobs()

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        reply = await self.client.get("/api/ps")
        found = reply.json(_Running) if reply.status == 200 else None
        if found is None:
            if reply.status == 404:
                raise ChangedError
            raise UnexpectedError(f"answers GET /api/ps with {reply.status} and no list of models")
        models = {_name(model): model for model in found.models or () if _name(model)}
        loaded = list(models)
        await self._ask_version()
        await self._kin.look(again=self._models.has_moved(loaded))
        reasons = Reasons(self._url, reply.at)
        reasons.add("waiting", "Ollama queues requests itself and does not tell how many wait")
        children = await self._children(models)
        blind = self._explain(models, children, reasons)
        merged = await self._servers.look(children)
        if merged.died:
            await self._kin.look(again=True)
        merged = msgspec.structs.replace(merged, figures=merged.figures | {"waiting": None})
        identity = self._identity(self.client.now(), version=self._version, model=self._models.shown(loaded))
        sizes = [_bytes(model.size) for model in models.values()]
        on_gpus = [_bytes(model.size_vram) for model in models.values()]
        identity = msgspec.structs.replace(
            identity,
            running=0 if not loaded else None,
            memory_bytes=_sum(sizes),
            gpu_memory_bytes=_sum(on_gpus),
        )
        parts = [self._part(identity.t, reply, name, model) for name, model in models.items()]
        if len(parts) == 1:
            only = parts[0]
            identity = msgspec.structs.replace(
                identity, quantisation=only.quantisation, context_limit_tokens=only.context_limit_tokens
            )
        return self._reading(identity, parts, loaded, merged, reasons, blind=blind)

    async def _ask_version(self) -> None:
        if self.client.now() - self._version_at < _VERSION_EVERY_S:
            return
        reply = await self.client.get("/api/version")
        found = reply.json(_Version) if reply.status == 200 else None
        self._version_at = reply.at
        self._version = clean(found.version, 40) or None if found is not None else None

    async def _children(self, models: dict[str, _Loaded]) -> list[Child]:
        """The servers whose slots can be read, with their models where these can be told."""
        servers = [each for each in self._kin.servers if _is_llama_server(each)]
        if len(models) == 1 == len(servers):
            names = {servers[0].pid: next(iter(models))}
        else:
            names = await asyncio.to_thread(self._blobs.names, servers, list(models))
        return [
            Child(url=f"http://127.0.0.1:{port_of(each)}", part=names.get(each.pid), process=each)
            for each in servers
        ]

    def _explain(self, models: dict[str, _Loaded], children: list[Child], reasons: Reasons) -> bool:
        """Why servers of loaded models cannot be read; whether there are such."""
        self._kin.awaited = False
        told = {child.part for child in children}
        unseen = [name for name in models if name not in told]
        if len(unseen) <= sum(child.part is None for child in children):
            return False
        if self._kin.process is None:
            why, fix = self._kin.hidden()
            reasons.add(_ALL, why, fix)
            return True
        who = unseen[0]
        runners = [each for each in self._kin.servers if not _is_llama_server(each)]
        if any(each.command.has("--mlx-engine") for each in runners):
            reasons.add(_ALL, f"{who} runs in Ollama's own MLX runner, which tells no figures")
        elif runners:
            why = f"{who} runs in Ollama's own runner, which tells no figures"
            reasons.add(_ALL, why, "update to Ollama 0.30 or newer, which runs GGUF models in llama-server")
        else:
            self._kin.awaited = True
            reasons.add(_ALL, f"the server of {who} is not seen among the children of Ollama yet")
        return True

    def _part(self, t: float, reply: Reply, name: str, model: _Loaded) -> PartSample:
        expires_s = expires_in(model.expires_at, reply.headers.get("date"))
        kept = expires_s is not None and expires_s > _FOR_EVER_S
        limit = model.context_length
        return PartSample(
            t=t,
            engine=self._url,
            part=name,
            role="model",
            state="loaded",
            context_limit_tokens=limit if limit is not None and 0 < limit < 1 << 40 else None,
            quantisation=model_name(model.details.quantization_level) or None if model.details else None,
            memory_bytes=_bytes(model.size),
            gpu_memory_bytes=_bytes(model.size_vram),
            expires_s=None if kept else expires_s,
            note="stays loaded until it is unloaded by hand" if kept else None,
        )


class Blobs:
    """Which model a server runs, told by the file it was started with.

    A server is given the file of the weights (`.../blobs/sha256-...`), and the manifest of a model, in the
    same folder of models, names that file. Manifests are small and are read once.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], str | None] = {}

    def names(self, servers: Collection[ServerProcess], models: Collection[str]) -> dict[int, str]:
        """Process to model, for those that can be told. Never raises."""
        found: dict[int, str] = {}
        for server in servers:
            weights = Path(server.command.value("--model", "-m") or "")
            for name in models if weights.parent.name == "blobs" else ():
                if self._file_of(weights.parent.parent, name) == weights.name:
                    found[server.pid] = name
        return found

    def _file_of(self, folder: Path, name: str) -> str | None:
        key = (str(folder), name)
        if key not in self._files:
            if len(self._files) > 1000:
                self._files.clear()
            self._files[key] = _weights(folder, name)
        return self._files[key]


def _weights(folder: Path, name: str) -> str | None:
    path, _, tag = name.rpartition(":")
    if not path or "/" in tag:
        path, tag = name, "latest"
    words = [*path.split("/"), tag]
    words = ["library", *words] if len(words) == 2 else words
    words = ["registry.ollama.ai", *words] if len(words) == 3 else words
    if any(re.fullmatch(r"[\w-][\w.-]*", word) is None for word in words):
        return None  # the name comes from the server: it must not lead elsewhere
    try:
        with folder.joinpath("manifests", *words).open("rb") as file:
            layers = json.loads(file.read(1_000_000))["layers"]
        for layer in layers:
            if layer["mediaType"] == "application/vnd.ollama.image.model":
                return str(layer["digest"]).replace(":", "-")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def expires_in(at: str | None, server_date: str | None) -> float | None:
    """Seconds until then by the server's own clock; 0 when that has passed, None when it is not told."""
    try:
        then = datetime.fromisoformat(at or "")
        if then.year < 2000:
            return None
        try:
            now = email.utils.parsedate_to_datetime(server_date or "")
        except ValueError:
            now = datetime.fromtimestamp(time.time(), UTC)
        if now.tzinfo is None or then.tzinfo is None:
            return None
        return max(0.0, (then - now).total_seconds())
    except (ValueError, OverflowError):
        return None


def _name(model: _Loaded) -> str:
    return model_name(model.name) or model_name(model.model)


def _is_llama_server(process: ServerProcess) -> bool:
    kind = kind_of(process.command)
    return kind is not None and kind.name == "llama.cpp"


def _bytes(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < _MOST_BYTES else None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _adapter(client: EngineClient, seen: Circumstances) -> EngineAdapter:
    return OllamaAdapter(client, seen)


KIND = EngineKind(
    name=NAME,
    allowed_paths=OllamaAdapter.allowed_paths,
    adapter=_adapter,
    owners=("library",),
    signs=(Sign("/", lambda reply: reply.text().strip() == "Ollama is running"),),
    look=ProcessLook(programs=r"ollama(\.exe)?", ports=(11434,), images=("ollama/ollama",)),
    reads_children=True,
)
