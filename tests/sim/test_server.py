"""The server around the simulated engine: connections, requests, time, and what it says of itself."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest

from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.reply import Reply
from agenttop.collect.engine.kinds.simulated import parse
from tests.waiting import until

ASK = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":3}'


def post(body=ASK, *headers):
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: x", *headers]
    if not any(header.lower().startswith(b"transfer-encoding") for header in headers):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Line:
    """A bare connection."""

    def __init__(self, engine):
        self._socket = socket.create_connection(("127.0.0.1", engine.port), timeout=20)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def send(self, data):
        self._socket.sendall(data)

    def reply(self):
        """(status, headers, body) of a reply with a length."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def rest(self):
        return self._file.read()


@pytest.fixture
def engine(start_sim_here):
    return start_sim_here(speedup=50)


def test_a_connection_serves_one_request_after_another(engine):
    with Line(engine) as line:
        for _ in range(3):
            line.send(post())
            assert line.reply()[0] == 200


def test_requests_sent_ahead_are_answered_in_order(engine):
    with Line(engine) as line:
        line.send(post() + b"GET /version HTTP/1.1\r\n\r\n" + b"GET /nope HTTP/1.1\r\n\r\n")
        assert json.loads(line.reply()[2])["choices"]
        assert json.loads(line.reply()[2]) == {"version": "0.32.0+simulated"}
        assert line.reply()[0] == 404


def test_more_requests_ahead_than_anybody_needs_end_the_connection(engine):
    with Line(engine) as line:
        line.send(post(b'{"messages":[],"max_tokens":5000}') + b"GET /version HTTP/1.1\r\n\r\n" * 40)
        assert line.rest() == b""


def test_a_body_in_chunks_and_one_that_is_announced(engine):
    with Line(engine) as line:
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (ASK[:10], ASK[10:])) + b"0\r\n\r\n"
        line.send(post(pieces, b"transfer-encoding: chunked"))
        assert line.reply()[0] == 200
        whole = post(ASK, b"expect: 100-continue")
        head, body = whole[: -len(ASK)], whole[-len(ASK) :]
        line.send(head)
        assert line.reply()[0] == 100
        line.send(body)
        assert line.reply()[0] == 200


def test_a_client_that_wants_to_close_is_obeyed(engine):
    with Line(engine) as line:
        line.send(post(ASK, b"connection: close"))
        status, headers, _ = line.reply()
        assert (status, headers["connection"], line.rest()) == (200, "close", b"")
    with Line(engine) as line:
        line.send(b"GET /version HTTP/1.0\r\n\r\n")
        assert line.reply()[0] == 200
        assert line.rest() == b""


def test_a_head_alone(engine):
    with Line(engine) as line:
        line.send(b"HEAD /version HTTP/1.1\r\n\r\n")
        line.send(b"GET /nope HTTP/1.1\r\nconnection: close\r\n\r\n")
        everything = line.rest()
    first, _, second = everything.partition(b"\r\n\r\n")
    assert b"content-length: 30" in first
    assert second.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"what is this\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ncontent-length: 10\r\ncontent-length: 11\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_and_others_are_served_on(engine, sent, status):
    with Line(engine) as line:
        line.send(sent)
        assert line.reply()[0] == status
        assert line.rest() == b""
    assert engine.chat().status == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"messages":[7]}', b"[" * 5000, b"\xff\xfe{}"])
