"""Engines behind TLS: what is trusted, and one sentence with what to do about everything that is not."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from agenttop.access.ways import Access
from agenttop.collect.engine.http import EngineClient, EngineError, Reply, TimedOutError, TlsError
from agenttop.collect.engine.watch import EngineWatch
from tests import hostile, tls
from tests.access import with_key

KEY = "sk-0123456789abcdef"


async def get(url: str, access: Access) -> Reply:
    client = EngineClient(url, ["/slots"], access=access)
    try:
        return await client.get("/slots")
    finally:
        await client.close()


@pytest.fixture
def plain() -> Iterator[hostile.HostileServer]:
    with hostile.llama_like() as server:
        yield server


@pytest.fixture
def ours(tmp_path: Path) -> str:
    return str(tls.ca_file(tmp_path))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_ca_of_ones_own(plain: hostile.HostileServer, ours: str, host: str) -> None:
    with tls.Terminator(plain.port) as front:
        reply = await get(f"https://{host}:{front.port}", with_key(KEY, ours))
    assert reply.headers["server"] == "llama.cpp"


async def test_the_store_of_the_system_is_believed(
    plain: hostile.HostileServer, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls.Terminator(plain.port) as front:
        monkeypatch.setenv("SSL_CERT_FILE", ours)
        assert (await get(front.url, with_key(KEY))).status == 200
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(TlsError):
            await get(front.url, with_key(KEY))


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (tls.unknown, "ca.pem does not vouch for it either"),
        (tls.expired, "has a certificate that has expired: renew it"),
        (tls.early, "has a certificate that is not valid yet: check the clocks"),
        (tls.of_another, "a certificate for another name than localhost: write the URL with"),
    ],
)
async def test_certificates_that_are_not_trusted(
    plain: hostile.HostileServer, ours: str, certificate: Callable[[], trustme.LeafCert], said: str
) -> None:
    with tls.Terminator(plain.port, certificate()) as front:
        with pytest.raises(TlsError, match=said) as caught:
            await get(front.url, with_key(KEY, ours))
        assert front.connections == 0
    assert "\n" not in str(caught.value)
    assert plain.asked == []


async def test_an_unknown_ca_names_the_option(plain: hostile.HostileServer) -> None:
    with tls.Terminator(plain.port) as front:
        watch = EngineWatch(front.url, access=with_key(KEY), patience_s=20, polls_host=False)
        reading = await watch.poll()
        await watch.close()
    assert reading.sample.state == "unsupported"
    assert reading.sample.note == (
        f"{front.url} has a certificate of a CA that this machine does not know: "
        "give the CA's with --ca-file FILE (PEM)"
    )


async def test_https_to_a_plain_server(ours: str) -> None:
    told = pytest.raises(TlsError, match="does not speak TLS on that port: write http:// instead")
    with _answers(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as server, told:
        await get(f"https://127.0.0.1:{server.port}", with_key(KEY, ours))


async def test_https_to_a_plain_server_that_waits_for_more(plain: hostile.HostileServer, ours: str) -> None:
    with pytest.raises(TimedOutError, match="answers no TLS handshake within 2 s"):
        await get(f"https://127.0.0.1:{plain.port}", with_key(KEY, ours))


async def test_http_to_a_server_with_tls(plain: hostile.HostileServer, ours: str) -> None:
    told = pytest.raises(TlsError, match="speaks TLS on that port: write https:// instead")
    with tls.Terminator(plain.port) as front, told:
        await get(f"http://127.0.0.1:{front.port}", with_key(KEY, ours))
    assert plain.asked == []


def _answers(*data: bytes) -> hostile.HostileServer:
    """Reads something, sends this, and hangs up."""

    def answer(_: hostile.HostileServer, connection: socket.socket) -> None:
        connection.recv(65536)
        for piece in data:
            connection.sendall(piece)

    return hostile.HostileServer(answer)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 75\r\n\r\n"
        b"<html><center>The plain HTTP request was sent to HTTPS port</center></html>",
    ],
)
async def test_other_ways_to_say_that_it_speaks_tls(reply: bytes) -> None:
    with _answers(reply) as server, pytest.raises(TlsError, match="write https:// instead"):
        await get(server.url, with_key(KEY))


async def test_a_server_that_answers_plain_http_with_an_alert() -> None:
    """As rustls does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.good().configure_cert(context)

    def answer(_: hostile.HostileServer, connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) == b"\x16":
            # The handshake by itself, so that a socket on which it fails is closed too.
            secure = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with contextlib.suppress(OSError), secure:
                secure.do_handshake()
        else:
            connection.recv(65536)
            connection.sendall(b"\x15\x03\x01\x00\x02\x02\x16")

    with hostile.HostileServer(answer) as server, pytest.raises(TlsError, match="write https:// instead"):
        await get(server.url, with_key(KEY))


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        (70, "speaks only a version of TLS that is broken: switch on TLS 1.2"),
        (40, "has no TLS in common with this machine"),
        (80, "has no TLS that works: "),
    ],
)
async def test_alerts_within_the_handshake(alert: int, said: str) -> None:
    """70 is what a server says that speaks TLS 1.0 and nothing newer."""
    with (
        _answers(b"\x15\x03\x01\x00\x02\x02" + bytes([alert])) as server,
        pytest.raises(TlsError, match=said),
    ):
        await get(f"https://127.0.0.1:{server.port}", with_key(KEY))


async def test_a_server_that_hangs_up_within_the_handshake() -> None:
    with _answers() as server, pytest.raises(EngineError) as caught:
        await get(f"https://127.0.0.1:{server.port}", with_key(KEY))
    assert "\n" not in str(caught.value)


async def test_the_key_never_goes_out_before_the_certificate_is_trusted() -> None:
    """A server that answers the first bytes with a plain 200 gets the handshake and nothing else."""
    seen: list[bytes] = []

    def answer(_: hostile.HostileServer, connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with hostile.HostileServer(answer) as server, pytest.raises(TlsError):
        await get(f"https://127.0.0.1:{server.port}", with_key(KEY))
    assert seen
    assert all(KEY.encode() not in data for data in seen)


async def test_a_ca_file_that_has_gone(plain: hostile.HostileServer, ours: str) -> None:
    with tls.Terminator(plain.port) as front:
        Path(ours).unlink()
        with pytest.raises(TlsError, match="no such file"):
            await get(front.url, with_key(KEY, ours))
