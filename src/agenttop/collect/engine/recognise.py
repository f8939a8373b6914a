"""Which engine answers at an address, told from a few harmless GETs.

A port proves nothing (8000 and 8080 are shared by several engines), and engines imitate each other:
llama.cpp answers some of Ollama's requests, KoboldCpp those of three others. So several signals count, in
this order: what only llama.cpp's `/props` holds, the owner that the list of models names, the signs of every
kind (replies that only that engine gives), and the process that listens there, which also decides between
kinds whose replies look alike. What may be asked of a server that is not known yet stands in `harmless`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agenttop.access.ways import PLAIN, Access
from agenttop.collect.engine.base import KEY_HINT, EngineAdapter, UnrecognisedError
from agenttop.collect.engine.harmless import CONFIRMATIONS, PROBES, starts_something
from agenttop.collect.engine.http import (
    BODY_LIMIT,
    EngineClient,
    EngineError,
    MovedError,
    NotHttpError,
    Reply,
    TimedOutError,
    TooBigError,
    UnauthorisedError,
)
from agenttop.collect.engine.kind import GENERIC, Circumstances, EngineKind, Sign
from agenttop.collect.engine.kinds import openai
from agenttop.collect.engine.kinds.simulated import HEADER, SimulatedAdapter
from agenttop.collect.engine.kinds.simulated import PATH as SIM_PATH
from agenttop.collect.engine.registry import registry
from agenttop.collect.hints import kind_of
from agenttop.model.text import clean

LLAMA = "llama.cpp"

_ANSWER_S = 5.0
METRICS = "/metrics"
"""Asked last, and only where there is neither a list of models nor a version: TensorRT-LLM, whose own empties
a queue, has both, and the server in front of its workers has the second."""
MOST_PAGES = 8_000_000


async def recognise(
    url: str,
    *,
    access: Access = PLAIN,
    now: Callable[[], float] = time.monotonic,
    metrics: bool = True,
    process: Callable[[], Awaitable[Circumstances]] | None = None,
) -> EngineAdapter:
    """The adapter for what answers at `url` (normalised), with an open client.

    `process` is asked for the server's process, after the first reply has come.

    Raises:
        UnrecognisedError: something else answers, or an engine that cannot be read now; says what to do.
        EngineError: nothing answers.
    """
    if starts_something(urlsplit(url).path):
        note = f"{url} is not asked: any question there may load a model or change a server; name its base"
        raise UnrecognisedError("unsupported", note)
    client = EngineClient(url, {*PROBES, METRICS}, access=access, now=now)
    look = _Look(client, process)
    try:
        kind = await look.kind()
        seen = msgspec.structs.replace(await look.circumstances(), metrics=metrics)
    except BaseException:
        await client.close()
        raise
    adapter = kind.adapter(client.restricted(kind.allowed_paths), seen)
    return SimulatedAdapter(adapter, client.restricted({SIM_PATH})) if look.simulated else adapter


class _Look:
    """One attempt; remembers what it saw, for the sentence at the end."""

    def __init__(
        self, client: EngineClient, process: Callable[[], Awaitable[Circumstances]] | None = None
    ) -> None:
        self._client = client.restricted({*client.allowed, *CONFIRMATIONS})
        self._process = process
        self._seen: Circumstances | None = None
        self._url = client.base_url
        self._locked = False
        self._page: str | None = None
        self._other: str | None = None
        self._endless = False
        """A reply was too long for what was asked: Ray's metrics port answers everything with its page."""
        self._models: Reply | None = None
        self._answered = False
        """Something has been answered that is no web page."""
        self.simulated = False
        """The answers say that a simulated engine gives them."""

    async def circumstances(self) -> Circumstances:
        """What is known of the server's process."""
        if self._seen is None:
            self._seen = await self._process() if self._process is not None else Circumstances()
        return self._seen

    async def kind(self) -> EngineKind:
        """Raises UnrecognisedError, EngineError."""
        found = await self._by_replies()
        seen = (await self.circumstances()).process
        by_process = kind_of(seen.command) if seen is not None else None
        if found is None or by_process is None or by_process is found:
            answer = found or by_process
        else:
            answer = by_process if found.name in {GENERIC, *by_process.imitates} else found
        # A server that wants a key for everything is known by its process; its adapter tells what is open.
        if answer is None or (found is None and not (self._answered or self._locked)):
            raise self._nothing()
        return answer

    async def _by_replies(self) -> EngineKind | None:
        """None where no kind of reply is known; Raises UnrecognisedError, EngineError."""
        first = await self._first()
        known = registry()
        if first is not None:
            self._judge_llama(first)
            if is_llama(first):
                return known.named(LLAMA)
        fragile = await self._fragile(first)
        if fragile is not None:
            return fragile
        models = self._models = await self._ask("/v1/models")
        owner = _owner(models)
        if owner:
            for kind in known.kinds:
                if owner in kind.owners:
                    return kind
        replies: dict[str, Reply | None] = {"/v1/models": models, "/props": first}
        for kind in known.kinds:
            for sign in kind.signs:
                if await self._is_seen(sign, replies):
                    return kind
        if owner is not None:
            return openai.KIND
        version = replies.get("/version")
        told = version is not None and version.status == 200 and version.has("version")
        if not told and (self._endless if models is None else models.status == 404):
            return await self._by_metrics()
        return None

    async def _fragile(self, first: Reply | None) -> EngineKind | None:
        """The engine that the usual questions would harm, where it is one: by its process or its replies."""
        seen = (await self.circumstances()).process
        by_process = kind_of(seen.command) if seen is not None else None
        if by_process is not None and by_process.fragile is not None:
            return by_process
        for kind in registry().kinds:
            if first is not None and kind.fragile is not None and kind.fragile.may_be(first):
                reply = await self._ask(kind.fragile.sign.path)
                if reply is not None and reply.status == 200 and kind.fragile.sign.shows(reply):
                    return kind
        return None

    async def _is_seen(self, sign: Sign, replies: dict[str, Reply | None]) -> bool:
        """Whether the replies show this sign; what has been asked before is not asked again."""
        if sign.path not in replies:
            replies[sign.path] = await self._ask(sign.path)
        reply = replies[sign.path]
        if reply is None or reply.status != 200 or not sign.shows(reply):
            return False
        return sign.confirmed_by is None or await self._is_seen(sign.confirmed_by, replies)

    async def _by_metrics(self) -> EngineKind | None:
        """A port that serves figures and no API: Ray's, Dynamo's workers', a metrics port of its own."""
        reply = await self._ask(METRICS, limit=MOST_PAGES)
        if reply is None or reply.status != 200 or reply.content_type == "text/html":
            return None
        text = "\n" + reply.text()
        for kind in registry().kinds:
            if any(f"\n{prefix}" in text for prefix in kind.metrics_prefixes):
                return kind
        return None

    async def _first(self) -> Reply | None:
        try:
            return await self._ask("/props")
        except TimedOutError:
            if await self._client.speaks_http("/props"):
                raise
            raise self._not_http() from None
        except NotHttpError as error:
            raise self._not_http() from error

    async def _ask(self, path: str, limit: int = BODY_LIMIT) -> Reply | None:
        """A reply of any status; None for one that was refused, or sent elsewhere."""
        try:
            reply = await self._client.get(path, answer_s=_ANSWER_S, limit=limit)
        except UnauthorisedError as error:
            if error.server == "llama.cpp":
                raise self._needs_key(LLAMA) from error
            self._locked = True
            return None
        except (MovedError, TooBigError) as error:
            self._endless = self._endless or isinstance(error, TooBigError)
            self._other = self._other or str(error)
            return None
        self.simulated = self.simulated or HEADER in reply.headers
        self._answered = self._answered or (reply.status == 200 and reply.content_type != "text/html")
        if reply.content_type == "text/html":
            title = re.search(r"<title[^>]*>([^<]*)", reply.text()[:20_000], re.IGNORECASE)
            self._page = clean(title[1], 60) if title else ""
        return reply

    def _judge_llama(self, reply: Reply) -> None:
        """Raises UnrecognisedError for a llama.cpp server that cannot be read as it is."""
        name = LLAMA
        if reply.status == 503 and (is_llama(reply) or "Loading model" in reply.text()):
            raise UnrecognisedError("loading", "loading the model", name)
        if is_llama(reply) and reply.status == 404:
            base = urlsplit(self._url)
            note = f"there is a llama.cpp server, but not under {base.path or 'this path'}"
            if base.path:
                note += f": use {base.scheme}://{base.netloc}"
            raise UnrecognisedError("unsupported", note, name)

    def _needs_key(self, name: str) -> UnrecognisedError:
        who = "an engine" if name == "unknown" else name
        key = self._client.access.key
        if key is not None:
            note = f"{who} at {self._url} does not accept the key from {key.source}"
            return UnrecognisedError("unauthorised", note, name)
        return UnrecognisedError("unauthorised", f"{who} at {self._url} needs a key; {KEY_HINT}", name)

    def _not_http(self) -> UnrecognisedError:
        note = f"{self._url} does not speak HTTP: another service listens on that port; check host and port"
        return UnrecognisedError("unsupported", note)

    def _nothing(self) -> EngineError | UnrecognisedError:
        if self._locked:
            return self._needs_key("unknown")
        if self._page is not None:
            title = f" (“{self._page}”)" if self._page else ""
            note = f"{self._url} serves a web page{title}, not an inference API; check host, port and path"
        elif self._other is not None:
            note = f"{self._url} {self._other}; check host, port and path"
        else:
            status = self._models.status if self._models is not None else "nothing"
            note = f"{self._url} is no inference API that agenttop knows (GET /v1/models: {status})"
        return UnrecognisedError("unsupported", note)


def is_llama(reply: Reply) -> bool:
    """By the Server header, or by fields of `/props` that imitators leave out."""
    if reply.headers.get("server") == "llama.cpp":
        return True
    return reply.status == 200 and reply.has("build_info", "default_generation_settings")


def _owner(reply: Reply | None) -> str | None:
    """`owned_by` of the first model, in lower case; empty when there is a list without it."""
    found = reply.json(dict[str, Any]) if reply is not None and reply.status == 200 else None
    data = found.get("data") if found is not None else None
    if not isinstance(data, list):
        return None
    first = data[0] if data and isinstance(data[0], dict) else {}
    return str(first.get("owned_by") or "").lower()
