"""The requests agenttop makes to an engine besides the load: small GETs, guarded on every side.

The only module that imports httpx. An `EngineClient` speaks to one origin and to the paths it was made for:
some harmless-looking addresses of engines load models, run inference, empty a queue or stop the server, so a
path outside the list is a mistake of ours and raises `NotAllowedError` before anything is sent.

httpx takes 0.2 s to import, so it is imported when the first request is made.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

import agenttop
from agenttop.access import trust
from agenttop.access.proxy import Proxy, proxy_for
from agenttop.access.ways import PLAIN, Access
from agenttop.errors import UsageError
from agenttop.model.text import clean, in_urls, is_secret, without
from agenttop.model.url import normalise, origin_of

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

BODY_LIMIT = 1_000_000
"""A reply longer than this is refused while it arrives."""
CONNECT_S, ANSWER_S = 2.0, 10.0
"""Time for a connection, and for the whole answer; a drip of single bytes must not last for ever."""


SPEAKS_TLS = "speaks TLS on that port: write https:// instead of http://"


_PLAIN_REFUSED = (b"HTTP request to an HTTPS server", b"HTTP request was sent to HTTPS port")
"""Go's servers and nginx say it in a reply of status 400."""


class EngineError(Exception):
    """What can go wrong with a request, as one sentence without the address."""


class RefusedError(EngineError):
    """Nobody listens there."""


class UnreachableError(EngineError):
    """The host is unknown, has no route, or takes no connection in time."""


class TimedOutError(EngineError):
    """The connection stands, the answer does not come."""


class CutError(EngineError):
    """The other side hung up before the answer was complete."""


class NotHttpError(EngineError):
    """What came is not HTTP."""


class TooBigError(EngineError):
    """The body is longer than allowed."""


class UnauthorisedError(EngineError):
    """401 or 403. `server` is the reply's Server header."""

    def __init__(self, sentence: str, server: str) -> None:
        super().__init__(sentence)
        self.server = server


class MovedError(EngineError):
    """A redirect to somewhere else; it is not followed, so that no key goes there."""


class TlsError(EngineError):
    """TLS where there should be none, none where there should be, or a certificate that is not trusted."""


class UnexpectedError(EngineError):
    """An answer that this kind of engine does not give."""


class OtherServerError(EngineError):
    """Another server than before answers, so that what was to be asked might do harm there."""


class _NewConnectionError(Exception):
    """The question would need a new connection."""


class NotAllowedError(RuntimeError):
    """A request outside the adapter's list: a mistake in agenttop."""


class Reply(msgspec.Struct, frozen=True):
    """One answer, complete."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    at: float
    """Session time at which the answer was complete: the time of the figures in it."""
    seconds: float
    """From the request to the complete answer, on the wall clock even where session time runs faster."""

    @property
    def content_type(self) -> str:
        """The media type alone, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def text(self) -> str:
        """The body as text, whatever its bytes are."""
        return self.body.decode("utf-8", "replace")

    def json(self, wanted: type[T]) -> T | None:
        """The body as `wanted`; None when it is something else."""
        try:
            return msgspec.json.decode(self.body, type=wanted)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        except RecursionError:  # nested tens of thousands deep
            return None
        try:  # a server may echo bytes that are no UTF-8
            return msgspec.json.decode(self.text().encode(), type=wanted)
        except (msgspec.DecodeError, RecursionError):
            return None

    def fields(self) -> frozenset[str]:
        """Names at the top of a JSON object; empty for anything else."""
        found = self.json(dict[str, Any])
        return frozenset(found) if found is not None else frozenset()

    def has(self, *names: str) -> bool:
        """Whether the body is a JSON object with all these fields."""
        return frozenset(names) <= self.fields()