@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
def test_odd_bodies_get_an_error_of_the_engine(start_sim_here, wire, body):
    engine = start_sim_here(wire=wire)
    answer = engine.post("/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
def test_every_reply_says_that_it_is_simulated(start_sim_here, wire):
    engine = start_sim_here(wire=wire, fault=["5xx@request=2"])
    replies = [engine.get(path) for path in ("/health", "/v1/models", "/metrics", "/nope", "/sim")]
    replies += [engine.chat(), engine.chat(), engine.stream(), engine.post("/v1/completions", b"")]
    assert {reply.headers.get("x-agenttop-sim") for reply in replies} == {"1"}
    assert [reply.status for reply in replies] == [200, 200, 200, 404, 200, 200, 500, 200, 400]


def test_it_says_what_it_is_and_what_its_gpu_does(start_sim_here):
    engine = start_sim_here(host="rtx-5090", model="qwen3.5-9b-4bit", speedup=50, fault=["cut@every=9"])
    told = parse(engine.get("/sim").body)
    assert (told.host, told.wire, told.speedup) == ("RTX 5090", "vllm", 50)
    assert "fault: cut@every=9" in told.notes
    (idle,) = told.gpus
    engine.chat(max_tokens=2000)
    (busy,) = until(lambda: (gpus := parse(engine.get("/sim").body).gpus)[0].util_fraction and gpus)
    assert busy.energy_j > idle.energy_j
    assert busy.mem_used_bytes > 0
    assert engine.get("/sim").json()["late_s"] >= 0


def test_two_gpus_are_two(start_sim_here):
    engine = start_sim_here(host="2x4090")
    assert [gpu["index"] for gpu in engine.get("/sim").json()["gpus"]] == [0, 1]


def figures(engine):
    reply = engine.chat("tell me", max_tokens=100).json()
    timings = reply["timings"]
    return reply["choices"][0]["message"]["content"], timings["prompt_ms"], timings["predicted_ms"]


def test_the_same_seed_gives_the_same_text_and_times_at_any_speed(start_sim_here):
    slow, fast = (start_sim_here(wire="llama.cpp", speedup=speed, seed=5) for speed in (4, 40))
    first, second = figures(slow), figures(fast)
    assert first[0] == second[0]
    assert first[1:] == pytest.approx(second[1:], abs=0.002)
    other = start_sim_here(wire="llama.cpp", seed=6)
    assert figures(other)[0] != first[0]


def test_the_text_does_not_depend_on_the_process(start_sim):
    texts = {figures(start_sim(wire="llama.cpp", env={"PYTHONHASHSEED": seed}))[0] for seed in ("1", "2")}
    assert len(texts) == 1


def test_it_runs_faster_than_life(start_sim_here):
    engine = start_sim_here(wire="llama.cpp", speedup=100, plant="step=0.02")
    begun = time.monotonic()
    timings = engine.chat(max_tokens=1000).json()["timings"]
    assert timings["predicted_ms"] == pytest.approx(20_000, rel=0.05)
    assert (time.monotonic() - begun) * 20 < 20  # 0.2 s on an idle machine; here at most a twentieth


@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
async def test_our_own_client_reads_its_streams(start_sim_here, wire):
    engine = start_sim_here(wire=wire, speedup=20)
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings_per_token": True,
        "return_progress": True,
    }
    client = Client(Endpoint(engine.url), time.monotonic, Timeouts(queue_s=20, stall_s=20))
    for _ in range(2):
        reply = Reply()
        await client.send(json.dumps(body).encode(), reply)
        assert (reply.error_kind, reply.error) == (None, None)
        assert (reply.output_tokens, reply.events, reply.finish_reason) == (50, 50, "length")
        assert len(reply.text) == 200
        assert reply.done
        assert reply.prompt_tokens == 9
    client.close()


FAULTS = [
    ("cut", "cut"),
    ("error", "stream-error"),
    ("5xx", "http-5xx"),
    ("4xx", "http-4xx"),
    ("context", "context"),
    ("restart=20s", "restarted"),
]


@pytest.mark.parametrize(("fault", "kind"), FAULTS)
async def test_our_own_client_names_the_faults(start_sim_here, fault, kind):
    engine = start_sim_here(fault=[fault], speedup=20)
    client = Client(Endpoint(engine.url), time.monotonic, Timeouts(queue_s=20, stall_s=20))
    reply = Reply()
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":50,"stream":true}'
    await client.send(body, reply)
    client.close()
    assert reply.error_kind == kind


def test_a_fault_of_the_server_itself_is_told_and_ends_nothing(start_sim_here, capfd):
    engine = start_sim_here()

    def broken(*_):
        raise RuntimeError("on purpose")

    looks, engine.server.wire.looks = engine.server.wire.looks, broken
    answer = engine.get("/version")
    assert answer.status == 500
    assert "RuntimeError: on purpose" in capfd.readouterr().err
    engine.server.wire.looks = looks
    assert engine.get("/version").status == 200


def test_it_serves_this_machine_only(start_sim_here):
    from agenttop.errors import UsageError

    for address in ("0.0.0.0", "192.168.1.5", "example.org", ""):
        with pytest.raises(UsageError, match="this machine only"):
            start_sim_here(bind=address)
    if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):  # noqa: PTH110
        assert start_sim_here(bind="::1").account["url"].startswith("http://[::1]:")
