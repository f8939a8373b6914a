"""The streaming client of one agent: one kept connection, one request at a time, every failure a kind.

Why not a library: measured with 256 streams of 50 tok/s, the usual clients take 1.7 to 20 times the CPU
and their time stamps are 2 to 1000 times later (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from agenttop import __version__
from agenttop.access import trust
from agenttop.agents.connection import Connection
from agenttop.agents.reply import Reply
from agenttop.agents.silence import KEEP_ALIVE_FACTOR
from agenttop.agents.sockets import open_wire
from agenttop.errors import UsageError
from agenttop.model.text import clean

CONNECT_TIMEOUT_S = 10.0

LOOK_S = 2.0
LOOK_AGAIN_S = 0.05
LOOK_LASTS_S = 0.5
"""After a connection has been cut, one look at the engine, for so long; what it shows holds for all agents
whose connections were cut with it. Real time."""

RESEND_WITHIN_S = 1.0
"""A kept connection that dies this soon after a request, with no byte of reply, had been closed by the
server while it was idle; the request is sent once more on a new one."""

CHAT_PATH = "/v1/chat/completions"
HEALTH_PATH = "/props"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long silence may last. Nothing limits a request as a whole.

    A keep-alive ends the silence, but brings no token: after KEEP_ALIVE_FACTOR times as long with nothing
    else the request has failed all the same.
    """

    queue_s: float = 900.0
    """Before the first token: engines queue and prefill without a word."""
    stall_s: float = 120.0
    """After it."""


