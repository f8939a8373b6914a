"""A stub engine: OpenAI streams at a set rate, every event stamped with CLOCK_MONOTONIC as it is sent.

    python benchmarks/stub_server.py [--port P] [--rate 50] [--spread] [--batch 1]

One process, raw sockets, one `send` per event (`--batch K`: K events per send). In burst mode, the default,
all streams get their token in the same instant, as a continuous-batching engine gives them; with `--spread`
each stream has a phase of its own. `--rate 0` sends as fast as the sockets take it. The number of tokens is
the request's `max_tokens`. `GET /log` gives, per request served so far, the agent it came from, when it
arrived and when each event was sent; `POST /set` with {"rate","spread","batch"} changes the settings.

It speaks just enough HTTP for agenttop's own client and answers nothing else.
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

_AGENT = re.compile(rb"# task [0-9a-f]+-(\d+)")
_MAX_TOKENS = re.compile(rb'"max_tokens":(\d+)')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_BEFORE = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"stub","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,'
    b'"finish_reason":null}],"t":'
)
_AFTER = b"}\n\n"
_STAMP_DIGITS = 19
_EVENT_BYTES = len(_BEFORE) + _STAMP_DIGITS + len(_AFTER)
_ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}\n\n'

now_ns = time.monotonic_ns


class Stream:
    """One reply in progress."""

    def __init__(self, connection: Connection, agent: int, tokens: int, prompt_tokens: int) -> None:
        self.connection = connection
        self.agent = agent
        self.left = self.tokens = tokens
        self.prompt_tokens = prompt_tokens
        self.arrived = now_ns()
        self.stamps = array("Q")


class Connection:
    """One client. Sends block the server when the client does not read: that is what is measured."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()
        self.pending = b""


class Stub:
    """The server: one loop over its sockets and its clock."""

    def __init__(self, port: int, rate: float, spread: bool, batch: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.rate, self.spread, self.batch = rate, spread, batch
        self.streams: dict[int, Stream] = {}
        self.log: list[Stream] = []
        self.due: list[tuple[int, int]] = []
        """Spread mode: (time, key of stream)."""
        self.tick = 0
        self.counter = 0

    def serve(self) -> None:
        """Serve until interrupted."""
        while True:
            for key, _ in self.selector.select(self._wait()):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            if self.streams:
                self._pump()

    def _wait(self) -> float | None:
        if not self.streams:
            return None
        if self.rate == 0:
            return 0
        due = self.due[0][0] if self.spread and self.due else self.tick
        # Sleep to a little before the moment, then poll: the stamps are exact, the tokens nearly.
        return max(0.0, (due - now_ns()) / 1e9 - 0.0002)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self.listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                self.selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
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
        self._answer(connection, head.split(b" ", 2), body)

    def _answer(self, connection: Connection, line: list[bytes], body: bytes) -> None:
        method, path = line[0], line[1]
        if path == b"/v1/chat/completions":
            self._start(connection, body)
        elif (method, path) == (b"GET", b"/log"):
            rows = [{"agent": s.agent, "arrived": s.arrived, "stamps": s.stamps.tolist()} for s in self.log]
            self._plain(connection, 200, json.dumps(rows).encode())
        elif (method, path) == (b"POST", b"/set"):
            settings = json.loads(body)
            self.rate, self.spread = settings["rate"], settings["spread"]
            self.batch = settings["batch"]
            self.log.clear()
            self._plain(connection, 200, b"{}")
        else:
            self._plain(connection, 404, b'{"detail":"Not Found"}')

    def _plain(self, connection: Connection, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sock.setblocking(True)
        with contextlib.suppress(OSError):
            connection.sock.sendall(head.encode() + body)
        connection.sock.setblocking(False)

    def _start(self, connection: Connection, body: bytes) -> None:
        agent = int(found[1]) if (found := _AGENT.search(body)) else 0
        tokens = int(found[1]) if (found := _MAX_TOKENS.search(body)) else 16
        stream = Stream(connection, agent, tokens, len(body) // 4)
        self.log.append(stream)
        self.counter += 1
        if not self.streams:
            self.tick = now_ns() + self._period()
        self.streams[self.counter] = stream
        if self.spread:
            phase = self._period() * (self.counter * 0.618 % 1)
            heapq.heappush(self.due, (now_ns() + int(phase), self.counter))
        self._send(stream, _HEAD + b"%x\r\n%s\r\n" % (len(_ROLE), _ROLE))

    def _period(self) -> int:
        return int(1e9 / self.rate) if self.rate else 0

    def _pump(self) -> None:
        """Send what is due."""
        if self.rate == 0:
            for key in list(self.streams):
                self._token(key)
        elif self.spread:
            while self.due and self.due[0][0] <= now_ns():
                when, key = heapq.heappop(self.due)
                if self._token(key):
                    heapq.heappush(self.due, (when + self._period(), key))
        elif now_ns() >= self.tick:
            self.tick += self._period()
            for key in list(self.streams):
                self._token(key)

    def _token(self, key: int) -> bool:
        """The next event of a stream, or several; False when it has ended."""
        stream = self.streams.get(key)
        if stream is None:
            return False
        if stream.connection.pending:
            self._send(stream, b"")
            if stream.connection.pending:
                return True
        count = min(self.batch, stream.left)
        stamp = now_ns()
        event = b"%x\r\n%s%*d%s\r\n" % (_EVENT_BYTES, _BEFORE, _STAMP_DIGITS, stamp, _AFTER)
        stream.stamps.extend([stamp] * count)
        stream.left -= count
        data = event * count
        if stream.left == 0:
            data += self._ending(stream)
            del self.streams[key]
        self._send(stream, data)
        return stream.left > 0

    @staticmethod
    def _ending(stream: Stream) -> bytes:
        usage = {"prompt_tokens": stream.prompt_tokens, "completion_tokens": stream.tokens}
        parts = [
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n',
            b'data: {"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\n",
            b"data: [DONE]\n\n",
        ]
        return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    def _send(self, stream: Stream, data: bytes) -> None:
        connection = stream.connection
        data = connection.pending + data
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.pending = data[sent:]
        if connection.pending and stream.left == 0:  # the end must arrive: wait for the client
            connection.sock.setblocking(True)
            with contextlib.suppress(OSError):
                connection.sock.sendall(connection.pending)
            connection.sock.setblocking(False)
            connection.pending = b""

    def _close(self, connection: Connection) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(connection.sock)
        connection.sock.close()
        for key in [key for key, stream in self.streams.items() if stream.connection is connection]:
            del self.streams[key]


def main() -> int:
    """Print the port, then serve."""
    parser = argparse.ArgumentParser(description="A stub engine that stamps every event it sends.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second and stream; 0: no limit")
    parser.add_argument("--spread", action="store_true", help="every stream its own phase")
    parser.add_argument("--batch", type=int, default=1, help="events per send")
    arguments = parser.parse_args()
    stub = Stub(arguments.port, arguments.rate, arguments.spread, arguments.batch)
    print(stub.port, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        stub.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
