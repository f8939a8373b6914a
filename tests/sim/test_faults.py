"""Every fault, as it looks on the wire; and the language they are asked for in."""

from __future__ import annotations

import http.client
import time

import pytest

from agenttop.errors import UsageError
from agenttop.sim.faults import KINDS, Fault, FaultPlan, parse
from tests.waiting import until

pytestmark = pytest.mark.slow

FAST = 50.0
"""So that a simulated second is no wait."""


@pytest.fixture
def sim(start_sim_here):
    """`sim("cut=3", ...)`: an engine with these faults that runs fast."""

    def start(*faults, **options):
        return start_sim_here(fault=list(faults), **{"speedup": FAST, **options})

    return start


WIRES = pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])


@WIRES
@pytest.mark.parametrize(
    ("fault", "status"), [("4xx", 400), ("4xx=429", 429), ("5xx", 500), ("5xx=502", 502)]
)
def test_a_status_in_place_of_a_reply(sim, wire, fault, status):
    engine = sim(f"{fault}@request=2", wire=wire)
    assert engine.stream().status == 200
    refused = engine.stream()
    assert refused.status == status
    assert b"on purpose" in refused.body
    assert engine.stream().status == 200


def test_connections_are_refused_for_a_while(sim):
    engine = sim("refuse@at=10s,for=10s")
    assert engine.stream().done

    def refused():
        try:
            engine.get("/health")
        except ConnectionRefusedError:
            return True
        except http.client.RemoteDisconnected:
            return False  # let in while the port was closing
        return False

    until(refused, what="refused connections")
    until(lambda: not refused(), what="connections again")
    assert engine.stream().done


def test_connections_are_refused_once_some_requests_have_come(sim):
    engine = sim("refuse@after=2,for=20s")
    assert engine.stream().done
    assert engine.stream().done
    until(lambda: _refused(engine), what="the closed door")  # a moment after the last request


def test_requests_are_answered_with_503(sim):
    engine = sim("refuse=503@first=1", wire="llama.cpp")
    assert engine.stream().status == 503
    assert engine.get("/health").status == 200
    assert engine.stream().done


@WIRES
@pytest.mark.parametrize("tokens", [1, 3])
def test_a_stream_is_cut(sim, wire, tokens):
    engine = sim(f"cut={tokens}", wire=wire)
    stream = engine.stream(max_tokens=20)
    assert (stream.status, stream.done, stream.ended) == (200, False, "cut")
    assert len(stream.text) == 4 * tokens
    assert stream.usage is None
    state = until(lambda: _running(engine) == 0 and engine.get("/sim").json())
    assert state["requests"] == 1


def test_a_reply_shorter_than_the_place_of_the_cut_ends_without_done(sim):
    stream = sim("cut=100").stream(max_tokens=4)
    assert (len(stream.text), stream.done, stream.ended) == (16, False, "cut")


def test_silence_in_the_middle_and_then_the_rest(sim):
    engine = sim("stall=20s@tokens=3")
    begun = time.monotonic()
    stream = engine.stream(max_tokens=6)
    assert time.monotonic() - begun >= 20 / FAST
    assert (len(stream.text), stream.done, stream.comments) == (24, True, 0)


def test_silence_for_ever(sim):
    stream = sim("stall@tokens=3").stream(max_tokens=6, timeout_s=0.5)
    assert (len(stream.text), stream.ended) == (12, "silence")


def test_silence_with_keep_alives(sim):
    stream = sim("stall=30s@tokens=3,comments").stream(max_tokens=6)
    assert stream.comments >= 3
    assert (len(stream.text), stream.done) == (24, True)


def test_every_third_request_alone(sim):
    engine = sim("cut@every=3")
    assert [engine.stream(max_tokens=20).done for _ in range(6)] == [True, True, False, True, True, False]


def test_an_error_inside_a_stream_of_vllm_is_followed_by_done(sim):
    stream = sim("error@tokens=2").stream(max_tokens=6)
    assert (stream.status, stream.done, stream.ended, len(stream.text)) == (200, True, "end", 8)
    assert stream.events[-1]["error"]["code"] == 500


