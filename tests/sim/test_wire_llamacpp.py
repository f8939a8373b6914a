"""The simulated llama.cpp against replies that were captured from llama-server b11434, and read by our own
adapter as the real one is."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest

from agenttop.collect.engine.watch import EngineWatch
from tests.sim.shapes import differences
from tests.waiting import until

SAMPLES = Path(__file__).parents[1] / "samples" / "llamacpp" / "b11434"
CAPTURES = Path(__file__).parents[1] / "wire" / "captures"


@pytest.fixture
def start(start_sim_here):
    def start(**options):
        return start_sim_here(**{"wire": "llama.cpp", "speedup": 50, **options})

    return start


def sample(name):
    return json.loads((SAMPLES / name).read_text(encoding="utf-8"))


def capture(name):
    lines = (CAPTURES / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_a_stream_with_timings_has_the_fields_of_a_real_one(start):
    ours = start(fault=["reasoning=0.5"]).stream(max_tokens=6, timings_per_token=True)
    real = capture("llama-thinking.sse")
    for mine, theirs in ((0, 0), (1, 1), (-2, -2), (-1, -1)):
        assert differences(ours.events[mine], real[theirs]) == []
    assert (ours.done, ours.ended, ours.finish_reason) == (True, "end", "length")
    assert ours.headers["content-type"] == "text/event-stream"
    assert (ours.headers["server"], ours.headers["x-agenttop-sim"]) == ("llama.cpp", "1")
    counted = [event["timings"]["predicted_n"] for event in ours.events if event.get("timings")]
    assert counted == [1, 2, 3, 4, 5, 6, 6]


def test_progress_of_the_prompt_where_it_was_asked_for(start):
    ours = start().stream("word " * 8000, max_tokens=2, return_progress=True)
    real = capture("llama-progress.sse")
    for mine, theirs in ((0, 0), (1, 1), (-3, -3), (-2, -2), (-1, -1)):
        assert differences(ours.events[mine], real[theirs]) == []
    progress = [event["prompt_progress"] for event in ours.events if "prompt_progress" in event]
    processed = [each["processed"] for each in progress]
    assert processed[0] == progress[0]["cache"] == 0
    assert processed == sorted(processed)
    assert processed[-1] == progress[-1]["total"] == ours.usage["prompt_tokens"]
    assert len(processed) > 3
    plain = start().stream("word " * 8000, max_tokens=2)
    assert not any("prompt_progress" in event or "timings" in event for event in plain.events[:-1])


def test_a_reply_in_one_piece(start):
    assert differences(start().chat(max_tokens=8).json(), sample("chat.json")) == []


def test_a_reply_without_limit_ends_by_itself(start):
    engine = start()
    first, second = (engine.chat(max_tokens=None).json() for _ in range(2))
    assert first["choices"][0]["finish_reason"] == "stop"
    assert first["choices"][0]["message"] == second["choices"][0]["message"]  # the same prompt, the same text
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_the_context_ends_a_reply(start):
    engine = start(slots=1, context=512)
    reply = engine.chat(max_tokens=5000).json()
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == 512


def test_who_it_is(start):
    engine = start(slots=3)
    props = engine.get("/props").json()
    assert differences(props, sample("idle/props.txt")) == []
    assert (props["total_slots"], props["model_alias"]) == (3, "tiny-simulated")
    assert "simulated" in props["build_info"]
    assert differences(engine.get("/v1/models").json(), sample("idle/v1_models.txt")) == []
    assert engine.get("/health").json() == sample("idle/health.txt")
    tokens = engine.post("/tokenize", {"content": "hello world"}).json()
    assert differences(tokens, sample("tokenize.json")) == []
    assert len(tokens["tokens"]) == 3


def test_slots_before_and_after_use(start):
    engine = start(slots=4)
    assert differences(engine.get("/slots").json(), sample("idle/slots.txt")) == []
    assert len(engine.get("/slots").json()) == 4
    usage = engine.chat(max_tokens=20).json()["usage"]
    used = [slot for slot in engine.get("/slots").json() if "id_task" in slot]
    assert differences(used, sample("after/slots.txt")) == []
    assert used[0]["n_prompt_tokens"] == usage["total_tokens"] - 1  # the last token is in no cache
    following = used[0]["next_token"][0]
    assert (following["n_decoded"], following["n_remain"], used[0]["is_processing"]) == (0, -1, False)


def test_a_slot_at_work(start):
    engine = start(speedup=1)
    thread = threading.Thread(target=lambda: engine.chat(max_tokens=1000))
    thread.start()
    slot = until(lambda: next((s for s in engine.get("/slots").json() if s["is_processing"]), None))
    following = until(lambda: next(s for s in engine.get("/slots").json() if "id_task" in s)["next_token"][0])
    assert differences([slot], sample("after/slots.txt")) == []
    if following["has_next_token"]:
        assert following["n_remain"] + following["n_decoded"] == 1000
    thread.join()


ERRORS = [
    ("invalid_json.json", 400, b'{"messages": ['),
    ("missing_messages.json", 400, {"max_tokens": 4}),
    ("bad_type.json", 400, {"messages": "x"}),
    ("context_exceeded.json", 400, {"messages": [{"role": "user", "content": "hello " * 2000}]}),
]


@pytest.mark.parametrize(("name", "status", "body"), ERRORS)
def test_errors_have_the_form_and_the_words_of_real_ones(start, name, status, body):
    engine = start(context=8192)
    answer, real = engine.post("/v1/chat/completions", body), sample(f"errors/{name}")
    assert answer.status == status
    assert differences(answer.json(), real) == []
    mine, theirs = answer.json()["error"], real["error"]
    assert mine["type"] == theirs["type"]
    without_numbers = [re.sub(r"\d+", "N", error["message"]) for error in (mine, theirs)]
    assert without_numbers[0] == without_numbers[1]
    assert answer.headers["connection"] == "close"
    if name == "context_exceeded.json":
        assert mine["n_ctx"] == 2048


def test_what_is_switched_off_says_so(start):
    engine = start(no_metrics=True, no_slots=True)
    for path, name in (("/metrics", "disabled-metrics"), ("/slots", "disabled-slots")):
        answer = engine.get(path)
        assert (answer.status, answer.json()) == (501, sample(f"errors/{name}.json"))
    answer = engine.post("/props", {})
    assert (answer.status, answer.json()) == (501, sample("errors/post_props.json"))
    assert engine.get("/v1/nope").json() == sample("errors/route_404.json")


def test_a_key_guards_everything_but_health(start, monkeypatch):
    monkeypatch.setenv("SIM_KEY", "secret")
    engine = start(api_key_env="SIM_KEY")
    for path in ("/metrics", "/slots", "/props", "/v1/models"):
        assert engine.get(path).status == 401
        assert engine.get(path, {"Authorization": "Bearer secret"}).status == 200
    assert engine.chat().json() == sample("errors/no_key.json")
    assert engine.get("/health").status == engine.get("/v1/health").status == 200


def test_while_it_loads_every_path_says_so(start):
    engine = start(load_time="25s")
    for path in ("/health", "/metrics", "/props", "/slots", "/v1/models"):
        answer = engine.get(path)
        assert (answer.status, answer.json()) == (503, sample("loading/chat.json"))
    assert engine.chat().status == 503
    until(lambda: engine.get("/health").status == 200, what="the model to be loaded")
    assert engine.chat().status == 200


def series(text):
    return dict(re.findall(r"^(llamacpp:\w+) (\S+)$", text, re.MULTILINE))


def test_metrics_are_those_of_a_real_one(start):
    engine = start()
    text, real = (
        engine.get("/metrics").body.decode(),
        (SAMPLES / "idle/metrics.txt").read_text(encoding="utf-8"),
    )
    pattern = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
    assert pattern.findall(text) == pattern.findall(real)
    assert list(series(text)) == list(series(real))
    assert set(series(text).values()) == {"0"}
    usage = engine.chat(max_tokens=20).json()["usage"]
    counted = series(engine.get("/metrics").body.decode())
    assert int(counted["llamacpp:tokens_predicted_total"]) == 20
    assert int(counted["llamacpp:prompt_tokens_total"]) == usage["prompt_tokens"]
    assert int(counted["llamacpp:n_tokens_max"]) == usage["total_tokens"]
    assert float(counted["llamacpp:n_busy_slots_per_decode"]) == 1
    assert engine.get("/metrics").headers["content-type"] == "text/plain; version=0.0.4"


def test_output_tokens_are_counted_when_a_request_ends(start):
    engine = start(speedup=1)
    thread = threading.Thread(target=lambda: engine.chat(max_tokens=800))
    thread.start()

    def steps():
        return float(series(engine.get("/metrics").body.decode())["llamacpp:n_decode_total"])

    until(lambda: steps() > 20)
    assert series(engine.get("/metrics").body.decode())["llamacpp:tokens_predicted_total"] == "0"
    thread.join()
    assert series(engine.get("/metrics").body.decode())["llamacpp:tokens_predicted_total"] == "800"


def test_a_shared_pool_that_is_full_fails_all_that_run(start):
    """As the captured server did: an error event, no [DONE], no counts."""
    engine = start(kv_unified=True, context=1024, slots=4)
    streams = []
    threads = [
        threading.Thread(target=lambda n=n: streams.append(engine.stream(f"{n}" * 400, max_tokens=800)))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = capture("llama-pool-full.sse")
    failed = [stream for stream in streams if stream.events and "error" in stream.events[-1]]
    assert failed
    for stream in failed:
        assert stream.events[-1] == real[-1]
        assert (stream.status, stream.done, stream.usage) == (200, False, None)


async def test_our_own_adapter_reads_it_as_it_reads_the_real_one(start_sim):
    """Started as a user does, for the layout of its pool stands on its command line, as the real one's."""
    engine = start_sim(wire="llama.cpp", slots=2, context=8192, kv_unified=True)
    watch = EngineWatch(engine.url)
    try:
        reading = await watch.poll()
        for _ in range(100):
            if reading.sample.state == "ok":
                break
            await asyncio.sleep(0.05)
            reading = await watch.poll()
        sample = reading.sample
        assert (sample.name, sample.state, sample.model) == ("llama.cpp", "ok", "tiny-simulated")
        assert (sample.slots_total, sample.kv_layout, sample.kv_pool_tokens) == (2, "unified", 8192)
        assert sample.version == "b11549-simulated"
        untold = {missing.what.rpartition(":")[2] for missing in reading.missing}
        assert untold == {"kv_dtype", "ttft", "itl", "e2e", "finish_reasons", "preemptions_total"}
        chat = asyncio.ensure_future(asyncio.to_thread(engine.chat, max_tokens=2000))
        seen = []
        while not chat.done():
            seen.append(await watch.poll())
            await asyncio.sleep(0.05)
        rates = [reading.sample.decode_tok_s for reading in seen if reading.sample.running]
        assert max(rate for rate in rates if rate is not None) > 100
        assert any(slot.phase == "decode" for reading in seen for slot in reading.slots)
        assert (await chat).status == 200
    finally:
        await watch.close()
