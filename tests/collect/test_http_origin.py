"""A key goes to the origin it was given for: not along a redirect, not to another server, not to a proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from agenttop.collect.engine.http import EngineClient, MovedError, Reply, UnreachableError
from agenttop.collect.engine.recognise import recognise
from tests import hostile
from tests.access import with_key

KEY = "sk-0123456789abcdef"


class Recorder(hostile.HostileServer):
    """Answers 200 to everything and keeps what it was sent."""

    def __init__(
        self, reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"
    ) -> None:
        self.heads: list[str] = []
        self._reply = reply
        super().__init__(self._answer)

    def _answer(self, _: hostile.HostileServer, connection: socket.socket) -> None:
        data = connection.recv(65536)
        if data:
            self.heads.append(data.decode("latin-1"))
            connection.sendall(self._reply)


@pytest.fixture
def other() -> Iterator[Recorder]:
    with Recorder() as server:
        yield server


async def get(url: str, path: str = "/slots") -> Reply:
    client = EngineClient(url, ["/slots", "/metrics"], access=with_key(KEY))
    try:
        return await client.get(path)
    finally:
        await client.close()


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{other}/slots/",
        "http://127.0.0.1:{other}/slots",
        "https://127.0.0.1:{other}/slots/",
        "https://127.0.0.1:{own}/slots/",
        "//127.0.0.1:{other}/slots/",
        "//127.0.0.1:{own}/slots/",
        "http://127.0.0.1:{own}@127.0.0.1:{other}/slots/",
        "http://me:secret@127.0.0.1:{own}/slots/",
        "http://127.0.0.1:{own}\\@127.0.0.1:{other}/slots/",
        "http://127.0.0.1:{own}.example/slots/",
        "http://127.0.0.1/slots/",
        "/slots/?to=http://127.0.0.1:{other}",
        "/metrics",
        "/slots/../shutdown",
        "http://[::1/slots/",
        "http://127.0.0.1:port/slots/",
        "javascript:alert(1)",
        "/\\127.0.0.1:{other}/slots/",
    ],
)
async def test_redirects_to_anywhere_else_are_not_followed(other: Recorder, location: str) -> None:
    def move(host: hostile.HostileServer, connection: socket.socket) -> None:
        while hostile._read_request(host, connection):
            to = location.format(own=host.port, other=other.port)
            hostile._send(connection, (302, ""), "text/plain", f"Location: {to}\r\n")

    with hostile.HostileServer(move) as own:
        with pytest.raises(MovedError) as caught:
            await get(own.url)
        assert own.asked == ["GET /slots"]
    assert other.heads == []
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_key_in_an_address_is_not_shown() -> None:
    key = "sk+ab/cd==+0123456789"

    def move(host: hostile.HostileServer, connection: socket.socket) -> None:
        while hostile._read_request(host, connection):
            to = f"/login?key={quote(key, safe='')}&again={quote(key, safe='').lower()}"
            hostile._send(connection, (302, ""), "text/plain", f"Location: {to}\r\n")

    with hostile.HostileServer(move) as own:
        client = EngineClient(own.url, ["/slots"], access=with_key(key))
        with pytest.raises(MovedError, match=r"/login\?key=\(key\)&again=\(key\)"):
            await client.get("/slots")
        await client.close()


@pytest.mark.parametrize(
    "location",
    [
        "/slots/",
        "http://127.0.0.1:{own}/slots/",
        "HTTP://127.0.0.1:{own}/slots/",
        "http://localhost:{own}/slots/",
    ],
)
async def test_a_slash_more_at_the_same_origin_is_followed(location: str) -> None:
    def answer(host: hostile.HostileServer, connection: socket.socket) -> None:
        while line := hostile._read_request(host, connection):
            if line.split(" ")[1] == "/slots":
                to = location.format(own=host.port)
                hostile._send(connection, (302, ""), "text/plain", f"Location: {to}\r\n")
            else:
                hostile._send(connection, (200, "fine"), "text/plain")

    with hostile.HostileServer(answer) as own:
        assert (await get(own.url)).text() == "fine"
        assert own.asked == ["GET /slots", "GET /slots/"]


async def test_a_client_for_another_server_has_no_key(other: Recorder) -> None:
    with hostile.llama_like() as own:
        client = EngineClient(own.url, ["/slots"], access=with_key(KEY))
        elsewhere = client.elsewhere(other.url, ["/slots"])
        assert (await elsewhere.get("/slots")).status == 200
        restricted = client.restricted(["/slots"])
        assert (client.has_key, restricted.has_key, elsewhere.has_key) == (True, True, False)
        await elsewhere.close()
        await client.close()
    assert KEY not in "".join(other.heads)


PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture
def proxied(other: Recorder, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    for name in PROXIES:
        monkeypatch.setenv(name, other.url)
    return other


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "127.0.0.7"])
async def test_no_proxy_between_this_host_and_itself(proxied: Recorder, host: str) -> None:
    """Nothing listens there, so nothing but the proxy could answer."""
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        port = idle.getsockname()[1]
        for scheme in ("http", "https"):
            with pytest.raises(Exception, match=r"refuses|cannot be reached"):
                await get(f"{scheme}://{host}:{port}")
    assert proxied.heads == []


async def test_a_proxy_for_an_engine_elsewhere(proxied: Recorder) -> None:
    assert (await get("http://box2.example:8000")).text() == "[]"
    assert proxied.heads[0].startswith("GET http://box2.example:8000/slots HTTP/1.1\r\n")


async def test_a_proxy_sees_no_key_for_https(monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(UnreachableError, match="not let through by the proxy: 403"):
            await get("https://box2.example:8443")
    assert proxy.heads[0].startswith("CONNECT box2.example:8443 HTTP/1.1\r\n")
    assert KEY not in "".join(proxy.heads)


@pytest.mark.parametrize("exceptions", ["box2.invalid", "*", ".invalid"])
async def test_no_proxy_where_the_environment_excepts_it(
    proxied: Recorder, monkeypatch: pytest.MonkeyPatch, exceptions: str
) -> None:
    monkeypatch.setenv("NO_PROXY", exceptions)
    with pytest.raises(UnreachableError):
        await get("http://box2.invalid:8000")
    assert proxied.heads == []


async def test_no_proxy_where_the_entry_says_so(proxied: Recorder) -> None:
    client = EngineClient("http://box2.invalid:8000", ["/slots"], access=_without_proxy())
    with pytest.raises(UnreachableError):
        await client.get("/slots")
    await client.close()
    assert proxied.heads == []


def _without_proxy():  # type: ignore[no-untyped-def]
    import msgspec

    return msgspec.structs.replace(with_key(KEY), proxy=False)


@pytest.mark.parametrize("place", ["http://127.0.0.1:9", "http://gate.invalid:3128"])
async def test_a_proxy_that_is_not_there_is_told_from_an_engine_that_is_not(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", place)
    with pytest.raises(UnreachableError, match="cannot be reached through the proxy of HTTP_PROXY"):
        await get("http://box2.example:8000")


async def test_a_socks_proxy_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5h://me:secret@gate:1080")
    with pytest.raises(
        UnreachableError, match="ALL_PROXY, which is no HTTP proxy: put the host into NO_PROXY"
    ) as caught:
        await get("http://box2.example:8000")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["ollama", "EMPTY", "none", "vllm", "e", "1"])
async def test_a_placeholder_for_a_key_does_not_hide_what_an_engine_says(key: str) -> None:
    """It is sent, and an engine whose replies hold the word is recognised all the same."""
    with hostile.llama_like() as server:
        adapter = await recognise(server.url, access=with_key(key))
        await adapter.client.close()
        assert adapter.name == "llama.cpp"


@pytest.mark.parametrize("key", ['sk-"quoted"/0123456789', "sk-plain-0123456789"])
async def test_a_quoted_key_is_cut_out_however_it_is_written(key: str) -> None:
    import json

    for body in (
        json.dumps({"error": f"wrong: {key}"}),
        json.dumps({"error": key}).replace("/", "\\/"),
        f"<p>{key}</p>",
    ):
        with Recorder(
            f"HTTP/1.1 404 No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        ) as own:
            client = EngineClient(own.url, ["/slots"], access=with_key(key))
            reply = await client.get("/slots")
            await client.close()
        assert "(key)" in reply.text()
        assert key not in str(reply.json(dict)) + reply.text()
