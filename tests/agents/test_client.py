"""The streaming client: what it reads, what it refuses, and the kind of every failure."""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from pathlib import Path

import pytest

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.reply import Reply
from agenttop.errors import UsageError
from tests import hostile
from tests.agents import scripted as s
from tests.servers import free_port
from tests.waiting import until_async

TLS = Path(__file__).parent / "tls"
"""A self-signed certificate of localhost, for tests only."""

LONG = Timeouts(queue_s=20, stall_s=20)


async def ask(url: str, timeouts: Timeouts = LONG, client: Client | None = None) -> Reply:
    reply = Reply()
    own = client or Client(Endpoint(url), time.monotonic, timeouts)
    await own.send(b'{"messages":[]}', reply)
    if client is None:
        own.close()
    assert reply.t_end is not None
    return reply


async def ask_once(*pieces: bytes, close: bool = False, timeouts: Timeouts = LONG) -> Reply:
    async with s.serve(s.always(*pieces, close=close)) as server:
        return await ask(server.url, timeouts)


# Replies that are read


async def test_a_whole_reply() -> None:
    reply = await ask_once(s.whole("Hel", "lo"))
    assert not reply.failed
    assert (reply.text, reply.finish_reason, reply.status, reply.events) == ("Hello", "stop", 200, 2)
    assert (reply.prompt_tokens, reply.output_tokens, reply.tokens_from) == (10, 2, "usage")
    assert reply.t_sent <= reply.t_first_byte <= reply.t_first_token <= reply.t_last_token <= reply.t_end


async def test_the_role_alone_is_no_token() -> None:
    gate = asyncio.Event()

    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.role())
        await gate.wait()
        await wire.send(s.token("x"), s.finish(), s.DONE, s.END)

    async with s.serve(script) as server:
        reply = Reply()
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        sending = asyncio.ensure_future(client.send(b"{}", reply))
        while reply.t_first_byte is None:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert reply.t_first_token is None
        opened = time.monotonic()
        gate.set()
        await sending
        assert reply.t_first_token >= opened
        client.close()


async def test_one_byte_at_a_time() -> None:
    stream = s.whole("a", "b", "c")
    reply = await ask_once(*(stream[at : at + 1] for at in range(len(stream))))
    assert (reply.text, reply.failed) == ("abc", False)


async def test_everything_in_one_read_is_marked_as_shared() -> None:
    reply = await ask_once(s.whole(*"abcdefgh"))
    assert reply.text == "abcdefgh"
    assert (reply.reads, reply.shared_reads) == (1, 1)
    assert len(set(reply.arrivals)) == 1


async def test_arrivals_are_packed_microseconds_after_sending() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD)
        for text in "abc":
            await wire.send(s.token(text))
            await asyncio.sleep(0.02)
        await wire.send(s.finish(), s.DONE, s.END)

    async with s.serve(script) as server:
        reply = await ask(server.url)
    packed = reply.packed_arrivals()
    times = struct.unpack("<3I", packed)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert all(gap >= 15_000 for gap in gaps)
    assert reply.t_first_token - reply.t_sent == pytest.approx(times[0] / 1e6, abs=2e-6)
    assert reply.t_last_token - reply.t_sent == pytest.approx(times[2] / 1e6, abs=2e-6)


async def test_content_length_and_close_delimited_streams() -> None:
    body = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'
    fixed = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    reply = await ask_once(fixed + body)
    assert (reply.text, reply.failed) == ("x", False)
    open_ended = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    reply = await ask_once(open_ended + body, close=True)
    assert (reply.text, reply.failed) == ("x", False)


async def test_finish_reason_and_end_without_done_is_whole() -> None:
    reply = await ask_once(s.HEAD + s.token("x") + s.finish() + s.END)
    assert not reply.failed


async def test_done_without_the_end_of_the_body_is_whole() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.token("x"), s.DONE)
        await wire.closed()

    async with s.serve(script) as server:
        reply = await ask(server.url)
    assert not reply.failed


async def test_an_informational_reply_comes_first() -> None:
    reply = await ask_once(b"HTTP/1.1 100 Continue\r\n\r\n" + s.whole("x"))
    assert (reply.text, reply.failed) == ("x", False)


async def test_reasoning_counts_as_a_token_and_is_not_fed_back() -> None:
    thinking = s.event({"choices": [{"delta": {"reasoning": "hm"}}]})
    older = s.event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    counts = s.usage(output=3, completion_tokens_details={"reasoning_tokens": 2})
    reply = await ask_once(s.HEAD + thinking + older + s.token("x") + s.finish() + counts + s.DONE + s.END)
    assert (reply.text, reply.events, reply.reasoning_tokens) == ("x", 3, 2)