class EngineClient:
    """GETs to one engine, one at a time."""

    def __init__(
        self,
        base_url: str,
        allowed: Iterable[str],
        *,
        access: Access = PLAIN,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base_url` is normalised; the key of `access` is for its origin."""
        self.base_url = base_url
        self.allowed = frozenset(allowed)
        self.access = access
        self._secret = access.secret
        self.now = now
        self.reply_s: float | None = None
        """How long the newest reply took."""
        self._headers = {
            "User-Agent": f"agenttop/{agenttop.__version__}",
            "Accept": "application/json, text/plain, */*;q=0.1",
            "Accept-Encoding": "identity",  # a compressed body could grow without bound
        }
        if self._secret is not None:
            self._headers["Authorization"] = f"Bearer {self._secret}"
        self._client: httpx.AsyncClient | None = None
        self._proof: str | None = None
        self._proven: dict[str, object] = {}
        """What is known of the server by its answers to `_proof`."""
        self._in_doubt = True
        self._turn = asyncio.Lock()
        self._closing: list[Callable[[], Awaitable[None]]] = []

    @property
    def has_key(self) -> bool:
        """Whether a key goes with every request."""
        return self.access.key is not None

    async def get(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        limit: int = BODY_LIMIT,
        answer_s: float | None = None,
    ) -> Reply:
        """Ask for one of the allowed paths.

        With a query the list must hold the path together with the names of the query, and either their values
        or `*` for any: `/slots?autoload=false&model=*`. A path without a query on the list does not allow one
        with it, nor the other way round.

        A reply with any status but 401, 403 and redirects is returned as it is.

        Raises:
            EngineError: one of its kinds above.
            NotAllowedError: the path is not on the list.
        """
        if not _is_allowed(path, query, self.allowed):
            raise NotAllowedError(f"GET {path} is not on the list of this adapter")
        if query:
            path = f"{path}?{urlencode(sorted(query.items()))}"
        answer_s = ANSWER_S if answer_s is None else answer_s
        async with self._turn:
            try:
                if self._proof is not None and path.rstrip("/") == "/metrics":
                    return await self._ask_the_same(path, limit, answer_s)
                return await self._ask_twice(path, limit, answer_s)
            except (CutError, NotHttpError) as error:
                if self.reply_s is None and await self._speaks_tls():
                    raise TlsError(SPEAKS_TLS) from error
                raise

    def prove_by(self, path: str) -> None:
        """Ask for `/metrics` only over a connection on which the same server as before has answered this.

        Another engine may have taken the address between two looks, and TensorRT-LLM's `/metrics` empties a
        queue. The path is one that is answered at once, and differently there.
        """
        if path not in self.allowed:
            raise NotAllowedError(f"GET {path} is not on the list of this adapter")
        self._proof = path

    async def answers(
        self, path: str, *, refusal: bool = False, answer_s: float = 2.0, limit: int = BODY_LIMIT
    ) -> bool:
        """Whether one of the allowed paths is answered at once, whatever the status.

        `refusal`: a 401 or 403 is an answer too, where the path may want a key.
        """
        try:
            await self.get(path, answer_s=answer_s, limit=limit)
        except UnauthorisedError:
            return refusal
        except EngineError:
            return False
        return True

    async def speaks_http(self, path: str, patience_s: float = 1.5) -> bool:
        """Whether the first bytes that answer a GET look like HTTP; True when no byte comes at all.

        httpx waits for a whole head, so another protocol's greeting looks like silence to it.
        """
        if path not in self.allowed:
            raise NotAllowedError(f"GET {path} is not on the list of this adapter")
        base = urlsplit(self.base_url)
        if base.scheme != "http":
            return True
        writer = None
        try:
            async with asyncio.timeout(patience_s):
                reader, writer = await asyncio.open_connection(base.hostname, base.port)
                host = f"{base.hostname}:{base.port}"
                writer.write(
                    f"GET {base.path}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
                )
                first = await reader.read(5)
                return not first or b"HTTP/".startswith(first[:5])
        except (OSError, TimeoutError):
            return True
        finally:
            if writer is not None:
                writer.close()

    async def _speaks_tls(self, patience_s: float = 1.5) -> bool:
        """Whether a server that answers plain HTTP with no HTTP, or hangs up, wants TLS. It gets no key."""
        base = urlsplit(self.base_url)
        if base.scheme != "http" or self._proxy is not None:
            return False
        curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        curious.check_hostname, curious.verify_mode = False, ssl.CERT_NONE  # nothing is asked, only noticed
        try:
            async with asyncio.timeout(patience_s):
                _, writer = await asyncio.open_connection(base.hostname, base.port, ssl=curious)
        except (OSError, TimeoutError):
            return False
        writer.transport.abort()
        return True

    async def _takes_connections(self) -> bool:
        base = urlsplit(self.base_url)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(base.hostname, base.port)
        except (OSError, TimeoutError):
            return False
        writer.transport.abort()
        return self._proxy is None

    def restricted(self, allowed: Iterable[str]) -> EngineClient:
        """A client with the same connection and key for another list of paths."""
        other = EngineClient(self.base_url, allowed, access=self.access, now=self.now)
        other._turn = self._turn
        other._client = self._open()
        return other

    def elsewhere(self, base_url: str, allowed: Iterable[str]) -> EngineClient:
        """A client of its own for another server, without the key: that is for this origin alone.

        `base_url` is normalised. Close it by itself.
        """
        return EngineClient(base_url, allowed, access=self.access.without_key(), now=self.now)

    def close_with(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have something closed together with this client: what a front asks besides."""
        self._closing.append(close)

    async def close(self) -> None:
        """Close the connection; a restricted client shares it."""
        for close in self._closing:
            await close()
        if self._client is not None:
            await self._client.aclose()

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            secure = self.base_url.startswith("https:")
            proxy = self._proxy
            if proxy is not None and proxy.trouble is not None:
                raise UnreachableError(proxy.trouble)
            self._client = httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=4.0),
                follow_redirects=False,
                event_hooks={"response": [_put_location_aside]},
                trust_env=False,  # what the environment wants has been looked up
                proxy=proxy.url if proxy is not None else None,
                verify=self._tls() if secure else False,
            )
        return self._client

    async def _ask_the_same(self, path: str, limit: int, answer_s: float) -> Reply:
        """See `prove_by`. A server that keeps no connection open is asked for the proof each time."""
        if not self._in_doubt:
            try:
                return await self._ask(path, limit, answer_s, connect=False)
            except (_NewConnectionError, CutError):
                pass
        await self._prove(answer_s)
        return await self._ask_twice(path, limit, answer_s)

    async def _prove(self, answer_s: float) -> None:
        """Raises OtherServerError."""
        try:
            reply = await self._ask_twice(self._proof or "", BODY_LIMIT, answer_s)
            if reply.status >= 500:
                return  # what stands before it answers in its place
            told = {"status": reply.status, **_marks(reply)}
        except UnauthorisedError:
            told = {"status": 401}
        if any(told.get(name, known) != known for name, known in self._proven.items()):
            raise OtherServerError("is another server than before")
        self._proven |= told
        self._in_doubt = False

    async def _ask_twice(self, path: str, limit: int, answer_s: float) -> Reply:
        try:
            return await self._ask(path, limit, answer_s)
        except CutError:
            # An idle connection may be closed by the server at the moment it is used again. On a new one
            # the truth shows: it answers, or refuses.
            return await self._ask(path, limit, answer_s)

    @cached_property
    def _proxy(self) -> Proxy | None:
        return proxy_for(self.base_url) if self.access.proxy else None

    def _tls(self) -> ssl.SSLContext:
        try:
            return trust.context(self.access.ca_file)
        except UsageError as error:  # it was good when the session began
            raise TlsError(f"cannot be trusted: {error}") from error

    async def _ask(self, path: str, limit: int, answer_s: float, connect: bool = True) -> Reply:
        import httpx

        started = time.monotonic()
        client = self._open()
        try:
            async with asyncio.timeout(answer_s):
                reply = await self._fetch(client, path, limit, started, connect)
                if reply.status in (301, 302, 303, 307, 308):
                    again = self._same_place(path, reply.headers.get("location", ""))
                    reply = await self._fetch(client, again, limit, started, connect)
        except httpx.ConnectTimeout as error:
            if self.base_url.startswith("https:") and await self._takes_connections():
                raise TimedOutError(f"answers no TLS handshake within {CONNECT_S:g} s") from error
            if self._proxy is not None:
                raise self._connect_error(TimeoutError(f"no connection within {CONNECT_S:g} s")) from error
            raise UnreachableError(f"takes no connection within {CONNECT_S:g} s") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise TimedOutError(f"did not answer GET {path} within {answer_s:g} s") from error
        except httpx.ConnectError as error:
            raise self._connect_error(error) from error
        except httpx.ProxyError as error:
            raise UnreachableError(f"is not let through by the proxy: {clean(str(error), 120)}") from error
        except httpx.RemoteProtocolError as error:
            raise _protocol_error(error, path) from error
        except (httpx.TransportError, OSError) as error:
            raise CutError(f"hung up during GET {path}") from error
        except (httpx.InvalidURL, UnicodeError) as error:  # the second: a name that IDNA does not allow
            raise UnreachableError(f"is not an address that can be asked: {clean(str(error))}") from error
        self.reply_s = reply.seconds
        self._in_doubt = self._in_doubt or reply.status >= 500
        if reply.status == 400 and any(sign in reply.body for sign in _PLAIN_REFUSED):
            raise TlsError(SPEAKS_TLS)
        if reply.status in (401, 403):
            raise UnauthorisedError(
                f"answers GET {path} with {reply.status}", reply.headers.get("server", "")
            )
        if 300 <= reply.status < 400:
            raise MovedError(f"answers GET {path} with a redirect")
        return reply

    async def _fetch(
        self, client: httpx.AsyncClient, path: str, limit: int, started: float, connect: bool
    ) -> Reply:
        async def step(event: str, _: object) -> None:
            if event == "connection.connect_tcp.started":
                self._in_doubt = True
                if not connect:
                    raise _NewConnectionError

        async with client.stream("GET", self.base_url + path, extensions={"trace": step}) as response:
            headers = {
                name.lower(): clean(without(self._secret, value)) for name, value in response.headers.items()
            }
            if _ASIDE in headers:
                headers["location"] = headers.pop(_ASIDE)
            if headers.get("content-encoding", "identity") != "identity":
                raise NotHttpError(f"sends GET {path} compressed, which was not asked for")
            announced = headers.get("content-length", "")
            if announced.isdigit() and int(announced) > limit:
                raise _too_big(path, limit)
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > limit:
                    raise _too_big(path, limit)
            content = bytes(body)
            if self._secret is not None and is_secret(self._secret):
                # Some servers quote the key they were sent, and what they say is shown and recorded.
                for form in _forms(self._secret):
                    content = content.replace(form, b"(key)")
            took_s = time.monotonic() - started
            return Reply(response.status_code, headers, content, self.now(), took_s)

    def _same_place(self, path: str, location: str) -> str:
        """Where a redirect leads, if it only adds or drops the slash at the end. Raises MovedError."""
        try:
            target, base = urlsplit(location), urlsplit(self.base_url + path)
            # Whatever it says besides the path is only compared: the next request goes to our own address.
            stays = not (target.scheme or target.netloc) or _is_origin(location, self.base_url)
        except ValueError:
            raise MovedError(f"sends GET {path} on to an address that is none") from None
        if (
            stays
            and not target.query
            and not base.query
            and target.path.rstrip("/") == base.path.rstrip("/") != ""
        ):
            return path.rstrip("/") + "/" if target.path.endswith("/") else path.rstrip("/")
        raise MovedError(f"sends GET {path} on to {clean(_without_user(location), 80) or 'nowhere'}")

    def _connect_error(self, error: Exception) -> EngineError:
        host = urlsplit(self.base_url).hostname or ""
        cause: BaseException | None = error
        text = clean(str(error)) or "no connection"
        seen: list[BaseException] = []
        while cause is not None and cause not in seen:
            seen.append(cause)
            if isinstance(cause, ssl.SSLError):
                return TlsError(trust.sentence(cause, host, self.access.ca_file))
            if self._proxy is None and isinstance(cause, ConnectionRefusedError):
                return RefusedError("refuses connections: nothing listens there")
            cause = cause.__cause__ or cause.__context__
        if self._proxy is not None:
            return UnreachableError(f"cannot be reached through the proxy of {self._proxy.setting}: {text}")
        if "refused" in text.lower():
            return RefusedError("refuses connections: nothing listens there")
        return UnreachableError(f"cannot be reached: {text}")


_ASIDE = "x-agenttop-location"


def _marks(reply: Reply) -> dict[str, object]:
    """Version and owner of the first model, as far as a reply tells them."""
    found = reply.json(dict[str, Any]) or {}
    data = found.get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    marks = {"version": found.get("version"), "owner": first.get("owned_by")}
    return {name: value for name, value in marks.items() if isinstance(value, str)}


async def _put_location_aside(response: httpx.Response) -> None:
    """httpx makes up the next request of a redirect, unsent, and fails at addresses that are none."""
    if "location" in response.headers:
        response.headers[_ASIDE] = response.headers.pop("location")


def _is_origin(location: str, base_url: str) -> bool:
    """Whether an absolute address leads to the origin of a normalised one, however it is written."""
    parts = urlsplit(location)
    try:
        return origin_of(normalise(f"{parts.scheme}://{parts.netloc}")) == origin_of(base_url)
    except UsageError:
        return False


def _without_user(location: str) -> str:
    """An address without the name and the password before its host."""
    scheme, mark, rest = location.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else location


def _forms(secret: str) -> list[bytes]:
    """A key as it may stand in a body: plain, in an address, and within a JSON string."""
    quoted = json.dumps(secret)[1:-1]
    forms = (*in_urls(secret), quoted, quoted.replace("/", "\\/"))
    return [form.encode() for form in dict.fromkeys(forms)]


def _is_allowed(path: str, query: Mapping[str, str] | None, allowed: frozenset[str]) -> bool:
    if not query:
        return path in allowed
    if any(mark in path for mark in "?#&"):
        return False
    for each in allowed:
        bare, mark, listed = each.partition("?")
        if mark and bare == path:
            wanted = dict(part.partition("=")[::2] for part in listed.split("&"))
            if wanted.keys() == query.keys() and all(
                value in ("*", query[name]) for name, value in wanted.items()
            ):
                return True
    return False


def _too_big(path: str, limit: int) -> TooBigError:
    return TooBigError(f"answered GET {path} with more than {limit / 1e6:g} MB, which no engine does")


def _protocol_error(error: Any, path: str) -> EngineError:
    text = str(error)
    if "disconnected" in text or "peer closed" in text:
        return CutError(f"hung up during GET {path}")
    return NotHttpError("does not speak HTTP")
