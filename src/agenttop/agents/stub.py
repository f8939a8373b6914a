"""A stub engine: OpenAI streams at a set rate, every event stamped with CLOCK_MONOTONIC as it is sent.

    python -m agenttop.agents.stub [--port P] [--rate 50] [--spread] [--batch 1]

It measures clients, agenttop's own (`agenttop calibrate`) and others (`benchmarks/`), and must cost less than
they do: one process, raw sockets, one `send` per event (`--batch K`: K events per send). In burst mode, the
default, all streams get their token in the same instant, as a continuous-batching engine gives them; with
`--spread` each stream has a phase of its own. `--rate 0` sends as fast as the sockets take it. The number of
tokens is the request's `max_tokens`; the finish reason is `stub-N`, N being the number of the request, when
agenttop asks. `GET /log` gives per request its number, when it arrived and when each event was sent;
`POST /set` with {"rate","spread","batch"} changes the settings and clears the log.

It speaks just enough HTTP for streaming clients, and answers nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import re
import selectors
import socket
import sys
import time
from array import array

_MAX_TOKENS = re.compile(rb'"max(?:_completion)?_tokens": ?(\d+)')
_LENGTH = re.compile(rb"\ncontent-length: *(\d+)", re.IGNORECASE)
_OWN = re.compile(rb"\nuser-agent: *agenttop/", re.IGNORECASE)

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_STAMP_DIGITS = 19
_BEFORE = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"stub","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,'
    b'"finish_reason":null}],"t":'
)
_AFTER = b"}\n\n"
_EVENT_BYTES = len(_BEFORE) + _STAMP_DIGITS + len(_AFTER)
_TOKEN = (b"%x\r\n%s" % (_EVENT_BYTES, _BEFORE)).replace(b"%", b"%%") + b"%19d" + _AFTER + b"\r\n"
_ROLE = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"stub","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
)

ROUNDS_BETWEEN_LOOKS = 8
"""At full speed, rounds over all streams before new requests are looked for."""

POLL_BEFORE_S = 0.0002
"""Sleep to this moment before a token is due, then poll: stamps are exact anyway, intervals nearly."""

now_ns = time.monotonic_ns


class Connection:
    """One client."""

    __slots__ = ("buffer", "pending", "send", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.send = sock.send
        self.buffer = bytearray()
        self.pending = b""


class Stream:
    """One reply in progress."""

    __slots__ = ("arrived", "connection", "left", "named", "number", "prompt_tokens", "stamps", "tokens")

    def __init__(
        self,
        connection: Connection,
        number: int,
        tokens: int,
        prompt_tokens: int,
        arrived: int,
        named: bool,
    ) -> None:
        self.connection = connection
        self.number = number
        self.left = self.tokens = tokens
        self.prompt_tokens = prompt_tokens
        self.named = named
        self.arrived = arrived
        self.stamps = array("Q")


class Stub:
    """The server: one loop over its sockets and its clock."""

    def __init__(self, port: int = 0, rate: float = 50.0, spread: bool = False, batch: int = 1) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._rate, self._spread, self._batch = rate, spread, batch
        self._streams: dict[int, Stream] = {}
        self._log: list[Stream] = []
        self._due: list[tuple[int, int]] = []
        """Spread mode: (time, number of the stream)."""
        self._asked: list[tuple[Connection, bytes, bytes, int]] = []
        """Requests that have been read: connection, head, body, time of arrival."""
        self._tick = 0
        self._counter = 0

    def serve(self) -> None:
        """Serve until interrupted."""
        while True:
            for key, _ in self._selector.select(self._wait()):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            # Answered once all are read: when a request arrived must not depend on those before it.
            asked, self._asked = self._asked, []
            for request in asked:
                self._answer(*request)
            if self._streams:
                self._pump()

    def _wait(self) -> float | None:
        if not self._streams:
            return None
        if self._rate == 0:
            return 0
        due = self._due[0][0] if self._spread and self._due else self._tick
        return max(0.0, (due - now_ns()) / 1e9 - POLL_BEFORE_S)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                self._selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = now_ns()
        if not data:
            self._close(connection)
            return
        connection.buffer += data
        head_end = connection.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(connection.buffer[:head_end])
        length = int(found[1]) if (found := _LENGTH.search(head)) else 0
        if len(connection.buffer) < head_end + 4 + length:
            return
        body = bytes(connection.buffer[head_end + 4 : head_end + 4 + length])
        del connection.buffer[: head_end + 4 + length]
        self._asked.append((connection, head, body, now))

    def _answer(self, connection: Connection, head: bytes, body: bytes, arrived: int) -> None:
        line = head.split(b" ", 2)
        method, path = line[0], line[1] if len(line) > 1 else b""
        if path == b"/v1/chat/completions":
            self._start(connection, body, arrived, _OWN.search(head) is not None)
        elif (method, path) == (b"GET", b"/v1/models"):
            self._plain(connection, 200, b'{"object":"list","data":[{"id":"stub","object":"model"}]}')
        elif (method, path) == (b"GET", b"/log"):
            rows = [{"number": s.number, "arrived": s.arrived, "stamps": [*s.stamps]} for s in self._log]
            self._plain(connection, 200, json.dumps(rows).encode())
        elif (method, path) == (b"POST", b"/set"):
            settings = json.loads(body)
            self._rate, self._spread = settings["rate"], settings["spread"]
            self._batch = settings["batch"]
            self._log.clear()
            self._plain(connection, 200, b"{}")
        else:
            self._plain(connection, 404, b'{"detail":"Not Found"}')

    def _plain(self, connection: Connection, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sock.setblocking(True)
        with contextlib.suppress(OSError):
            connection.sock.sendall(head.encode() + body)
        connection.sock.setblocking(False)

    def _start(self, connection: Connection, body: bytes, arrived: int, named: bool) -> None:
        tokens = int(found[1]) if (found := _MAX_TOKENS.search(body)) else 16
        self._counter += 1
        stream = Stream(connection, self._counter, tokens, len(body) // 4, arrived, named)
        self._log.append(stream)
        if not self._streams:
            self._tick = now_ns() + self._period()
        self._streams[self._counter] = stream
        if self._spread:
            phase = self._period() * (self._counter * 0.618 % 1)
            heapq.heappush(self._due, (now_ns() + int(phase), self._counter))
        self._send(stream, _HEAD + b"%x\r\n%s\r\n" % (len(_ROLE), _ROLE))

    def _period(self) -> int:
        return int(1e9 / self._rate) if self._rate else 0

    def _pump(self) -> None:
        """Send what is due."""
        if self._rate == 0:
            for _ in range(ROUNDS_BETWEEN_LOOKS):
                self._round()
        elif self._spread:
            while self._due and self._due[0][0] <= now_ns():
                when, number = heapq.heappop(self._due)
                stream = self._streams.get(number)
                if stream is not None and self._token(stream):
                    heapq.heappush(self._due, (when + self._period(), number))
        elif now_ns() >= self._tick:
            self._tick += self._period()
            self._round()

    def _round(self) -> None:
        for stream in list(self._streams.values()):
            self._token(stream)

    def _token(self, stream: Stream) -> bool:
        """The next event of a stream, or several; False when it has ended."""
        connection = stream.connection
        if connection.pending:
            self._send(stream, b"")
            if connection.pending:
                return True
        stamp = now_ns()
        data = _TOKEN % stamp
        if self._batch == 1:
            stream.stamps.append(stamp)
            stream.left -= 1
        else:
            count = min(self._batch, stream.left)
            data *= count
            stream.stamps.extend([stamp] * count)
            stream.left -= count
        if stream.left <= 0:
            self._end(stream, data)
            return False
        try:
            sent = connection.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return False
        if sent < len(data):
            connection.pending = data[sent:]
        return True

    def _end(self, stream: Stream, data: bytes) -> None:
        self._streams.pop(stream.number, None)
        reason = f"stub-{stream.number}" if stream.named else "length"
        usage = {
            "prompt_tokens": stream.prompt_tokens,
            "completion_tokens": stream.tokens,
            "total_tokens": stream.prompt_tokens + stream.tokens,
        }
        parts = [
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}\n\n' % reason.encode(),
            b'data: {"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\n",
            b"data: [DONE]\n\n",
        ]
        data += b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        self._send(stream, data)

    def _send(self, stream: Stream, data: bytes) -> None:
        connection = stream.connection
        data = connection.pending + data
        try:
            sent = connection.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.pending = data[sent:]
        if connection.pending and stream.left <= 0:  # the end must arrive: wait for the client
            connection.sock.setblocking(True)
            with contextlib.suppress(OSError):
                connection.sock.sendall(connection.pending)
            connection.sock.setblocking(False)
            connection.pending = b""

    def _close(self, connection: Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        for number in [n for n, stream in self._streams.items() if stream.connection is connection]:
            del self._streams[number]


def main() -> int:
    """Print the port, then serve."""
    parser = argparse.ArgumentParser(description="A stub engine that stamps every event it sends.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second and stream; 0: no limit")
    parser.add_argument("--spread", action="store_true", help="every stream its own phase")
    parser.add_argument("--batch", type=int, default=1, help="events per send")
    arguments = parser.parse_args()
    stub = Stub(arguments.port, arguments.rate, arguments.spread, arguments.batch)
    sys.stdout.write(f"{stub.port}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        stub.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