async def test_counts_come_from_timings_where_there_is_no_usage() -> None:
    timings = {"cache_n": 4, "prompt_n": 6, "prompt_ms": 5.5, "predicted_n": 7, "predicted_ms": 3.0}
    reply = await ask_once(s.HEAD + s.token("abc", timings=timings) + s.finish() + s.DONE + s.END)
    assert (reply.output_tokens, reply.tokens_from) == (7, "timings")
    assert (reply.prompt_tokens, reply.cached_tokens) == (10, 4)


async def test_without_counts_there_are_none() -> None:
    reply = await ask_once(s.HEAD + s.token("abc") + s.finish() + s.DONE + s.END)
    assert (reply.output_tokens, reply.tokens_from, reply.prompt_tokens) == (None, None, None)


async def test_nonsense_counts_are_not_counts() -> None:
    reply = await ask_once(s.HEAD + s.token("x") + s.finish() + s.usage(-5, 10**30) + s.DONE + s.END)
    assert not reply.failed
    assert (reply.prompt_tokens, reply.output_tokens) == (None, None)


# The connection


async def test_one_connection_is_kept_for_many_requests() -> None:
    async with s.serve(s.always(s.whole("x"))) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        for _ in range(4):
            reply = await ask(server.url, client=client)
            assert not reply.failed
        client.close()
    assert {request.connection for request in server.requests} == {1}
    assert reply.connect_s == 0


async def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    """Also when the request was written before the close was noticed."""

    async def script(request: s.Request, wire: s.Wire) -> None:
        if request.connection == 1 and len(server.requests) == 2:
            wire.writer.transport.abort()
            return
        await wire.send(s.whole("x"))

    async with s.serve(script) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        assert not (await ask(server.url, client=client)).failed
        second = await ask(server.url, client=client)
        assert (second.failed, second.text) == (False, "x")
        client.close()
    assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_a_new_connection_that_dies_is_a_failure_at_once() -> None:
    async with s.serve(s.always(close=True)) as server:
        reply = await ask(server.url)
    assert reply.error_kind == "cut"
    assert "before any reply" in reply.error
    assert len([request for request in server.requests if "completions" in request.line]) == 1


async def test_a_server_that_hangs_up_at_once() -> None:
    with hostile.closes() as server:
        for _ in range(3):
            reply = await ask(server.url)
            assert reply.error_kind == "cut"
            assert "before any reply" in reply.error


async def test_a_connection_opened_ahead_is_used() -> None:
    async with s.serve(s.always(s.whole("x"))) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        client.warm()
        client.warm()
        await until_async(lambda: server.connections == 1)
        reply = await ask(server.url, client=client)
        assert (reply.failed, server.connections) == (False, 1)
        client.close()
        client.warm()
        client.close()  # given up while it opens
        assert (await ask(server.url, client=client)).text == "x"
        client.close()


async def test_a_connection_opened_ahead_in_vain_is_tried_again() -> None:
    port = free_port()
    client = Client(Endpoint(f"http://127.0.0.1:{port}"), time.monotonic, LONG)
    client.warm()
    await asyncio.sleep(0.05)
    async with s.serve(s.always(s.whole("x")), port=port):
        assert (await ask("", client=client)).text == "x"
        client.close()


async def test_the_request_as_it_is_sent() -> None:
    async with s.serve(s.always(s.whole("x"))) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.port}/llm/v1/", "sk-1")
        client = Client(endpoint, time.monotonic, LONG)
        await client.send(b'{"a":1}', Reply())
        client.close()
    request = server.requests[0]
    assert request.line == "POST /llm/v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == "bearer sk-1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.body == b'{"a":1}'


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8080", "http://", "http://x:99999", "http://u:p@x"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        Endpoint(url)


def test_a_key_cannot_smuggle_headers() -> None:
    with pytest.raises(UsageError, match="no header can carry"):
        Endpoint("http://x", "a\r\nx-evil: 1")


# Failures, each of its kind


async def test_refused() -> None:
    reply = await ask(f"http://127.0.0.1:{free_port()}")
    assert reply.error_kind == "refused"
    assert "connection refused" in reply.error
    assert reply.t_sent is None


async def test_no_such_host() -> None:
    for host in ("no-such-host.invalid", "x" * 70):
        reply = await ask(f"http://{host}:80")
        assert reply.error_kind == "refused", host


