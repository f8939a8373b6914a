"""The load client behind TLS, at redirects, and with proxies in the environment."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.reply import Reply
from agenttop.errors import UsageError
from agenttop.oslayer import run_loop
from tests import tls
from tests.agents import scripted as s

KEY = "sk-0123456789abcdef"
LONG = Timeouts(queue_s=20, stall_s=20)


async def ask(url: str, ca_file: str | None = None) -> Reply:
    client = Client(Endpoint(url, KEY, ca_file), time.monotonic, LONG)
    reply = Reply()
    await client.send(b'{"messages":[]}', reply)
    client.close()
    return reply


@pytest.fixture
def ours(tmp_path: Path) -> str:
    return str(tls.ca_file(tmp_path))


@pytest.mark.parametrize("run", [asyncio.run, run_loop])
def test_a_stream_over_tls(ours: str, run: Callable[..., object]) -> None:
    """On asyncio's own loop and on uvloop; the kernel's stamps are asked for and are none of TLS."""

    async def main() -> None:
        async with s.serve(s.always(s.whole("Hel", "lo"))) as server:
            with tls.Terminator(server.port) as front:
                endpoint = Endpoint(front.url, KEY, ours)
                client = Client(endpoint, time.monotonic, LONG, kernel_stamps=lambda: True)
                for _ in range(3):
                    reply = Reply()
                    await client.send(b'{"messages":[]}', reply)
                    assert (reply.error, reply.text, reply.kernel_stamped) == (None, "Hello", False)
                    assert reply.t_sent <= reply.t_first_byte <= reply.t_first_token <= reply.t_end
                assert front.connections == 1
                client.close()
            assert server.requests[0].headers["authorization"] == f"bearer {KEY}"

    run(main())


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (tls.unknown, "ca.pem does not vouch for it either"),
        (tls.expired, "has a certificate that has expired"),
        (tls.of_another, "a certificate for another name than localhost"),
    ],
)
async def test_certificates_that_are_not_trusted(
    ours: str, certificate: Callable[[], trustme.LeafCert], said: str
) -> None:
    async with s.serve(s.always(s.whole("x"))) as server:
        with tls.Terminator(server.port, certificate()) as front:
            reply = await ask(front.url, ours)
        assert reply.error_kind == "refused"
        assert reply.error.startswith(f"cannot connect to localhost:{front.port}: it has a certificate")
        assert said in reply.error
        assert server.requests == []


async def test_an_unknown_ca_names_the_option() -> None:
    async with s.serve(s.always(s.whole("x"))) as server:
        with tls.Terminator(server.port) as front:
            reply = await ask(front.url)
    assert "give the CA's with --ca-file FILE" in reply.error


async def test_the_look_after_a_cut_goes_over_tls_too(ours: str) -> None:
    async with s.serve(s.always(s.HEAD, s.token("x"), close=True)) as server:
        with tls.Terminator(server.port) as front:
            reply = await ask(front.url, ours)
        assert reply.error_kind in ("cut", "restarted")
        assert server.requests[0].line.startswith("POST ")


def test_a_ca_file_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        Endpoint("https://127.0.0.1:8443", None, str(tmp_path / "missing"))
    assert isinstance(Endpoint("https://127.0.0.1:8443")._context, ssl.SSLContext)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{other}/v1/chat/completions",
        "https://127.0.0.1:{own}/v1/chat/completions",
        "//127.0.0.1:{other}/v1/chat/completions",
        "http://127.0.0.1:{own}@127.0.0.1:{other}/v1/chat/completions",
        "/v1/chat/completions/",
        "",
    ],
)
async def test_a_request_of_an_agent_follows_no_redirect(status: int, location: str) -> None:
    async with s.serve(s.always(s.whole("x"))) as other:

        async def move(_: s.Request, wire: s.Wire) -> None:
            to = location.format(own=own.port, other=other.port)
            await wire.send(s.plain(status, b"", extra=f"Location: {to}\r\n"))

        async with s.serve(move) as own:
            reply = await ask(own.url)
            assert len(own.requests) == 1
        assert other.connections == 0
    assert reply.error_kind == "protocol"
    assert reply.error.startswith("redirected to ")
    assert reply.error.endswith("; name the final URL")
    assert KEY not in reply.error


async def test_a_key_in_a_redirect_is_cut_out() -> None:
    moved = s.plain(302, b"", extra=f"Location: http://x/?key={KEY}\r\n")
    async with s.serve(s.always(moved)) as server:
        reply = await ask(server.url)
    assert "http://x/?key=(key)" in reply.error


async def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with s.serve(s.always(s.whole("x"))) as server, s.serve(s.always(s.whole("the proxy"))) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await ask(server.url)).text == "x"
        assert (await ask("http://box2.invalid:8000")).error_kind == "refused"
        assert proxy.connections == 0
