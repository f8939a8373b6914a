"""Which engine answers at an address, told from a few harmless GETs.

A port proves nothing (8000 and 8080 are shared by several engines), and engines imitate each other:
llama.cpp answers some of Ollama's requests, KoboldCpp those of three others. So the most telling replies
come first, and each must show something that only its own engine has. None of the paths loads a model, runs
inference, empties a queue or changes anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from agenttop.collect.engine.base import KEY_HINT, EngineAdapter, UnrecognisedError
from agenttop.collect.engine.http import (
    EngineClient,
    EngineError,
    MovedError,
    NotHttpError,
    Reply,
    TimedOutError,
    TooBigError,
    UnauthorisedError,
)
from agenttop.collect.engine.llamacpp import LlamaCppAdapter
from agenttop.collect.engine.llamacpp_arguments import ServerProcess
from agenttop.collect.engine.openai import GENERIC, OpenAIAdapter, allowed_paths
from agenttop.collect.engine.simulated import HEADER, SimulatedAdapter
from agenttop.collect.engine.simulated import PATH as SIM_PATH
from agenttop.collect.engine.vllm import VllmAdapter
from agenttop.model.text import clean

_OWNERS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "library": "Ollama",
    "llama-swap": "llama-swap",
    "koboldcpp": "KoboldCpp",
    "tabbyapi": "TabbyAPI",
    "lmdeploy": "LMDeploy",
    "tensorrt_llm": "TensorRT-LLM",
    "omlx": "oMLX",
    "vllm-mlx": "vllm-mlx",
    "organization_owner": "LM Studio",
}
"""`owned_by` of `/v1/models`, in lower case."""

_SIGNS: tuple[tuple[str, Callable[[Reply], bool], str], ...] = (
    ("/version", lambda reply: _keys(reply) == {"version"}, "vLLM"),
    ("/", lambda reply: reply.text().strip() == "Ollama is running", "Ollama"),
    ("/running", lambda reply: "running" in _keys(reply), "llama-swap"),
    ("/model_info", lambda reply: {"model_path", "is_generation"} <= _keys(reply), "SGLang"),
    ("/info", lambda reply: "max_total_tokens" in _keys(reply), "TGI"),
    ("/api/extra/version", lambda reply: "KoboldCpp" in reply.text(), "KoboldCpp"),
    ("/api/v0/models", lambda reply: '"compatibility_type"' in reply.text(), "LM Studio"),
)
"""Path, what only that engine answers there, its name."""

PATHS = frozenset({"/props", "/v1/models", *(path for path, _, _ in _SIGNS)})
_ANSWER_S = 5.0


async def recognise(
    url: str,
    *,
    api_key: str | None = None,
    now: Callable[[], float] = time.monotonic,
    metrics: bool = True,
    process: Callable[[], Awaitable[ServerProcess | None]] | None = None,
) -> EngineAdapter:
    """The adapter for what answers at `url` (normalised), with an open client.

    `process` is asked for the server's process once an engine has been found.

    Raises:
        UnrecognisedError: something else answers, or an engine that cannot be read now; says what to do.
        EngineError: nothing answers.
    """
    client = EngineClient(url, PATHS, api_key=api_key, now=now)
    look = _Look(client)
    try:
        name = await look.name()
        seen = await process() if process is not None else None
    except BaseException:
        await client.close()
        raise
    adapter = _adapter(name, client, metrics, seen)
    return SimulatedAdapter(adapter, client.restricted({SIM_PATH})) if look.simulated else adapter


def _adapter(name: str, client: EngineClient, metrics: bool, seen: ServerProcess | None) -> EngineAdapter:
    """The adapter for an engine of this name, on the client's connection."""
    pid = seen.pid if seen is not None else None
    if name == LlamaCppAdapter.name:
        arguments = seen.arguments if seen is not None else None
        restricted = client.restricted(LlamaCppAdapter.allowed_paths)
        return LlamaCppAdapter(restricted, metrics=metrics, arguments=arguments, pid=pid)
    if name == VllmAdapter.name:
        return VllmAdapter(client.restricted(VllmAdapter.allowed_paths), pid=pid)
    return OpenAIAdapter(client.restricted(allowed_paths(name)), name, pid=pid)


