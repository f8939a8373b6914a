"""`once`, `stream` and `doctor` against real servers: the interfaces that scripts rely on."""

import json

import pytest

from agenttop.commands import once
from agenttop.commands.cells import json_text
from agenttop.model.frames import GpuSample, HostSample
from tests.commands.test_cli import agenttop
from tests.hostile import html_page
from tests.view.draw import folded
from tests.view.machine_scenes import MACHINES


def test_one_look_at_a_real_engine_as_json(llama_server):
    done = agenttop("once", "--json", "--url", llama_server.url)
    assert done.returncode == 0, done.stderr
    look = json.loads(done.stdout)
    assert look["schema"] == 1
    assert 0 <= look["host"]["cpu_fraction"] <= 1
    assert 0 < look["host"]["ram_used_bytes"] < look["host"]["ram_total_bytes"]
    assert isinstance(look["gpus"], list)
    (engine,) = look["engines"]
    assert engine["url"] == llama_server.url
    assert engine["engine"] == "llama.cpp"
    for key in [
        "version",
        "model",
        "running",
        "waiting",
        "kv_used_tokens",
        "kv_pool_tokens",
        "kv_used_fraction",
        "decode_tok_s",
        "prefill_tok_s",
    ]:
        assert key in engine
    assert engine["running"] == 0
    assert [slot["id"] for slot in engine["slots"]] == [0, 1, 2, 3]
    assert all(set(slot) >= {"id", "phase", "context_tokens", "decode_tok_s"} for slot in engine["slots"])
    assert all(set(missing) == {"what", "why", "fix"} for missing in look["missing"])


def test_a_request_in_progress_is_seen_with_its_rate(start_llama):
    from tests.servers import STEADY

    server = start_llama(shape=STEADY, slots=1, context=32768)
    request = server.background_chat(max_tokens=30_000)
    try:
        look = json.loads(agenttop("once", "--json", "--url", server.url, "--window", "3s").stdout)
    finally:
        request.cancel()
    (engine,) = look["engines"]
    assert engine["running"] == 1
    assert engine["decode_tok_s"] > 0
    (busy,) = [slot for slot in engine["slots"] if slot["phase"] != "idle"]
    assert busy["decode_tok_s"] > 0
    assert busy["context_tokens"] > 0


def test_a_dead_url_is_exit_code_one_and_says_why():
    done = agenttop("once", "--json", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    (engine,) = json.loads(done.stdout)["engines"]
    assert engine["state"] == "down"
    assert engine["note"]
    assert engine["decode_tok_s"] is None
    assert engine["kv_used_tokens"] is None


def test_a_web_page_is_no_engine():
    with html_page() as page:
        done = agenttop("once", "--json", "--url", page.url)
    assert done.returncode == 1
    (engine,) = json.loads(done.stdout)["engines"]
    assert engine["state"] == "unsupported"


def test_without_json_it_is_a_plain_picture(llama_server):
    done = agenttop("once", "--url", llama_server.url)
    assert done.returncode == 0
    assert "llama.cpp" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_machine_stands_in_lines_to_paste_whatever_the_width(llama_server):
    done = agenttop("once", "--url", llama_server.url)
    last = done.stdout.rstrip().splitlines()
    at = last.index("", 5)
    host, *gpus = last[at + 1 :]
    assert "CPU " in host
    assert "RAM " in host
    assert all(line.startswith(("GPU", "no GPU: ")) for line in gpus)
    assert gpus


def test_json_has_everything_known_of_a_machine():
    scene, seconds = MACHINES["thermal-episode"]
    look = once.report(folded(scene(), seconds + 0.4))
    [gpu] = look["gpus"]
    assert gpu["throttle_shares"]["power cap"] == 0.2
    assert set(GpuSample.__struct_fields__) - {"t"} <= set(gpu)
    assert set(HostSample.__struct_fields__) - {"t"} <= set(look["host"])
    assert look["hardware"]["memory_peak_bytes_s"] == 83.2e9
    assert {process["name"] for process in look["processes"]} == {"llama-server", "llama-worker", "Xorg"}
    [engine] = look["engines"]
    assert engine["derived"]["joules_per_token"]["value"] > 0
    assert engine["derived"]["joules_per_token"]["evidence"]
    assert json.loads(json_text(look)) == look


def test_json_of_a_machine_of_which_nothing_is_known():
    look = once.report(folded([]))
    assert (look["host"], look["hardware"], look["gpus"], look["processes"]) == ({}, {}, [], [])


def test_every_line_of_the_stream_has_kind_and_time(llama_server):
    done = agenttop("stream", "--for", "3s", "--url", llama_server.url)
    assert done.returncode == 0, done.stderr
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert all("kind" in frame and "t" in frame for frame in frames)
    kinds = {frame["kind"] for frame in frames}
    assert kinds >= {"session", "host", "engine", "slot", "own"}
    assert frames[0]["kind"] == "session"
    assert frames[0]["schema"] == 1


def test_a_look_leaves_no_recording_behind(llama_server):
    from agenttop import paths

    agenttop("once", "--url", llama_server.url)
    assert list(paths.recordings().iterdir()) == []
    assert list(paths.sessions().iterdir()) == []


@pytest.mark.slow
def test_the_doctor_names_what_is_missing_and_what_would_help(start_llama):
    server = start_llama(metrics=False)
    done = agenttop("doctor", "--json", "--url", server.url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    text = json.dumps(report["checks"])
    assert "--metrics" in text
    assert "llama.cpp" in text
    plain = agenttop("doctor", "--url", server.url).stdout
    assert "--metrics" in plain
    assert "\x1b" not in plain
