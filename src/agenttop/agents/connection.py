"""One HTTP/1.1 connection: requests out, replies in, one at a time.

Bytes come with the time of their arrival, which was taken before anything looked at them (`agents.sockets`),
so that neither buffering nor decoding ever delays it. A read of whole chunks with one event each, as nearly
all reads of a token stream are, is taken apart right here; everything else goes to httptools and the event
parser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools
import msgspec

from agenttop.agents.reply import Reply
from agenttop.agents.sockets import Wire
from agenttop.wire.openai import decode_chunk, read_error
from agenttop.wire.sse import SseParser

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
"""Of a reply that is not an event stream: an explanation, a token list."""

_HEAD_END = b"\r\ndata: {"
_EVENT_END = b"\n\n\r\n"
_SIZES_KEPT = 65536

AFTER_DONE_S = 1.0
"""How long the end of the body may follow `[DONE]` before the connection is given up."""


COMMENT_BYTES = 32 * 1024
COMMENT_REST_S = 0.25
"""An engine may say that it is alive, but after so many bytes of nothing but that, the reader rests (real
time): comments without end would take a whole core."""

_sizes: dict[bytes, int] = {}
"""Chunk sizes by their digits: looked up rather than read again for every token."""


class Connection:
    """Sends one request at a time and fills its Reply; `finished` is called when the reply has ended."""

    __slots__ = (
        "_at",
        "_between_chunks",
        "_between_events",
        "_body",
        "_comment_bytes",
        "_complete",
        "_content_type",
        "_encoding",
        "_events_then",
        "_finished",
        "_header_bytes",
        "_headers_done",
        "_interim",
        "_location",
        "_lost",
        "_now",
        "_overdue_armed",
        "_parser",
        "_reply",
        "_sse",
        "_stamp",
        "_want_stream",
        "_wire",
        "open",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wire: Wire | None = None
        self._reply: Reply | None = None
        self._finished: Callable[[], None] | None = None
        self._want_stream = True
        self.open = False
        self._between_events = False
        """The parser stands between two chunks and two events: whole chunks can be taken apart here."""
        self._at = 2
        """Digits in the size of the last chunk."""
        self._stamp = 0.0
        """Of the read that is being parsed."""
        self._comment_bytes = self._events_then = 0
        self._lost = False

    # What the client calls

    def start(self, request: bytes, reply: Reply, want_stream: bool, finished: Callable[[], None]) -> None:
        """Write a request. The connection must be open and without a reply in progress."""
        assert self._wire is not None
        now = self._now()
        if reply.t_sent is None:
            reply.t_sent = now
        reply.t_any_byte = reply.t_progress = now
        self._wire.write(request)
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
        self._comment_bytes = self._events_then = 0

    def abort(self) -> None:
        """Close at once: the engine sees the connection go and frees what it held for the request.

        A reply in progress is let go of; nothing more is reported on it.
        """
        self.open = self._between_events = False
        self._reply = self._finished = None
        if self._wire is not None:
            self._wire.abort()

    # What the wire calls

    def connected(self, wire: Wire) -> None:
        """The connection stands."""
        self._wire = wire
        self.open = not self._lost

    def received(self, data: bytes, now: float, by_kernel: bool = False) -> None:
        """Bytes and the time of their arrival."""
        if not self._between_events:
            self._parse(data, now, by_kernel)
            return
        reply = self._reply
        assert reply is not None
        if by_kernel:
            last = reply.t_last_token
            if last is not None and now < last:
                now = last  # the read before was stamped here, and later than it arrived
        before = reply.events
        start, length = 0, len(data)
        digits = self._at
        while start < length:
            at = start + digits
            if data[at : at + 9] != _HEAD_END:
                at = data.find(b"\r\n", start, start + 9)
                if at < 0 or data[at : at + 9] != _HEAD_END:
                    break
                digits = self._at = at - start
            size = _sizes.get(data[start:at])
            if size is None and (size := _learn_size(data[start:at])) is None:
                break
            end = at + size
            if data[end : end + 4] != _EVENT_END:
                break
            try:
                # A line end within it, where another line of the event or another event begins, is no JSON.
                chunk = decode_chunk(data[at + 8 : end])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                break
            start = end + 4
            try:
                reply.take(chunk, now)
            except ValueError as error:
                reply.fail("protocol", str(error))
            if reply.error_kind is not None:
                start = length
        fresh = reply.events - before
        if fresh > 1:
            reply.shared_reads += 1
            reply.merged += fresh - 1
        if fresh and by_kernel:
            reply.by_kernel += 1
        if start < length:
            self._parse(data[start:] if start else data, now, by_kernel, fresh)
        elif not fresh or reply.error_kind is not None:
            reply.t_any_byte = now
            self._after_read(reply)

    def _parse(self, data: bytes, now: float, by_kernel: bool, earlier: int = 0) -> None:
        """The whole way. `earlier`: events with text that were taken from the same read before."""
        reply = self._reply
        if reply is None:
            self.abort()  # bytes that nobody asked for
            return
        self._stamp = reply.t_any_byte = now
        if reply.t_first_byte is None:
            reply.t_first_byte = now
            if reply.watch is not None:
                reply.watch()
        before = reply.events
        sse = self._sse
        comments = sse.comments if sse is not None else 0
        self._between_events = False
        try:
            if not self._headers_done:
                self._header_bytes += len(data)
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            reply.fail("protocol", "the server wants to speak another protocol on this connection")
        except httptools.HttpParserError as error:
            reply.fail("protocol", f"not an HTTP reply: {error}")
        _count_read(reply, reply.events - before, earlier, by_kernel)
        if not self._headers_done and self._header_bytes > MAX_HEADER_BYTES:
            reply.fail("protocol", f"the reply has more than {MAX_HEADER_BYTES} bytes of headers")
        if reply.events == before and sse is not None and sse.comments > comments:
            self._rest_from_comments(reply, len(data))
        self._between_events = (
            self._between_chunks
            and data.endswith(b"\r\n")
            and self._sse is not None
            and self._sse.between
            and self._reply is reply
        )
        self._after_read(reply)

    def _rest_from_comments(self, reply: Reply, count: int) -> None:
        if reply.events != self._events_then:  # tokens come in between
            self._events_then, self._comment_bytes = reply.events, 0
        self._comment_bytes += count
        if self._comment_bytes > COMMENT_BYTES and self._wire is not None and self.open:
            self._comment_bytes = 0
            self._wire.pause(COMMENT_REST_S)

    def _after_read(self, reply: Reply) -> None:
        if self._reply is not reply:
            return
        if reply.failed:
            self._end(keep=False)
        elif reply.done and not self._overdue_armed:
            self._overdue_armed = True
            asyncio.get_running_loop().call_later(AFTER_DONE_S, self._overdue, reply)

    def lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        self._lost = True
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
                reply.event(payload, self._stamp)
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
                reply.event(payload, self._stamp)
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


def _count_read(reply: Reply, fresh: int, earlier: int, by_kernel: bool) -> None:
    """Account for a read that brought `fresh` events with text, after `earlier` ones that are counted."""
    if not fresh:
        return
    reply.merged += fresh if earlier else fresh - 1
    if earlier <= 1 < earlier + fresh:
        reply.shared_reads += 1
    if by_kernel and not earlier:
        reply.by_kernel += 1


def _learn_size(digits: bytes) -> int | None:
    """The size of a chunk less the bytes `data: {` and two line ends stand for; None when it is no size.

    Counted from the end of the digits: `digits + size` is where the event's closing line ends begin.
    """
    if not 1 <= len(digits) <= 8 or not digits.isalnum():
        return None
    try:
        size = int(digits, 16)
    except ValueError:
        return None
    if len(_sizes) < _SIZES_KEPT:
        _sizes[digits] = size
    return size