def test_an_error_inside_a_stream_of_llama_cpp_is_the_last_of_it(sim):
    engine = sim("error=Context size has been exceeded.@tokens=2", wire="llama.cpp")
    stream = engine.stream(max_tokens=6)
    assert (stream.status, stream.done, stream.ended) == (200, False, "end")
    error = stream.events[-1]["error"]
    assert error == {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}


def test_llama_cpp_restarts_and_says_that_it_loads(sim):
    engine = sim("restart=20s@request=2", wire="llama.cpp")
    first = engine.stream(max_tokens=20)
    marker = engine.get("/metrics").headers["process-start-time-unix"]
    assert first.done
    assert engine.stream(max_tokens=20).ended == "cut"
    loading = engine.get("/slots")
    assert (loading.status, loading.json()["error"]["message"]) == (503, "Loading model")
    assert engine.get("/sim").json()["state"] == "loading"
    until(lambda: engine.get("/health").status == 200, what="the model to be loaded")
    assert "llamacpp:tokens_predicted_total 0" in engine.get("/metrics").body.decode()
    assert engine.get("/metrics").headers["process-start-time-unix"] != marker
    assert all("id_task" not in slot for slot in engine.get("/slots").json())
    assert engine.stream(max_tokens=20).done


def test_vllm_restarts_behind_a_closed_port(sim):
    engine = sim("restart=150s@at=5s")  # three seconds of real time: a look that is in the way takes one
    until(lambda: _refused(engine), what="the restart")
    until(lambda: not _refused(engine), what="the engine to come back")
    assert engine.get("/sim").json()["lives"] == 2


def test_a_restart_once_some_requests_have_come(sim):
    engine = sim("restart=1s@after=2")
    assert engine.stream().done
    assert engine.stream().done
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        engine.stream()
    until(lambda: not _refused(engine), what="the engine to come back")
    assert engine.stream().done


def test_a_slow_stream_arrives_whole(sim):
    engine = sim("slow=5s")
    begun = time.monotonic()
    stream = engine.stream(max_tokens=4)
    assert time.monotonic() - begun >= 4 * 5 / FAST
    assert (len(stream.text), stream.done) == (16, True)


@WIRES
def test_several_tokens_in_each_chunk(sim, wire):
    stream = sim("tokens-per-chunk=3", wire=wire).stream(max_tokens=8)
    texts = [choice["delta"].get("content") for choice in stream.choices]
    assert [len(text) for text in texts if text] == [12, 12, 8]
    assert stream.usage["completion_tokens"] == 8


@WIRES
def test_the_role_alone_comes_before_the_queue(sim, wire):
    one_at_a_time = {"slots": 1} if wire == "llama.cpp" else {"max_num_seqs": 1}
    engine = sim("role-only", wire=wire, speedup=1, **one_at_a_time)
    with _Open(engine, max_tokens=2000) as busy, _Open(engine, max_tokens=4) as waiting:
        assert b'"role":"assistant"' in busy.line()
        assert b'"role":"assistant"' in waiting.line()
        assert _waiting(engine) == 1


@pytest.mark.parametrize(("wire", "field"), [("vllm", "reasoning"), ("llama.cpp", "reasoning_content")])
def test_a_share_of_the_reply_is_thinking(sim, wire, field):
    engine = sim("reasoning=0.25", wire=wire)
    stream = engine.stream(max_tokens=8)
    thinking = [choice["delta"][field] for choice in stream.choices if choice["delta"].get(field)]
    assert (len(thinking), len(stream.text)) == (2, 24)
    message = engine.chat(max_tokens=8).json()["choices"][0]["message"]
    assert (message[field], message["content"]) == ("".join(thinking), stream.text)


@WIRES
def test_counts_that_lie(sim, wire):
    engine = sim("wrong-usage=0.5", wire=wire)
    assert engine.stream(max_tokens=8).usage["completion_tokens"] == 4
    assert engine.chat(max_tokens=8).json()["usage"]["completion_tokens"] == 4