class Endpoint:
    """Where requests go: address, TLS, headers. Shared by all agents of one engine.

    Raises UsageError for a URL that is none, a key that no header can carry, or a CA file of no use.
    """

    def __init__(self, url: str, api_key: str | None = None, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(f"'{clean(url)}' is not the URL of an engine", "write http://host:port")
        if parts.username is not None:
            raise UsageError(
                "a URL with a password in it is not used",
                "a key goes with --api-key-env NAME or --api-key-file FILE",
            )
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.tls else 80)
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._context = trust.context(ca_file) if self.tls else None
        self._ca_file = ca_file
        self._addresses: list[str] = []
        self._looking: asyncio.Task[str | None] | None = None
        self._looked_at = float("-inf")
        host = f"[{self.host}]" if ":" in self.host else self.host
        head = [
            f"host: {host}:{self.port}",
            f"user-agent: agenttop/{__version__}",
            "accept: text/event-stream, application/json",
            "accept-encoding: identity",
            "content-type: application/json",
        ]
        if api_key:
            if not api_key.isascii() or not api_key.isprintable():
                raise UsageError("the API key holds characters that no header can carry")
            head.append(f"authorization: Bearer {api_key}")
        self._head = "\r\n".join(head)
        self.secret = api_key or None
        """The key, for taking it out of what a server says."""

    def request(self, path: str, body: bytes) -> bytes:
        """A whole POST request."""
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._head}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode("ascii", "replace") + body

    async def connect(
        self, now: Callable[[], float], rate: float = 1.0, kernel_stamps: bool = False
    ) -> Connection:
        """A new connection. Raises OSError (refused, unreachable, no such host, TLS failure, timeout)."""
        if not self._addresses:
            self._addresses = await self._resolve()
        failure: OSError | None = None
        for address in self._addresses:
            connection = Connection(now)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    wire = await open_wire(
                        connection,
                        address,
                        self.port,
                        now=now,
                        rate=rate,
                        kernel_stamps=kernel_stamps,
                        tls=self._context,
                        server_name=self.host if self.tls else None,
                    )
                connection.connected(wire)
                return connection
            except TimeoutError:
                failure = OSError(f"no connection within {CONNECT_TIMEOUT_S:.0f} s")
            except OSError as error:
                failure = error
        self._addresses = []
        assert failure is not None
        raise failure

    def reason(self, error: OSError) -> str:
        """Why a connection failed, without the address that asyncio repeats."""
        if isinstance(error, ConnectionRefusedError):
            return "connection refused"
        if isinstance(error, ssl.SSLError):
            return f"it {trust.sentence(error, self.host, self._ca_file)}"
        return str(error.strerror or error)

    async def away(self) -> str | None:
        """Whether the engine has gone, in words; None: it is there. One look for all who ask at once."""
        if self._looking is None or time.monotonic() - self._looked_at > LOOK_LASTS_S:
            self._looked_at = time.monotonic()
            self._looking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> str | None:
        try:
            async with asyncio.timeout(LOOK_S):
                # A process that is ending may still accept a connection, and then drops it.
                while (status := await self._health()) is None:
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            return None
        except ConnectionRefusedError:
            return "it refuses connections"
        except OSError:
            return None
        return "it says that it is loading" if status == 503 else None

    async def _health(self) -> int | None:
        """The status of the engine's health page; None: the connection ended without one. Raises OSError."""
        reply, ended = Reply(), asyncio.Event()
        connection = await self.connect(time.monotonic)
        try:
            head = f"GET {self._path}{HEALTH_PATH} HTTP/1.1\r\n{self._head}\r\n\r\n"
            connection.start(head.encode("ascii", "replace"), reply, False, ended.set)
            await ended.wait()
        finally:
            connection.abort()
        return reply.status

    async def _resolve(self) -> list[str]:
        """Looked up once, not once per agent; forgotten when no address answers."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(f"{clean(self.host, 60)} is no host name") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Client:
    """Sends requests of one agent, one after another, over a connection that is kept while it lasts."""

    def __init__(
        self,
        endpoint: Endpoint,
        now: Callable[[], float],
        timeouts: Timeouts,
        *,
        rate: float = 1.0,
        kernel_stamps: Callable[[], bool] = lambda: False,
    ) -> None:
        """`rate`: seconds of `now` per real second. `kernel_stamps`: asked for each new connection."""
        self._endpoint = endpoint
        self._now = now
        self._timeouts = timeouts
        self._rate = rate
        self._kernel_stamps = kernel_stamps
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._looking: asyncio.Future[str | None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._reply: Reply | None = None
        self._cancelled = False

    async def send(self, body: bytes, reply: Reply, path: str = CHAT_PATH, stream: bool = True) -> None:
        """Post `body` and fill `reply` until it has ended. Failures are noted on it, never raised."""
        self._reply = reply
        reply.secret = self._endpoint.secret
        self._cancelled = False
        request = self._endpoint.request(path, body)
        try:
            kept = await self._open(reply)
            if not reply.failed:
                await self._exchange(request, reply, stream)
                if kept and self._died_idle(reply):
                    self._forget_failure(reply)
                    await self._open(reply)
                    if not reply.failed:
                        await self._exchange(request, reply, stream)
                if reply.error_kind == "cut":
                    await self._tell_restart(reply)
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._reply = None
            if reply.t_end is None:
                reply.t_end = self._now()

    def cancel(self) -> None:
        """Give up the request in progress by closing its connection; its reply ends as `cancelled`."""
        self._cancelled = True
        if self._reply is not None:
            self._reply.fail("cancelled", "cancelled")
        self.close()
        self._wake()

    def warm(self) -> None:
        """Begin to connect, so that the next request need not wait for it."""
        if self._connecting is None and not self._connected:
            work = self._endpoint.connect(self._now, self._rate, self._kernel_stamps())
            self._connecting = asyncio.ensure_future(work)

    def close(self) -> None:
        """Close the connection, or give up opening one."""
        if self._looking is not None:
            self._looking.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting.add_done_callback(_discard)
            self._connecting = None
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    @property
    def _connected(self) -> bool:
        return self._connection is not None and self._connection.open

    async def _open(self, reply: Reply) -> bool:
        """Make sure of a connection; whether it has stood a while, and may be dead without our knowing."""
        if self._connected:
            return True
        started = self._now()
        early = self._connecting
        if early is not None and early.done() and (early.cancelled() or early.exception() is not None):
            self._connecting = early = None  # that was then; try again
        self.warm()
        assert self._connecting is not None
        kept = early is not None and early.done()
        try:
            self._connection = await self._connecting
        except OSError as error:
            where = f"{self._endpoint.host}:{self._endpoint.port}"
            reply.fail("refused", f"cannot connect to {where}: {self._endpoint.reason(error)}")
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            reply.fail("cancelled", "cancelled")
        finally:
            self._connecting = None
        reply.connect_s += self._now() - started
        return kept

    async def _exchange(self, request: bytes, reply: Reply, stream: bool) -> None:
        connection = self._connection
        if connection is None or not connection.open:
            reply.fail("cut", "the connection was closed before any reply")
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        connection.start(request, reply, stream, self._wake)
        self._watchdog = loop.call_later(
            self._patience(self._silence_limit(reply)), self._check_silence, reply
        )
        try:
            await self._waiting
        finally:
            self._watchdog.cancel()
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _silence_limit(self, reply: Reply) -> float:
        return self._timeouts.queue_s if reply.t_first_token is None else self._timeouts.stall_s

    def _patience(self, left_s: float) -> float:
        """Real seconds to the next look: a busy stream costs one timer per stall time."""
        return max(0.01, min(left_s, self._timeouts.stall_s) / self._rate)

    async def _tell_restart(self, reply: Reply) -> None:
        """A connection that was cut by an engine that is gone right after was cut by its end."""
        self._looking = asyncio.ensure_future(self._endpoint.away())
        try:
            away = await self._looking
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return
        finally:
            self._looking = None
        if away is not None:
            reply.error_kind = "restarted"
            reply.error = f"{reply.error}; right after that {away}"

    def _check_silence(self, reply: Reply) -> None:
        connection = self._connection
        if connection is None or self._reply is not reply or reply.failed:
            return
        now, limit = self._now(), self._silence_limit(reply)
        silent, still = now - reply.t_alive, now - reply.t_moved
        left = min(limit - silent, KEEP_ALIVE_FACTOR * limit - still)
        if left > 0:
            delay = self._patience(left)
            self._watchdog = asyncio.get_running_loop().call_later(delay, self._check_silence, reply)
            return
        queued = reply.t_first_token is None
        what = f"no byte for {silent:.0f} s" if silent >= limit else f"only keep-alives for {still:.0f} s"
        where = "before the first token" if queued else "in the middle of the stream"
        reply.fail("queue-timeout" if queued else "stall", f"{what} {where}")
        self.close()
        self._wake()

    def _died_idle(self, reply: Reply) -> bool:
        return (
            reply.error_kind == "cut"
            and reply.t_first_byte is None
            and reply.t_sent is not None
            and self._now() - reply.t_sent < RESEND_WITHIN_S * self._rate
        )

    def _forget_failure(self, reply: Reply) -> None:
        reply.error_kind = reply.error = reply.t_end = None
        self.close()


def _discard(task: asyncio.Task[Connection]) -> None:
    """A connection nobody waits for any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().abort()
