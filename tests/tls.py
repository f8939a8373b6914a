"""TLS for tests: a throwaway CA and what it vouches for, and TLS in front of a plain server.

front = Terminator(engine.port)            a good certificate for localhost and 127.0.0.1
with front: front.url                      https://localhost:PORT
Terminator(engine.port, expired())         and other certificates
ca_file(folder)                            the CA as a PEM file
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import gc
import ssl
import threading
import warnings
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1")


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA(organization_name="agenttop tests")


@functools.cache
def stranger() -> trustme.CA:
    return trustme.CA(organization_name="nobody knows")


def ca_file(folder: Path, ca: trustme.CA | None = None) -> Path:
    file = folder / "ca.pem"
    (ca or authority()).cert_pem.write_to_path(str(file))
    return file


@functools.cache
def good() -> trustme.LeafCert:
    return authority().issue_cert(*NAMES)


def unknown() -> trustme.LeafCert:
    return stranger().issue_cert(*NAMES)


def of_another() -> trustme.LeafCert:
    return authority().issue_cert("another.example")


def expired() -> trustme.LeafCert:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return authority().issue_cert(*NAMES, not_before=now - 3 * day, not_after=now - day)


def early() -> trustme.LeafCert:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return authority().issue_cert(*NAMES, not_before=now + day, not_after=now + 3 * day)


class Terminator:
    """TLS on a port of its own, in front of a plain server on 127.0.0.1; lives in a thread."""

    def __init__(self, upstream: int, certificate: trustme.LeafCert | None = None) -> None:
        self._upstream = upstream
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (certificate or good()).configure_cert(self._context)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.port = 0
        self.connections = 0
        """Handshakes that went well."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def __enter__(self) -> Terminator:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._tasks.clear()
        with warnings.catch_warnings():
            # asyncio leaves transports open whose handshake was broken off; here that is what is tried.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda *_: None)  # handshakes that fail are what tests are about
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        # Also those whose handshake has just begun; what they leave open is closed in the turns that follow.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        try:
            ways = {
                asyncio.ensure_future(_pass_on(reader, up_writer)),
                asyncio.ensure_future(_pass_on(up_reader, writer)),
            }
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.transport.abort()
            up_writer.transport.abort()
            self._tasks.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