@WIRES
def test_no_counts_at_all(sim, wire):
    engine = sim("wrong-usage=none", wire=wire)
    stream = engine.stream(max_tokens=8, timings_per_token=True)
    assert stream.done
    assert stream.usage is None
    assert not any(event.get("timings") for event in stream.events)


def test_a_request_that_is_never_answered(sim):
    engine = sim("queue-timeout")
    with pytest.raises(TimeoutError):
        engine.stream(timeout_s=0.5)
    assert _running(engine) == 0


@WIRES
def test_the_context_is_exceeded_in_the_words_of_the_engine(sim, wire):
    refused = sim("context", wire=wire).stream()
    assert refused.status == 400
    words = b"maximum context length is" if wire == "vllm" else b"exceed_context_size_error"
    assert words in refused.body


def test_comments_without_end(sim):
    engine = sim("comments=1s")
    with _Open(engine) as stream:
        lines = [stream.line() for _ in range(12)]
    assert {line.rstrip() for line in lines} == {b": keep-alive", b""}


def test_every_kind_is_tried_here():
    with open(__file__, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    assert [kind for kind in KINDS if f'"{kind}' not in text] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("boom", "there is no fault 'boom'"),
        ("cut=many", "'many' is not its TOKENS"),
        ("cut=0", "'0' is not its TOKENS"),
        ("4xx=500", "'500' is not its STATUS"),
        ("context=5", "takes no value"),
        ("cut@sometimes", "no condition 'sometimes'"),
        ("cut@every=0", "'0' is no value of every"),
        ("cut@at=noon", "'noon' is no value of at"),
        ("slow@tokens=3", "slow takes no 'tokens'"),
        ("cut@comments", "cut takes no 'comments'"),
        ("refuse@request=3", "cannot be refused its connection"),
        ("cut@for=5s", "needs a beginning"),
        ("reasoning=2", "'2' is not its SHARE"),
        ("wrong-usage=-1", "'-1' is not its FACTOR"),
    ],
)
def test_a_fault_that_makes_no_sense_is_named(text, said):
    with pytest.raises(UsageError, match="--fault") as caught:
        parse(text)
    assert said in str(caught.value)


def test_conditions_must_all_hold():
    fault = parse("cut@every=2,at=10s,for=5s")
    assert fault == Fault(kind="cut", at=10.0, lasts=5.0, every=2)
    hits = [(number, now) for number in (1, 2) for now in (9.0, 10.0, 14.9, 15.0) if fault.hits(number, now)]
    assert hits == [(2, 10.0), (2, 14.9)]


def test_of_two_faults_of_a_kind_the_one_named_first_counts():
    plan = FaultPlan([parse("cut=3@every=2"), parse("cut=9")])
    assert [plan.treat(number, 0.0).get("cut").tokens for number in (1, 2, 3)] == [9, 3, 9]


class _Open:
    """A stream in progress, read line by line."""

    def __init__(self, engine, max_tokens=100):
        self._connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
        body = b'{"stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":%d}' % max_tokens
        self._connection.request("POST", "/v1/chat/completions", body)

    def __enter__(self):
        self._reply = self._connection.getresponse()
        return self

    def __exit__(self, *_):
        self._reply.close()
        self._connection.close()

    def line(self):
        return self._reply.readline()


def _refused(engine):
    try:
        engine.get("/health", timeout_s=1)
    except (ConnectionRefusedError, http.client.RemoteDisconnected, ConnectionResetError):
        return True
    except TimeoutError:
        pass  # it was let in while the port was closing
    return False


def _gauge(engine, vllm, llama):
    for line in engine.get("/metrics").body.decode().splitlines():
        if line.startswith((f"vllm:{vllm}{{", f"llamacpp:{llama} ")):
            return int(float(line.rpartition(" ")[2]))
    raise AssertionError("no such gauge")


def _running(engine):
    return _gauge(engine, "num_requests_running", "requests_processing")


def _waiting(engine):
    return _gauge(engine, "num_requests_waiting", "requests_deferred")
