"""Servers that send exactly the bytes a test wants, on the loop of the test.

    async with serve(script) as server:         # script(request, connection) for each request
        ... server.url, server.requests

A `Wire` writes raw bytes; helpers build what engines send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Keep-Alive: timeout=5, max=100\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One event as a chunk of its own, as engines send them."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return chunked(b"data: " + data + b"\n\n")


def token(text: str, **fields: Any) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": None}], **fields})


def role() -> bytes:
    return event({"choices": [{"delta": {"role": "assistant", "content": None}, "finish_reason": None}]})


def finish(reason: str = "stop") -> bytes:
    return event({"choices": [{"delta": {}, "finish_reason": reason}]})


def usage(prompt: int = 10, output: int = 2, **fields: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": output, **fields}
    return event({"choices": [], "usage": counts})


DONE = event(b"[DONE]")


def whole(*texts: str) -> bytes:
    """A whole reply."""
    tokens = b"".join(map(token, texts))
    return HEAD + role() + tokens + finish() + usage(output=len(texts)) + DONE + END


def plain(status: int, body: bytes, kind: str = "application/json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


class Wire:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.number = 0

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def closed(self) -> bool:
        """Wait until the client has gone."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read(1) == b""
        return True

    async def request(self) -> Request | None:
        head = b""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await self.reader.readuntil(b"\r\n\r\n")
        if not head:
            return None
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Request(lines[0], headers, body, self.number)


class Request:
    def __init__(self, line: str, headers: dict[str, str], body: bytes, connection: int) -> None:
        self.line = line
        self.headers = headers
        self.body = body
        self.connection = connection
        """Which connection it came on, from 1."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Request, Wire], Awaitable[None]]


class Server:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self.writers.append(writer)
        self.connections += 1
        wire.number = self.connections
        try:
            while (request := await wire.request()) is not None:
                self.requests.append(request)
                await self.script(request, wire)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serve(script: Script, port: int = 0, tls: Path | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "localhost.pem", tls / "localhost.key")
    listener = await asyncio.start_server(server.handle, "127.0.0.1", port, limit=2**20, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listener.close()
        tasks = [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "Server.handle"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in server.writers:
            writer.transport.abort()  # closing alone waits for a client that reads what is left
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def always(*pieces: bytes, close: bool = False) -> Script:
    async def script(_: Request, wire: Wire) -> None:
        await wire.send(*pieces)
        if close:
            wire.writer.close()

    return script