class _Look:
    """One attempt; remembers what it saw, for the sentence at the end."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._url = client.base_url
        self._locked = False
        self._page: str | None = None
        self._other: str | None = None
        self.simulated = False
        """The answers say that a simulated engine gives them."""

    async def name(self) -> str:
        """Raises UnrecognisedError, EngineError."""
        first = await self._first()
        if first is not None:
            self._judge_llama(first)
            if _is_llama(first):
                return LlamaCppAdapter.name
        models = await self._ask("/v1/models")
        owner = _owner(models)
        if owner == "llamacpp":
            return LlamaCppAdapter.name
        if owner in _OWNERS:
            return _OWNERS[owner]
        for path, is_it, name in _SIGNS:
            reply = await self._ask(path)
            if reply is not None and reply.status == 200 and is_it(reply):
                return name
        if owner is not None:
            return GENERIC
        raise self._nothing(models)

    async def _first(self) -> Reply | None:
        try:
            return await self._ask("/props")
        except TimedOutError:
            if await self._client.speaks_http("/props"):
                raise
            raise self._not_http() from None
        except NotHttpError as error:
            raise self._not_http() from error

    async def _ask(self, path: str) -> Reply | None:
        """A reply of any status; None for one that was refused, or sent elsewhere."""
        try:
            reply = await self._client.get(path, answer_s=_ANSWER_S)
        except UnauthorisedError as error:
            if error.server == "llama.cpp":
                raise self._needs_key(LlamaCppAdapter.name) from error
            self._locked = True
            return None
        except (MovedError, TooBigError) as error:
            self._other = str(error)
            return None
        self.simulated = self.simulated or HEADER in reply.headers
        if reply.content_type == "text/html":
            title = re.search(r"<title[^>]*>([^<]*)", reply.text()[:20_000], re.IGNORECASE)
            self._page = clean(title[1], 60) if title else ""
        return reply

    def _judge_llama(self, reply: Reply) -> None:
        """Raises UnrecognisedError for a llama.cpp server that cannot be read as it is."""
        name = LlamaCppAdapter.name
        if reply.status == 503 and (_is_llama(reply) or "Loading model" in reply.text()):
            raise UnrecognisedError("loading", "loading the model", name)
        if _is_llama(reply) and reply.status == 404:
            base = urlsplit(self._url)
            note = f"there is a llama.cpp server, but not under {base.path or 'this path'}"
            if base.path:
                note += f": use {base.scheme}://{base.netloc}"
            raise UnrecognisedError("unsupported", note, name)

    def _needs_key(self, name: str) -> UnrecognisedError:
        who = "an engine" if name == "unknown" else name
        if self._client.has_key:
            return UnrecognisedError(
                "unauthorised", f"{who} at {self._url} does not accept the key that was given", name
            )
        return UnrecognisedError("unauthorised", f"{who} at {self._url} needs a key; {KEY_HINT}", name)

    def _not_http(self) -> UnrecognisedError:
        note = f"{self._url} does not speak HTTP: another service listens on that port; check host and port"
        return UnrecognisedError("unsupported", note)

    def _nothing(self, models: Reply | None) -> EngineError | UnrecognisedError:
        if self._locked:
            return self._needs_key("unknown")
        if self._page is not None:
            title = f" (“{self._page}”)" if self._page else ""
            note = f"{self._url} serves a web page{title}, not an inference API; check host, port and path"
        elif self._other is not None:
            note = f"{self._url} {self._other}; check host, port and path"
        else:
            status = models.status if models is not None else "nothing"
            note = f"{self._url} is no inference API that agenttop knows (GET /v1/models: {status})"
        return UnrecognisedError("unsupported", note)


def _is_llama(reply: Reply) -> bool:
    """By the Server header, or by fields of `/props` that imitators leave out."""
    if reply.headers.get("server") == "llama.cpp":
        return True
    keys = _keys(reply)
    return reply.status == 200 and "build_info" in keys and "default_generation_settings" in keys


def _keys(reply: Reply) -> set[str]:
    found = reply.json(dict[str, Any])
    return set(found) if found is not None else set()


def _owner(reply: Reply | None) -> str | None:
    """`owned_by` of the first model, in lower case; empty when there is a list without it."""
    found = reply.json(dict[str, Any]) if reply is not None and reply.status == 200 else None
    data = found.get("data") if found is not None else None
    if not isinstance(data, list):
        return None
    first = data[0] if data and isinstance(data[0], dict) else {}
    return str(first.get("owned_by") or "").lower()
