"""The simulated vLLM against replies that were captured from vLLM 0.32."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agenttop.sim.prompt import MESSAGE_TOKENS
from tests.sim.shapes import differences
from tests.waiting import until

SAMPLES = Path(__file__).parents[1] / "samples" / "vllm"
CAPTURES = Path(__file__).parents[1] / "wire" / "captures"

NOT_SIMULATED = {
    "vllm:estimated_flops_per_gpu_total",
    "vllm:estimated_read_bytes_per_gpu_total",
    "vllm:estimated_write_bytes_per_gpu_total",
    "vllm:iteration_tokens_total",
    "vllm:request_params_n",
    "vllm:request_num_preemptions",
}
"""What the simulation does not know is not there."""


@pytest.fixture
def engine(start_sim_here):
    return start_sim_here(speedup=50)


def sample(name):
    return json.loads((SAMPLES / name).read_text(encoding="utf-8"))


def capture(name):
    lines = (CAPTURES / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_a_stream_has_the_fields_of_a_real_one(engine):
    options = {"include_usage": True, "continuous_usage_stats": True}
    ours = engine.stream(max_tokens=6, stream_options=options)
    real = capture("vllm-usage.sse")
    counts = ours.events[-1]["usage"].pop("prompt_tokens_details")
    assert differences(counts, sample("chat.json")["usage"]["prompt_tokens_details"]) == [
        ": extra [], lacking ['multimodal_tokens']"  # as in a real stream; see load10-preempt of the captures
    ]
    for mine, theirs in ((0, 0), (1, 1), (-2, -2), (-1, -1)):
        assert differences(ours.events[mine], real[theirs]) == []
    assert (ours.done, ours.ended, ours.finish_reason) == (True, "end", "length")
    assert ours.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert ours.headers["server"] == "uvicorn"
    counted = [event["usage"]["completion_tokens"] for event in ours.events]
    assert counted == [0, 1, 2, 3, 4, 5, 6, 6]


def test_counts_come_only_where_they_were_asked_for(engine):
    ours = engine.stream(max_tokens=3, stream_options=None)
    assert [event.get("usage") for event in ours.events] == [None] * 4
    ours = engine.stream(max_tokens=3)
    assert [bool(event.get("usage")) for event in ours.events] == [False] * 4 + [True]
    assert ours.events[-1]["choices"] == []


def test_replies_in_one_piece(engine):
    chat = engine.chat(max_tokens=4)
    assert differences(chat.json(), sample("chat.json")) == []
    plain = engine.post("/v1/completions", {"prompt": "import os", "max_tokens": 16})
    assert differences(plain.json(), sample("completion.json")) == []
    assert plain.json()["usage"]["completion_tokens"] == 16


def test_who_it_is(engine):
    models = engine.get("/v1/models").json()
    assert differences(models, sample("v1_models.txt")) == []
    assert models["data"][0]["id"] == engine.model == "tiny-simulated"
    assert models["data"][0]["max_model_len"] == engine.account["context_limit_tokens"]
    assert engine.get("/version").json() == {"version": "0.32.0+simulated"}
    assert engine.get("/load").json() == sample("load.txt")
    assert (engine.get("/health").status, engine.get("/health").body) == (200, b"")
    assert engine.get("/ping").body == b""


def test_tokens_are_counted_on_request(engine):
    answer = engine.post("/tokenize", {"prompt": "import os"})
    assert differences(answer.json(), sample("tokenize.json")) == []
    assert answer.json()["count"] == len(answer.json()["tokens"]) == 3


ERRORS = [
    ("bad_param.json", 400, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": -5}),
    ("invalid_json.json", 400, b'{"model": "tiny", "messages": ['),
    ("missing_messages.json", 400, {"model": "tiny-simulated"}),
    ("model_404.json", 404, {"model": "nope", "messages": []}),
    ("too_long.json", 400, {"messages": [{"role": "user", "content": "hello " * 2000}]}),
    ("max_tokens_too_big.json", 400, {"messages": [], "max_tokens": 100000}),
]


@pytest.mark.parametrize(("name", "status", "body"), ERRORS)
def test_errors_have_the_form_and_the_words_of_real_ones(start_sim_here, name, status, body):
    engine = start_sim_here(context=2048)
    answer, real = engine.post("/v1/chat/completions", body), sample(f"errors/{name}")
    assert answer.status == status
    assert differences(answer.json(), real) == []
    mine, theirs = answer.json()["error"], real["error"]
    assert (mine["type"], mine["code"]) == (theirs["type"], theirs["code"])
    assert mine["param"] == theirs["param"] or name == "invalid_json.json"
    assert mine["message"].split()[:4] == theirs["message"].split()[:4]
    if name == "too_long.json":
        assert mine["message"] == theirs["message"]


def test_prompt_and_output_together_must_fit(start_sim_here):
    engine = start_sim_here(context=2048, speedup=50)
    fits = 2048 - 4 - MESSAGE_TOKENS - 3  # the text, its markers, the marker before the reply
    assert engine.chat("x" * 16, max_tokens=fits).status == 200
    refused = engine.chat("x" * 16, max_tokens=fits + 1)
    assert refused.status == 400
    assert "maximum context length is 2048 tokens" in refused.json()["error"]["message"]


def test_unknown_paths_and_methods(engine):
    assert engine.get("/nope").json() == sample("errors/route_404.json")
    assert engine.get("/slots").status == 404
    assert engine.get("/v1/chat/completions").status == 405


def test_a_key_guards_the_api_alone(start_sim_here, monkeypatch):
    monkeypatch.setenv("SIM_KEY", "secret")
    engine = start_sim_here(api_key_env="SIM_KEY")
    refused = engine.get("/v1/models")
    assert (refused.status, refused.json()) == (401, sample("errors/no_key.json"))
    assert engine.chat().status == 401
    assert engine.get("/v1/models", {"Authorization": "Bearer wrong"}).status == 401
    assert engine.get("/v1/models", {"Authorization": "Bearer secret"}).status == 200
    for path in ("/health", "/metrics", "/version", "/sim"):
        assert engine.get(path).status == 200


def families(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def labels(text):
    """Names of labels by series."""
    found = {}
    for name, inside in re.findall(r"^(vllm:\w+)\{(.*)\} ", text, re.MULTILINE):
        found.setdefault(name, set()).add(tuple(re.findall(r'(\w+)="', inside)))
    return found


def test_metrics_have_the_names_types_and_labels_of_real_ones(engine):
    engine.chat()
    ours = engine.get("/metrics")
    text, real = ours.body.decode(), (SAMPLES / "metrics.txt").read_text(encoding="utf-8")
    assert ours.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    mine, theirs = families(text), families(real)
    assert {name: kind for name, kind in mine.items() if theirs.get(name) != kind} == {}
    lacking = {name for name in theirs if name.startswith("vllm:")} - set(mine)
    assert {name for name in lacking if not name.endswith("_created")} == NOT_SIMULATED
    for name, sets in labels(text).items():
        if name != "vllm:cache_config_info":  # some of its labels belong to models that are not simulated
            assert sets == labels(real)[name], name
    (mine_set,), (real_set,) = (labels(page)["vllm:cache_config_info"] for page in (text, real))
    assert set(mine_set) <= set(real_set)


def value(engine, series):
    for line in engine.get("/metrics").body.decode().splitlines():
        name, _, figure = line.rpartition(" ")
        if name.startswith("vllm:" + series):
            return float(figure)
    raise AssertionError(f"there is no {series}")


def test_counters_count_what_was_served(engine):
    text = "a context that stays the same, " * 40
    first, second = engine.stream(text, max_tokens=20), engine.stream(text, max_tokens=30)
    prompt = first.usage["prompt_tokens"]
    cached = second.usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached <= prompt
    assert cached % 16 == 0
    assert value(engine, "generation_tokens_total") == 50
    assert value(engine, "prompt_tokens_total") == 2 * prompt
    assert value(engine, "prefix_cache_queries_total") == 2 * prompt
    assert value(engine, "prefix_cache_hits_total") == cached
    assert value(engine, 'request_success_total{engine="0",finished_reason="length"') == 2
    assert value(engine, "time_to_first_token_seconds_count") == 2
    assert value(engine, "inter_token_latency_seconds_count") == 19 + 29
    assert value(engine, "request_generation_tokens_sum") == 50
    assert value(engine, "kv_cache_usage_perc") == 0


def test_without_a_prefix_cache_nothing_is_found_again(start_sim_here):
    engine = start_sim_here(no_prefix_cache=True)
    for _ in range(2):
        stream = engine.stream("the same again " * 40)
    assert stream.usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_client_that_leaves_frees_its_place(start_sim_here):
    engine = start_sim_here()
    with pytest.raises(TimeoutError):
        engine.chat_for(0.3, max_tokens=20000)
    until(lambda: value(engine, "num_requests_running") == 0, what="the request to be forgotten")
    assert value(engine, 'request_success_total{engine="0",finished_reason="abort"') == 1


def test_an_answer_sent_back_is_found_in_the_cache(engine):
    """As many tokens as it had, in the same blocks: a conversation pays only for what is new."""
    first = {"role": "user", "content": "begin " * 100}
    reply = engine.chat_messages([first], max_tokens=160)
    answer = {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}
    again = engine.chat_messages([first, answer, {"role": "user", "content": "next"}], max_tokens=4)
    before, after = reply["usage"], again["usage"]
    assert after["prompt_tokens"] == before["total_tokens"] + 1 + (MESSAGE_TOKENS + 1) + 3
    assert after["prompt_tokens_details"]["cached_tokens"] >= (before["total_tokens"] - 1) // 16 * 16
