"""HTTP/1.1 for the simulated engine: requests in, replies out, streams as chunks, connections kept.

    Visitor     one connection, an asyncio protocol; one request at a time, further ones wait their turn
    Exchange    one request and the reply to it, handed to whoever answers

Written on a protocol rather than taken from a web framework because the faults are made here: silence, a
stream without its end, a connection that is cut or reset in the middle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools
import msgspec

MARK = (b"x-agenttop-sim", b"1")
"""On every reply: whoever looks at it sees that no real engine sent it."""

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_WAITING = 16
"""Requests that one connection may send ahead; a client that sends more is cut off."""

Headers = Iterable[tuple[bytes, bytes]]


class Request(msgspec.Struct):
    """What was asked."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case; of a name given twice the last value."""
    body: bytes
    keep: bool
    """The client wants to go on using the connection."""


class Exchange:
    """One request and its reply. `gone` is called when the client leaves before the reply has ended."""

    def __init__(self, visitor: Visitor, request: Request) -> None:
        self._visitor = visitor
        self.request = request
        self.gone: Callable[[], None] | None = None
        self.over = False
        """The reply has ended, or there is nobody left to send it to."""
        self.streaming = False

    def answer(self, status: int, body: bytes, headers: Headers = (), *, close: bool = False) -> None:
        """The whole reply at once."""
        if self.over:
            return
        keep = self.request.keep and not close
        head = _head(status, [*headers, (b"content-length", b"%d" % len(body))], keep)
        self._visitor.write(head if self.request.method == "HEAD" else head + body)
        self._end(keep)

    def open_stream(self, headers: Headers = ()) -> None:
        """Status 200 and the head of a chunked reply; its pieces follow."""
        if self.over or self.streaming:
            return
        self.streaming = True
        chunked = [*headers, (b"transfer-encoding", b"chunked")]
        self._visitor.write(_head(200, chunked, self.request.keep))

    def send(self, events: Iterable[bytes]) -> None:
        """Pieces of the stream, each a chunk of its own, in one write."""
        if not self.over:
            self._visitor.write(
                b"".join([b"%x\r\n%s\r\n" % (len(event), event) for event in events if event])
            )

    def close_stream(self) -> None:
        """The end of the stream as HTTP wants it; the connection is kept if the client likes."""
        if not self.over:
            self._visitor.write(b"0\r\n\r\n")
            self._end(self.request.keep)

    def cut(self) -> None:
        """Close the connection where the reply stands: for a client, the end of the file too early."""
        if not self.over:
            self.over = True
            self._visitor.close()

    def _end(self, keep: bool) -> None:
        self.over = True
        self._visitor.answered(keep)

    def lost(self) -> None:
        """The client has gone."""
        if not self.over:
            self.over = True
            if self.gone is not None:
                self.gone()


class Visitor(asyncio.Protocol):
    """One connection; `serve` is called with each exchange, one after another."""

    def __init__(self, serve: Callable[[Exchange], None], present: set[Visitor]) -> None:
        self._serve = serve
        self._present = present
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._exchange: Exchange | None = None
        self._serving = False
        self._begin()

    @property
    def idle(self) -> bool:
        """No request is being answered."""
        return self._exchange is None

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send what was written, then hang up."""
        if self._transport is not None:
            self._transport.close()

    def answered(self, keep: bool) -> None:
        """The reply in progress is complete."""
        self._exchange = None
        if not keep:
            self._waiting.clear()
            self.close()
        elif not self._serving:
            self._next()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._present.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse; a request that is none gets 400 and the end of the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.BAD_REQUEST, "this server speaks HTTP/1.1 and nothing else")
        except httptools.HttpParserCallbackError as error:
            reason = error.__context__
            if not isinstance(reason, _TooBigError):
                raise
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(reason))
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has hung up, or was cut off."""
        self._present.discard(self)
        self._waiting.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lost()

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()

    def on_url(self, url: bytes) -> None:
        """Its target, in pieces."""
        self._target += url
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """A client may wait for leave to send its body (curl does, with large ones)."""
        if self._headers.get("expect", "").lower() == "100-continue" and self.idle:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            raise _TooBigError(f"a body of more than {MAX_BODY_BYTES} bytes")

    def on_message_complete(self) -> None:
        """The request is whole."""
        path, _, query = bytes(self._target).decode("latin-1").partition("?")
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            path=unquote(path),
            query=query,
            headers=self._headers,
            body=bytes(self._body),
            keep=bool(self._parser.should_keep_alive()),
        )
        self._waiting.append(request)
        if len(self._waiting) > MAX_WAITING:
            self.close()
        elif self._exchange is None:
            self._next()

    # Inside

    def _begin(self) -> None:
        self._target = bytearray()
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body = bytearray()

    def _grow(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _TooBigError(f"headers of more than {MAX_HEADER_BYTES} bytes")

    def _next(self) -> None:
        """Serve what waits; a loop, as a reply may be complete before `serve` returns."""
        self._serving = True
        try:
            while self._waiting and self._exchange is None:
                self._exchange = Exchange(self, self._waiting.popleft())
                self._serve(self._exchange)
        finally:
            self._serving = False

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """End a connection that cannot be read any further."""
        body = why.encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        self.write(_head(status, headers, keep=False) + body)
        self.close()


class _TooBigError(Exception):
    """More than anybody sends in earnest."""


def _head(status: int, headers: Headers, keep: bool) -> bytes:
    lines = [b"HTTP/1.1 %d %s" % (status, _phrase(status))]
    lines += [b"%s: %s" % header for header in headers]
    lines.append(b"%s: %s" % MARK)
    if not keep:
        lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"