async def test_tls_to_a_plain_server() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        reply = await ask(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert reply.error_kind == "refused"
    assert "it does not speak TLS on that port: write http://" in reply.error


async def test_tls_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    async with s.serve(s.always(s.whole("x")), tls=TLS) as server:
        reply = await ask(server.url)
        assert reply.error_kind == "refused"
        assert "signed by itself: give the CA's with --ca-file FILE" in reply.error
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.pem"))
        reply = await ask(server.url)
        assert (reply.failed, reply.text) == (False, "x")


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, b'{"error":{"message":"Invalid API Key","code":401}}', "http-4xx", "401: Invalid API Key"),
        (404, b'{"detail":"Not Found"}', "http-4xx", "404: Not Found"),
        (503, b'{"error":{"message":"Loading model"}}', "http-5xx", "503: Loading model"),
        (502, b"<html>", "http-5xx", "502: status 502 with a web page"),
        (500, b"", "http-5xx", "500: status 500 without an explanation"),
        (400, b'{"error":{"type":"exceed_context_size_error","message":"big"}}', "context", "big"),
        (200, b'{"error":{"message":"odd"}}', "protocol", "answered without streaming: odd"),
    ],
)  # fmt: skip
async def test_statuses(status: int, body: bytes, kind: str, said: str) -> None:
    reply = await ask_once(s.plain(status, body))
    assert (reply.error_kind, reply.status) == (kind, status)
    assert reply.error.startswith(said)


async def test_an_upgrade_that_nobody_asked_for() -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    reply = await ask_once(head + b"\x00\x00\x12\x04")
    assert (reply.error_kind, reply.t_first_token) == ("protocol", None)
    assert "another protocol" in reply.error


@pytest.mark.parametrize("padding", [0, 170])
async def test_a_key_that_the_server_quotes_stays_out_of_the_error(padding: int) -> None:
    key = "sk-0123456789abcdef0123456789abcdef"
    said = f'{{"error":{{"message":"{"x" * padding} wrong key {key}"}}}}'.encode()
    async with s.serve(s.always(s.plain(401, said))) as server:
        client = Client(Endpoint(server.url, key), time.monotonic, LONG)
        reply = await ask(server.url, client=client)
        client.close()
    assert reply.error_kind == "http-4xx"
    assert "wrong key" in reply.error
    assert "sk-0" not in reply.error


async def test_nesting_beyond_reason_is_a_failure_of_the_protocol() -> None:
    deep = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    reply = await ask_once(s.HEAD + s.token("x"), s.event(deep), s.DONE + s.END)
    assert (reply.error_kind, reply.error) == ("protocol", "an event is nested too deeply")


async def test_more_cached_tokens_than_the_prompt_has_are_no_count() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}}
    end = s.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})
    reply = await ask_once(s.HEAD + s.token("x") + end + s.DONE + s.END)
    assert (reply.prompt_tokens, reply.cached_tokens) == (10, None)


async def test_an_error_event_in_a_stream() -> None:
    failure = s.event(
        {"error": {"code": 500, "message": "EngineCore\u001b[31m died", "type": "server_error"}}
    )
    reply = await ask_once(s.HEAD + s.token("x") + failure + s.DONE + s.END)
    assert (reply.error_kind, reply.error) == ("stream-error", "EngineCore [31m died")
    assert reply.events == 1


async def test_a_full_pool_is_the_engines_limit() -> None:
    failure = s.event({"error": {"code": 500, "message": "Context size has been exceeded."}})
    reply = await ask_once(s.HEAD + s.token("x") + failure + s.END)
    assert reply.error_kind == "engine-limit"


async def test_an_explanation_does_not_carry_the_output_out() -> None:
    output = "secret words of the model"
    failure = s.event({"error": {"message": f"Failed to parse input at pos 2: {output}"}})
    reply = await ask_once(s.HEAD + s.token(output) + failure + s.END)
    assert reply.error == "Failed to parse input at pos 2 …"


@pytest.mark.parametrize("pieces", [[s.HEAD], [s.HEAD, s.role()], [s.HEAD, s.token("x"), s.token("y")]])
async def test_cut_in_the_middle(pieces: list[bytes]) -> None:
    reply = await ask_once(*pieces, close=True)
    assert reply.error_kind == "cut"
    assert "in the middle of the stream" in reply.error


async def test_a_body_that_ends_without_done_or_reason_is_cut() -> None:
    reply = await ask_once(s.HEAD + s.token("x") + s.END)
    assert reply.error_kind == "cut"
    assert "without [DONE]" in reply.error


async def test_cut_within_the_headers() -> None:
    reply = await ask_once(b"HTTP/1.1 200 OK\r\nContent-", close=True)
    assert (reply.error_kind, reply.error) == ("cut", "the connection was closed within the headers")


