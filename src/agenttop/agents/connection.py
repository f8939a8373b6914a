"""One HTTP/1.1 connection: requests out, replies in, one at a time.

A protocol on the event loop rather than a stream reader: the time stamp is taken in `data_received`
before anything is parsed, so that neither buffering nor decoding ever delays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from agenttop.agents.reply import Reply
from agenttop.wire.openai import read_error
from agenttop.wire.sse import SseParser

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
"""Of a reply that is not an event stream: an explanation, a token list."""

_CR = 13

AFTER_DONE_S = 1.0
"""How long the end of the body may follow `[DONE]` before the connection is given up."""


class Connection(asyncio.Protocol):
    """Sends one request at a time and fills its Reply; `finished` is called when the reply has ended."""

    __slots__ = (
        "_between_chunks",
        "_between_events",
        "_body",
        "_complete",
        "_content_type",
        "_encoding",
        "_finished",
        "_header_bytes",
        "_headers_done",
        "_interim",
        "_location",
        "_now",
        "_overdue_armed",
        "_parser",
        "_reply",
        "_sse",
        "_transport",
        "_want_stream",
        "last_byte",
        "open",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._finished: Callable[[], None] | None = None
        self._want_stream = True
        self.open = False
        self._between_events = False
        """The parser stands between two chunks and two events: a read that holds exactly one of each, as
        nearly all do, can be taken apart here, at half the cost."""
        self.last_byte = 0.0
        """When the engine last sent anything, a keep-alive comment included."""

    # What the client calls

    def start(self, request: bytes, reply: Reply, want_stream: bool, finished: Callable[[], None]) -> None:
        """Write a request. The connection must be open and without a reply in progress."""
        assert self._transport is not None
        self._reply, self._finished, self._want_stream = reply, finished, want_stream
        self._parser = httptools.HttpResponseParser(self)
        self._sse: SseParser | None = None
        self._body = bytearray()
        self._header_bytes = 0
        self._headers_done = False
        self._content_type = ""
        self._location = ""
        self._encoding = ""
        self._interim = False
        self._complete = False
        self._overdue_armed = False
        self._between_chunks = self._between_events = False
        self.last_byte = self._now()
        if reply.t_sent is None:
            reply.t_sent = self.last_byte
        self._transport.write(request)

    def abort(self) -> None:
        """Close at once: the engine sees the connection go and frees what it held for the request.

        A reply in progress is let go of; nothing more is reported on it.
        """
        self.open = self._between_events = False
        self._reply = self._finished = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Stamp first, then parse."""
        now = self._now()
        if self._between_events and (payload := _only_event(data)) is not None:
            reply = self._reply
            assert reply is not None
            self.last_byte = now
            before = reply.events
            try:
                reply.event(payload, now)
            except ValueError as error:
                reply.fail("protocol", str(error))
            reply.reads += reply.events - before
            if reply.error_kind is not None or reply.done:
                self._after_read(reply)
        else:
            self._parse(data, now)

    def _parse(self, data: bytes, now: float) -> None:
        reply = self._reply
        if reply is None:
            self.abort()  # bytes that nobody asked for
            return
        self.last_byte = now
        if reply.t_first_byte is None:
            reply.t_first_byte = now
            if reply.watch is not None:
                reply.watch()
        before = reply.events
        self._between_events = False
        try:
            if not self._headers_done:
                self._header_bytes += len(data)
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            reply.fail("protocol", "the server wants to speak another protocol on this connection")
        except httptools.HttpParserError as error:
            reply.fail("protocol", f"not an HTTP reply: {error}")
        fresh = reply.events - before
        if fresh:
            reply.reads += 1
            reply.shared_reads += fresh > 1
        if not self._headers_done and self._header_bytes > MAX_HEADER_BYTES:
            reply.fail("protocol", f"the reply has more than {MAX_HEADER_BYTES} bytes of headers")
        self._between_events = (
            self._between_chunks
            and data.endswith(b"\r\n")
            and self._sse is not None
            and self._sse.between
            and self._reply is reply
        )
        self._after_read(reply)

    def _after_read(self, reply: Reply) -> None:
        if self._reply is not reply:
            return
        if reply.failed:
            self._end(keep=False)
        elif reply.done and not self._overdue_armed:
            self._overdue_armed = True
            asyncio.get_running_loop().call_later(AFTER_DONE_S, self._overdue, reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        self.open = False
        reply = self._reply
        if reply is None:
            return
        if not reply.failed:
            self._ended_by_close(reply, exc)
        self._end(keep=False)

    # What the parser calls. Exceptions must not pass through it, so failures are noted on the reply.

    def on_message_begin(self) -> None:
        """A reply begins."""
        if self._complete:
            self.abort()  # a second reply to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1").lower()
        elif name == b"location":
            self._location = value.decode("latin-1")
        elif name == b"content-encoding":
            self._encoding = value.decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """Status and headers are known: is this a reply we can read?"""
        reply = self._reply
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if reply is None or self._interim:
            return
        self._headers_done = True
        reply.status = status
        if 300 <= status < 400:
            reply.fail("protocol", f"redirected to {self._location or 'nowhere'}; name the final URL")
        elif self._encoding not in ("", "identity"):
            reply.fail("protocol", f"the reply is compressed ({self._encoding}), which was not asked for")
        elif status == 200 and self._want_stream:
            if "text/event-stream" in self._content_type:
                self._sse = SseParser()
            elif "json" not in self._content_type:
                kind = self._content_type or "nothing that says its type"
                reply.fail("protocol", f"answered with {kind} instead of an event stream")

    def on_body(self, data: bytes) -> None:
        """A piece of the body, chunk framing removed."""
        reply = self._reply
        if reply is None or reply.error_kind is not None or self._interim:
            return
        if self._sse is None:
            self._body += data
            if len(self._body) > MAX_BODY_BYTES:
                del self._body[MAX_BODY_BYTES:]
                self._explain(reply)
                reply.fail("protocol", f"a reply of more than {MAX_BODY_BYTES} bytes that is no event stream")
            return
        try:
            for payload in self._sse.feed(data):
                reply.event(payload, self.last_byte)
                if reply.failed:
                    return
        except ValueError as error:  # SseError is one
            reply.fail("protocol", str(error))

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        """A chunk has ended."""
        self._between_chunks = True

    def on_message_complete(self) -> None:
        """The body has ended as its framing says."""
        if self._interim:
            self._interim = False
            return
        reply = self._reply
        if reply is None or self._complete:
            return
        self._complete = True
        if not reply.failed:
            self._end_of_body(reply)
        self._end(keep=not reply.failed and bool(self._parser.should_keep_alive()))

    # How a reply ends

    def _take_last(self, reply: Reply, sse: SseParser) -> None:
        """Events that the end of the stream completes."""
        try:
            for payload in sse.finish():
                reply.event(payload, self.last_byte)
        except ValueError as error:
            reply.fail("protocol", str(error))

    def _end_of_body(self, reply: Reply) -> None:
        if self._sse is not None:
            self._take_last(reply, self._sse)
            if not reply.failed and not reply.done and reply.finish_reason is None:
                reply.fail("cut", "the stream ended without [DONE] and without a finish reason")
        elif self._want_stream or reply.status != 200:
            self._explain(reply)
        else:
            reply.body = bytes(self._body)

    def _explain(self, reply: Reply) -> None:
        """No stream where one was wanted: what the reply says, and what kind of failure it is."""
        status = reply.status or 0
        refusal = read_error(bytes(self._body), status)
        reply.refusal = refusal
        if refusal.is_context:
            reply.fail("context", refusal.message)
        elif status == 200:
            reply.fail("protocol", f"answered without streaming: {refusal.message}")
        elif status >= 500:
            reply.fail("http-5xx", f"{status}: {refusal.message}")
        else:
            reply.fail("http-4xx", f"{status}: {refusal.message}")

    def _ended_by_close(self, reply: Reply, exc: Exception | None) -> None:
        how = "was reset" if exc is not None else "was closed"
        if reply.t_first_byte is None:
            reply.fail("cut", f"the connection {how} before any reply")
        elif not self._headers_done:
            reply.fail("cut", f"the connection {how} within the headers")
        elif self._sse is not None:
            self._take_last(reply, self._sse)
            if not reply.failed and not reply.done and reply.finish_reason is None:
                reply.fail("cut", f"the connection {how} in the middle of the stream")
        else:
            self._end_of_body(reply)

    def _overdue(self, reply: Reply) -> None:
        if self._reply is reply:
            self._end(keep=False)

    def _end(self, keep: bool) -> None:
        self._between_events = False
        reply, finished = self._reply, self._finished
        self._reply = self._finished = None
        if reply is not None and reply.t_end is None:
            reply.t_end = self._now()
        if not keep:
            self.abort()
        if finished is not None:
            finished()


def _only_event(data: bytes) -> bytes | None:
    """The data of an event of one line that is alone in a chunk that is alone in a read; else None."""
    at = data.find(b"\r\n")
    if (
        data.endswith(b"\n\n\r\n")
        and data.find(b"\n", at + 2) == len(data) - 4
        and data.startswith(b"data: ", at + 2)
    ):
        payload = data[at + 8 : -4]
        try:
            if _CR not in payload and int(data[:at], 16) == len(data) - at - 4:
                return payload
        except ValueError:
            pass
    return None
