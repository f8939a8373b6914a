"""Servers on 127.0.0.1 that are not what agenttop hopes for.

    with hostile.html_page() as server:
        ... server.url, server.port
        assert server.asked == ["GET /health", ...]      every request line so far, without the HTTP version

html_page()      200 and a web page, whatever is asked for
not_http()       a server of another protocol: greets, answers nonsense
unauthorised()   a llama.cpp server that wants a key: 401, but /health and /v1/models are open
loading()        a llama.cpp server that loads its model: 503 to everything
huge_reply()     50 MB of valid JSON to everything; `path="/slots"`: to that one, else a llama.cpp server
stalls()         takes the connection and the request and never answers
many_slots()     a llama.cpp server with 256 slots, half of them at work
redirect()       302 to `to` (default: another path of its own)
closes()         hangs up as soon as the connection stands
slow_drip()      a valid reply, one byte every `every_s` seconds
llama_like()     an idle llama.cpp server; `replies` overrides single paths, e.g. {"/slots": (501, {...})}

All answer from threads of this process, for as long as the `with` lasts. A reply is (status, body),
where the body is bytes, text, or a value that becomes JSON. The llama.cpp replies have the
fields of build 11549.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

Reply = tuple[int, Any]
Handler = Callable[["HostileServer", socket.socket], None]

_REASONS = {
    200: "OK",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Busy",
}


class HostileServer:
    """Listens; gives each connection to `handler` in a thread of its own; all end with the `with`."""

    def __init__(self, handler: Handler) -> None:
        self.asked: list[str] = []
        self.closing = threading.Event()
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._listener.settimeout(0.1)
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.closing.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._open.add(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        with connection, contextlib.suppress(OSError):
            self._handler(self, connection)
        self._open.discard(connection)


def html_page() -> HostileServer:
    page = "<!doctype html><html><head><title>Router login</title></head><body><h1>Welcome</h1></body></html>"
    return HostileServer(_always((200, page), "text/html; charset=utf-8"))


def not_http() -> HostileServer:
    def greet(_: HostileServer, connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        while connection.recv(4096):
            connection.sendall(b"\x00\x00\x01\x0cProtocol mismatch.\x1b[2J\r\n")

    return HostileServer(greet)


def unauthorised() -> HostileServer:
    denied = (401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
    closed = ("/props", "/slots", "/metrics", "/v1/chat/completions")
    return llama_like(replies=dict.fromkeys(closed, denied))


def loading() -> HostileServer:
    return HostileServer(
        _always((503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}))
    )


def huge_reply(size: int = 50_000_000, path: str | None = None) -> HostileServer:
    filler = b'{"padding":"' + b"x" * (size - 14) + b'"}'
    if path is not None:
        return llama_like(replies={path: (200, filler)})
    return HostileServer(_always((200, filler)))


def stalls() -> HostileServer:
    def swallow(server: HostileServer, connection: socket.socket) -> None:
        _read_request(server, connection)
        server.closing.wait()

    return HostileServer(swallow)


def many_slots(count: int = 256) -> HostileServer:
    return llama_like(slots=[slot(number, busy=number % 2 == 0) for number in range(count)])


def redirect(to: str = "/elsewhere") -> HostileServer:
    def send_away(server: HostileServer, connection: socket.socket) -> None:
        while _read_request(server, connection):
            _send(connection, (302, ""), "text/plain", f"Location: {to}\r\n")

    return HostileServer(send_away)


def closes() -> HostileServer:
    return HostileServer(lambda *_: None)


def slow_drip(every_s: float = 0.2) -> HostileServer:
    def drip(server: HostileServer, connection: socket.socket) -> None:
        while _read_request(server, connection):
            for byte in _message((200, {"status": "ok"}), "application/json"):
                connection.sendall(bytes([byte]))
                if server.closing.wait(every_s):
                    return

    return HostileServer(drip)


def llama_like(
    slots: list[dict[str, Any]] | None = None, replies: Mapping[str, Reply] | None = None
) -> HostileServer:
    table = [slot(number) for number in range(4)] if slots is None else slots
    routes: dict[str, Reply] = {
        "/health": (200, {"status": "ok"}),
        "/slots": (200, table),
        "/props": (200, _props(len(table))),
        "/metrics": (200, _metrics(sum(bool(row["is_processing"]) for row in table))),
        "/v1/models": (200, {"object": "list", "data": [{"id": "model.gguf", "owned_by": "llamacpp"}]}),
        **(replies or {}),
    }
    unknown = (404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    def answer(server: HostileServer, connection: socket.socket) -> None:
        while line := _read_request(server, connection):
            path = line.split(" ")[1].partition("?")[0]
            kind = "text/plain; version=0.0.4" if path == "/metrics" else "application/json; charset=utf-8"
            _send(connection, routes.get(path, unknown), kind, "Server: llama.cpp\r\n")

    return HostileServer(answer)


def slot(number: int, busy: bool = False, context: int = 2048) -> dict[str, Any]:
    """A row of `/slots`; a busy one has 64 prompt tokens, all processed, and `number` decoded ones."""
    row: dict[str, Any] = {"id": number, "n_ctx": context, "speculative": False, "is_processing": busy}
    if busy:
        row |= {
            "id_task": 1000 + number,
            "n_prompt_tokens": 64,
            "n_prompt_tokens_processed": 64,
            "n_prompt_tokens_cache": 0,
            "params": {"n_predict": 512, "max_tokens": 512, "stream": True, "temperature": 0.8},
            "next_token": [
                {"has_next_token": True, "has_new_line": False, "n_remain": 512 - number, "n_decoded": number}
            ],
        }
    return row


def _props(slots: int) -> dict[str, Any]:
    return {
        "default_generation_settings": {"params": {"temperature": 0.8}, "n_ctx": 2048},
        "total_slots": slots,
        "model_alias": "model.gguf",
        "model_path": "model.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "build_info": "b11549-unknown",
        "is_sleeping": False,
    }


def _metrics(running: int) -> str:
    counters = (
        "prompt_tokens_total",
        "prompt_tokens_cached_total",
        "tokens_predicted_total",
        "n_decode_total",
    )
    lines = [f"# TYPE llamacpp:{name} counter\nllamacpp:{name} 0" for name in counters]
    gauges = {"requests_processing": running, "requests_deferred": 0, "n_tokens_max": 64}
    lines += [f"# TYPE llamacpp:{name} gauge\nllamacpp:{name} {value}" for name, value in gauges.items()]
    return "\n".join(lines) + "\n"


def _always(reply: Reply, kind: str = "application/json") -> Handler:
    def answer(server: HostileServer, connection: socket.socket) -> None:
        while _read_request(server, connection):
            _send(connection, reply, kind)

    return answer


def _read_request(server: HostileServer, connection: socket.socket) -> str:
    """The request line, without the version; empty when the client has gone. A body is read and dropped."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            return ""
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    for header in head.split(b"\r\n")[1:]:
        name, _, value = header.partition(b":")
        if name.strip().lower() == b"content-length":
            left = int(value) - len(body)
            while left > 0 and (part := connection.recv(min(left, 65536))):
                left -= len(part)
    line = head.split(b"\r\n")[0].decode("latin-1").rpartition(" ")[0]
    server.asked.append(line)
    return line


def _send(connection: socket.socket, reply: Reply, kind: str, headers: str = "") -> None:
    connection.sendall(_message(reply, kind, headers))


def _message(reply: Reply, kind: str, headers: str = "") -> bytes:
    status, body = reply
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{headers}\r\n".encode() + body