async def test_silence_before_the_first_token_is_a_timeout_in_the_queue() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.role())
        await wire.closed()

    async with s.serve(script) as server:
        reply = await ask(server.url, Timeouts(queue_s=0.3, stall_s=0.1))
    assert reply.error_kind == "queue-timeout"
    assert "before the first token" in reply.error


async def test_silence_in_the_stream_is_a_stall_but_keep_alives_are_not() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.token("x"))
        for _ in range(10):  # longer than the allowed silence in all
            await asyncio.sleep(0.1)
            await wire.send(s.chunked(b":\n\n"))
        await wire.closed()

    async with s.serve(script) as server:
        reply = await ask(server.url, Timeouts(queue_s=20, stall_s=0.5))
    assert reply.error_kind == "stall"
    assert "in the middle of the stream" in reply.error
    assert reply.t_end - reply.t_last_token > 1.2


async def test_cancelling_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.token("x"))
        if await wire.closed():
            gone.set()

    async with s.serve(script) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        reply = Reply()
        sending = asyncio.ensure_future(client.send(b"{}", reply))
        while reply.t_first_token is None:
            await asyncio.sleep(0.001)
        client.cancel()
        await sending
        assert reply.error_kind == "cancelled"
        async with asyncio.timeout(5):
            await gone.wait()


async def test_cancelling_while_it_connects() -> None:
    endpoint = Endpoint("http://127.0.0.1:1")
    started = asyncio.Event()

    async def never(*_: object) -> object:
        started.set()
        return await asyncio.Future()

    endpoint.connect = never  # type: ignore[method-assign, assignment]
    client = Client(endpoint, time.monotonic, LONG)
    reply = Reply()
    sending = asyncio.ensure_future(client.send(b"{}", reply))
    await started.wait()
    client.cancel()
    await sending
    assert reply.error_kind == "cancelled"


async def test_after_a_cancel_the_client_works_again() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        if len(server.requests) == 1:
            await wire.send(s.HEAD, s.token("x"))
            await wire.closed()
        else:
            await wire.send(s.whole("y"))

    async with s.serve(script) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        first = Reply()
        sending = asyncio.ensure_future(client.send(b"{}", first))
        while first.t_first_token is None:
            await asyncio.sleep(0.001)
        client.cancel()
        await sending
        second = await ask(server.url, client=client)
        assert (first.error_kind, second.failed, second.text) == ("cancelled", False, "y")
        client.close()


# What is no engine


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([s.plain(200, b"<html></html>", "text/html")], "answered with text/html instead of an event stream"),
        ([s.plain(302, b"", extra="Location: http://elsewhere/\r\n")], "redirected to http://elsewhere/"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "not an HTTP reply"),
        ([b"\x00\x00\x01\x0c\x1b[2J"], "not an HTTP reply"),
        ([s.HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n"], "the reply is compressed (gzip)"),
        ([s.HEAD, b"zz\r\n"], "not an HTTP reply"),
        ([s.HEAD, s.event(b"hello")], "an event is not JSON"),
        ([s.HEAD, s.event(b"[1]")], "an event holds no JSON object"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"X: %s\r\n" % (b"y" * 1000)] * 100], "bytes of headers"),
        ([s.HEAD, *[s.chunked(b"data: " + b"x" * 60_000)] * 40], "an event is larger than"),
        ([s.plain(200, b"[" + b"1," * 400_000)], "answered without streaming"),
    ],
)  # fmt: skip
async def test_what_is_no_engine(pieces: list[bytes], said: str) -> None:
    reply = await ask_once(*pieces)
    assert reply.error_kind == "protocol"
    assert said in reply.error
    assert "\x1b" not in reply.error


async def test_a_refusal_that_never_ends_is_cut_off() -> None:
    head = b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = 0

    async def script(_: s.Request, wire: s.Wire) -> None:
        nonlocal sent
        await wire.send(head)
        while True:
            await wire.send(s.chunked(b"x" * 50_000))
            sent += 50_000

    async with s.serve(script) as server:
        reply = await ask(server.url)
    assert reply.error_kind == "http-5xx"
    assert sent < 20_000_000


async def test_a_second_reply_nobody_asked_for_does_not_reach_the_next_request() -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        number = len(server.requests)
        await wire.send(s.whole(f"r{number}") + s.whole("forged"))

    async with s.serve(script) as server:
        client = Client(Endpoint(server.url), time.monotonic, LONG)
        texts = [(await ask(server.url, client=client)).text for _ in range(3)]
        client.close()
    assert texts == ["r1", "r2", "r3"]
