"""The guarded GETs, against servers that are not what one hopes for."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable

import pytest

from agenttop.collect.engine import http
from agenttop.collect.engine.http import (
    CutError,
    EngineClient,
    EngineError,
    MovedError,
    NotAllowedError,
    NotHttpError,
    RefusedError,
    Reply,
    TimedOutError,
    TooBigError,
    UnauthorisedError,
    UnreachableError,
)
from tests import hostile
from tests.access import with_key
from tests.collect.imitations import serves
from tests.servers import free_port

PATHS = ("/health", "/slots", "/metrics", "/v1/models")


async def get(url: str, path: str = "/slots", key: str | None = None, **options: object) -> Reply:
    client = EngineClient(url, PATHS, access=with_key(key))
    try:
        return await client.get(path, **options)
    finally:
        await client.close()


async def test_a_reply() -> None:
    with hostile.many_slots() as server:
        reply = await get(server.url)
    assert reply.status == 200
    assert reply.content_type == "application/json"
    assert reply.headers["server"] == "llama.cpp"
    assert len(reply.json(list)) == 256
    assert reply.json(dict) is None
    assert 0 < reply.seconds < 20


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (hostile.unauthorised, UnauthorisedError),
        (hostile.huge_reply, TooBigError),
        (hostile.closes, CutError),
        (hostile.stalls, TimedOutError),
        (hostile.slow_drip, TimedOutError),
        (hostile.redirect, MovedError),
        (lambda: hostile.redirect("http://elsewhere.example/slots"), MovedError),
    ],
)
async def test_every_failure_has_a_name_and_one_sentence(
    make: Callable[[], hostile.HostileServer], error: type[EngineError]
) -> None:
    with make() as server:
        with pytest.raises(error) as caught:
            await get(server.url, answer_s=0.5)
        sentence = str(caught.value)
        assert sentence
        assert "\n" not in sentence
        assert {line.split(" ")[0] for line in server.asked} <= {"GET"}


async def test_nobody_listens() -> None:
    with pytest.raises(RefusedError):
        await get(f"http://127.0.0.1:{free_port()}")


async def test_an_unknown_host() -> None:
    with pytest.raises(UnreachableError):
        await get("http://no-such-host.invalid:80")


async def test_50_megabytes_cost_nothing() -> None:
    """Refused by its announced length, or as soon as more than the limit has arrived."""
    with hostile.huge_reply() as server:
        begun = time.process_time()
        with pytest.raises(TooBigError, match="1 MB"):
            await get(server.url)
        # Reading it all would take twenty times this, in this process alone.
        assert time.process_time() - begun < 0.5

    def promising(host: hostile.HostileServer, connection: socket.socket) -> None:
        hostile._read_request(host, connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        host.closing.wait()

    with hostile.HostileServer(promising) as server, pytest.raises(TooBigError):
        await get(server.url)

    received = threading.Event()

    def endless(host: hostile.HostileServer, connection: socket.socket) -> None:
        hostile._read_request(host, connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(10_000):
            connection.sendall(chunk)
        received.set()

    with hostile.HostileServer(endless) as server:
        with pytest.raises(TooBigError):
            await get(server.url)
        assert not received.is_set()


async def test_the_limit_can_be_raised_for_one_path() -> None:
    with hostile.huge_reply(2_000_000) as server:
        assert len((await get(server.url, limit=8_000_000)).body) == 2_000_000


async def test_compressed_replies_are_not_opened() -> None:
    packed = gzip.compress(b"0" * 10_000_000)

    def bomb(host: hostile.HostileServer, connection: socket.socket) -> None:
        hostile._read_request(host, connection)
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        connection.sendall(head.encode() + packed)

    with hostile.HostileServer(bomb) as server, pytest.raises(NotHttpError, match="compressed"):
        await get(server.url)


async def test_another_protocol() -> None:
    with hostile.not_http() as server:
        client = EngineClient(server.url, PATHS)
        assert not await client.speaks_http("/health")
        await client.close()

    def nonsense(host: hostile.HostileServer, connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"\x00\x00\x12\x04\x00\x02\x16\r\n\r\n")

    with hostile.HostileServer(nonsense) as server, pytest.raises(NotHttpError):
        await get(server.url)
    with hostile.stalls() as server:
        client = EngineClient(server.url, PATHS)
        assert await client.speaks_http("/health", patience_s=0.2)
        await client.close()


async def test_a_path_outside_the_list_is_never_sent() -> None:
    with hostile.llama_like() as server:
        client = EngineClient(server.url, ["/slots"])
        for path in ("/props", "/slots?model=x", "/slots/0", "/terminate", "//slots", "/slots/"):
            with pytest.raises(NotAllowedError):
                await client.get(path)
            with pytest.raises(NotAllowedError):
                await client.speaks_http(path)
        restricted = client.restricted(["/health"])
        with pytest.raises(NotAllowedError):
            await restricted.get("/slots")
        assert (await restricted.get("/health")).status == 200
        await client.close()
        assert server.asked == ["GET /health"]


async def test_the_key_goes_to_its_origin_only() -> None:
    heads: list[bytes] = []

    def note(host: hostile.HostileServer, connection: socket.socket) -> None:
        heads.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    with hostile.HostileServer(note) as other:
        with hostile.redirect(f"{other.url}/slots") as server, pytest.raises(MovedError):
            await get(server.url, key="sk-secret")
        assert heads == []
        await get(other.url, key="sk-secret")
    assert b"authorization: bearer sk-secret" in heads[0].lower()
    assert b"accept-encoding: identity" in heads[0].lower()


async def test_a_redirect_that_only_adds_a_slash_is_followed_once() -> None:
    def mounted(host: hostile.HostileServer, connection: socket.socket) -> None:
        while line := hostile._read_request(host, connection):
            path = line.split(" ")[1]
            if path == "/metrics":
                hostile._send(connection, (302, ""), "text/plain", f"Location: {host.url}/metrics/\r\n")
            else:
                hostile._send(connection, (200, "fine"), "text/plain")

    with hostile.HostileServer(mounted) as server:
        assert (await get(server.url, "/metrics")).text() == "fine"
        assert server.asked == ["GET /metrics", "GET /metrics/"]
    with hostile.redirect("/slots/") as server:
        with pytest.raises(MovedError):
            await get(server.url)
        assert server.asked == ["GET /slots", "GET /slots/"]


async def test_a_connection_closed_between_two_requests_is_opened_again() -> None:
    def once(host: hostile.HostileServer, connection: socket.socket) -> None:
        hostile._read_request(host, connection)
        hostile._send(connection, (200, "fine"), "text/plain")

    with hostile.HostileServer(once) as server:
        client = EngineClient(server.url, PATHS)
        for _ in range(3):
            assert (await client.get("/slots")).text() == "fine"
        await client.close()


async def test_one_request_at_a_time() -> None:
    at_once, most = 0, 0
    lock = threading.Lock()

    def count(host: hostile.HostileServer, connection: socket.socket) -> None:
        nonlocal at_once, most
        while hostile._read_request(host, connection):
            with lock:
                at_once += 1
                most = max(most, at_once)
            host.closing.wait(0.02)
            with lock:
                at_once -= 1
            hostile._send(connection, (200, "fine"), "text/plain")

    with hostile.HostileServer(count) as server:
        client = EngineClient(server.url, PATHS)
        other = client.restricted(["/health"])
        await asyncio.gather(*(c.get("/health") for c in (client, other) * 4))
        await client.close()
    assert most == 1


async def test_proxies_are_not_asked_for_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with serves({"/slots": (200, "the proxy")}) as proxy, hostile.llama_like() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert (await get(server.url)).headers["server"] == "llama.cpp"
        assert proxy.asked == []


async def test_headers_with_control_characters_are_cleaned() -> None:
    with serves({"/slots": b"[]"}, server="evil\x1b[2Jserver") as server:
        try:
            reply = await get(server.url)
        except NotHttpError:
            return  # refused outright is as good
        assert "\x1b" not in reply.headers["server"]


async def test_a_name_that_no_resolver_may_be_asked_for() -> None:
    with pytest.raises(UnreachableError, match="is not an address"):
        await get("http://xn--.invalid:80")


async def test_a_key_that_the_server_quotes_is_not_passed_on() -> None:
    def quote(host: hostile.HostileServer, connection: socket.socket) -> None:
        hostile._read_request(host, connection)
        body = {"error": "no such key: sk-secret"}
        hostile._send(connection, (404, body), "application/json", "X-Key: sk-secret\r\n")

    with hostile.HostileServer(quote) as server:
        reply = await get(server.url, key="sk-secret")
    assert b"no such key: (key)" in reply.body
    assert "sk-secret" not in str(reply)


async def test_a_reply_nested_beyond_reason_is_not_json() -> None:
    deep = b'{"a":' * 50_000
    with serves({"/slots": deep}) as server:
        assert (await get(server.url)).json(dict) is None


def test_httpx_is_not_imported_before_it_is_needed() -> None:
    import subprocess
    import sys

    code = "import sys, agenttop.collect.engine.watch; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert http.ANSWER_S > http.CONNECT_S
