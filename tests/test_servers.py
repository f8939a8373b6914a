"""The servers that other tests lean on do what they say."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable

import pytest

from tests import hostile
from tests.servers import STEADY, LlamaServer, free_port
from tests.waiting import until


def ask(port: int, path: str = "/health", timeout_s: float = 5.0) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()


@pytest.mark.engine
def test_a_reply_has_the_tokens_asked_for_and_readable_letters(llama_server: LlamaServer) -> None:
    reply = llama_server.chat("tell me something", max_tokens=200)
    assert reply["usage"]["completion_tokens"] == 200
    assert reply["finish_reason"] == "length"
    assert len(reply["text"]) == 200
    assert all(letter.islower() or letter in " ,.\n" for letter in reply["text"])


@pytest.mark.engine
def test_a_cancelled_request_frees_its_slot(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama(shape=STEADY)
    requests = [server.background_chat(f"agent {number}", max_tokens=1900) for number in range(3)]
    until(lambda: len(server.busy_slots()) == 3)
    for request in requests:
        request.cancel()
    until(lambda: not server.busy_slots())
    assert [request.reply for request in requests] == [None] * 3


@pytest.mark.engine
def test_a_server_comes_back_on_the_same_port_after_kill(start_llama: Callable[..., LlamaServer]) -> None:
    first = start_llama()
    request = first.background_chat(max_tokens=1900)
    until(first.busy_slots)
    first.kill()
    request.join()
    assert request.reply is None
    second = start_llama(port=first.port)
    assert second.url == first.url
    assert second.pid != first.pid


@pytest.mark.engine
def test_a_frozen_server_accepts_and_says_nothing(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama()
    server.freeze()
    with pytest.raises(TimeoutError):
        server.get("/health", timeout_s=0.3)
    server.thaw()
    assert server.get("/health")[0] == 200


@pytest.mark.engine
def test_a_server_with_a_key(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama(api_key="secret", unified=True, metrics=False)
    assert ask(server.port, "/slots")[0] == 401
    assert len(server.json("/slots")) == 4
    assert server.get("/metrics")[0] == 501


def test_free_port_is_free() -> None:
    with pytest.raises(ConnectionRefusedError):
        ask(free_port())


def test_hostile_replies() -> None:
    with hostile.html_page() as server:
        assert b"<html>" in ask(server.port)[1]
    with hostile.loading() as server:
        assert ask(server.port)[0] == 503
    with hostile.unauthorised() as server:
        assert ask(server.port, "/slots")[0] == 401
        assert ask(server.port, "/health")[0] == 200
        assert server.asked == ["GET /slots", "GET /health"]
    with hostile.redirect() as server:
        assert ask(server.port)[0] == 302
    with hostile.many_slots() as server:
        rows = json.loads(ask(server.port, "/slots")[1])
        assert len(rows) == 256
        assert sum(row["is_processing"] for row in rows) == 128
    with hostile.huge_reply(path="/slots") as server:
        assert ask(server.port)[0] == 200
        body = ask(server.port, "/slots")[1]
        assert len(body) == 50_000_000
        assert body.endswith(b'x"}')


def test_hostile_connections() -> None:
    with hostile.not_http() as server, pytest.raises(http.client.HTTPException):
        ask(server.port)
    with hostile.closes() as server, pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(server.port)
    with hostile.stalls() as server, pytest.raises(TimeoutError):
        ask(server.port, timeout_s=0.2)
    with hostile.slow_drip(every_s=0.001) as server:
        assert ask(server.port) == (200, b'{"status": "ok"}')


def test_a_hostile_server_ends_while_a_client_hangs_on() -> None:
    begun = time.monotonic()
    with hostile.stalls() as server:
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(lambda: server.asked)
    client.close()
    assert time.monotonic() - begun < 30
    with pytest.raises(ConnectionRefusedError):
        ask(server.port)
