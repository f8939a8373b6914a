"""`agenttop sim` as a process, and the demo that runs on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from agenttop.errors import AgenttopError
from agenttop.oslayer import child_environment
from agenttop.sim import presets
from agenttop.sim.launch import SimProcess
from tests.servers import free_port
from tests.waiting import gone, until

AGENTTOP = [sys.executable, "-m", "agenttop"]


def run(*words, **options):
    return subprocess.run(
        [*AGENTTOP, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
        **options,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_says_where_it_is_and_a_signal_ends_it(number):
    words = ["sim", "--model", "tiny", "--speedup", "20"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*AGENTTOP, *words], stdout=pipe, stderr=pipe, text=True, env=child_environment()
    ) as process:
        line = process.stdout.readline()
        assert line.startswith("simulated RTX 5090 with tiny (vllm) at http://127.0.0.1:")
        assert line.endswith(", 20 times faster than life\n")
        process.send_signal(number)
        assert process.wait(20) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_a_signal_ends_it_in_the_middle_of_a_stream(start_sim):
    engine = start_sim(fault=["stall@tokens=2"])
    with pytest.raises(TimeoutError):
        engine.chat_for(0.3)
    assert engine.stop() == 0


def test_it_ends_with_whoever_started_it():
    program = (
        "import os, sys; from agenttop.sim.launch import SimProcess;"
        "print(SimProcess.start('rtx-5090', 'tiny').pid, flush=True); sys.stdin.read(); os._exit(1)"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as owner:
        pid = int(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: gone(pid), what="the end of the engine")


def test_a_vllm_that_loads_is_behind_a_closed_port(start_sim):
    engine = start_sim(load_time="20s", speedup=10)

    def answers():
        try:
            return engine.get("/health").status == 200
        except ConnectionRefusedError:
            return False

    assert not answers()
    until(answers, what="the loaded model")
    assert engine.stream().done


def test_it_says_all_about_itself_as_json(start_sim):
    engine = start_sim(host="strix-halo", seed=3, port=(port := free_port()))
    account = engine.account
    assert (account["schema"], account["simulated"], account["host"]) == (1, "Strix Halo", "strix-halo")
    assert (account["port"], account["url"]) == (port, f"http://127.0.0.1:{port}")
    assert psutil.pid_exists(account["pid"])


WRONG = [
    (["--host", "abacus"], 2, "there is no simulated host 'abacus'"),
    (["--model", "eliza"], 2, "there is no simulated model 'eliza'"),
    (["--host", "rtx-3090", "--model", "qwen3.5-27b-q8_k_xl"], 2, "does not fit"),
    (["--bind", "0.0.0.0"], 2, "this machine only"),
    (["--port", "70000"], 2, "is no port"),
    (["--speedup", "0"], 2, "out of range"),
    (["--context", "much"], 2, "not a number of tokens"),
    (["--load-time", "soon"], 2, "not a duration"),
    (["--fault", "gremlins"], 2, "there is no fault 'gremlins'"),
    (["--plant", "knee=eight"], 2, "'knee=eight' is not understood"),
    (["--api-key-env", "NO_SUCH_NAME_HERE"], 2, "no such environment variable"),
    (["--slots", "0", "--wire", "llama.cpp"], 2, "at least 1"),
]


@pytest.mark.parametrize(("words", "code", "said"), WRONG)
def test_what_makes_no_sense_gets_one_sentence(words, code, said, capsys):
    from agenttop.cli import main

    try:
        ended = main(["sim", *words])
    except SystemExit as error:  # argparse's own
        ended = error.code
    assert ended == code
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors


def test_a_port_that_is_taken_gets_one_sentence(start_sim_here):
    engine = start_sim_here()
    ended = run("sim", "--model", "tiny", "--port", engine.port)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"agenttop: cannot listen on 127.0.0.1:{engine.port}: ")
    assert ended.stderr.count("\n") == 1


def test_the_list_names_all_presets(capsys):
    from agenttop.cli import main

    assert main(["sim", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in [*presets.hosts(), *presets.models()])
    assert main(["sim", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [host["key"] for host in listed["hosts"]] == presets.hosts()


def test_the_help_explains_every_fault(capsys):
    from agenttop.cli import main
    from agenttop.sim.faults import CONDITIONS, KINDS

    with pytest.raises(SystemExit):
        main(["sim", "--help"])
    text = capsys.readouterr().out
    assert all(f"\n  {name}" in text for name in [*KINDS, *CONDITIONS])


def test_its_owner_gets_the_reason_when_it_does_not_start():
    with pytest.raises(AgenttopError, match="there is no simulated host 'abacus'"):
        SimProcess.start("abacus", "tiny")
    with SimProcess.start("rtx-5090", "tiny", wire="llama.cpp") as engine:
        assert engine.running
        assert engine.simulated == "RTX 5090"
    assert not engine.running
    engine.stop()


@pytest.mark.slow
def test_a_demo_on_a_simulated_engine(tmp_path):
    out = tmp_path / "demo.agenttop"
    words = ["demo", "--sim", "--model", "tiny", "--speedup", "20", "--headless", "--for", "60s", "--json"]
    ended = run(*words, "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "simulated RTX 5090, 20 times as fast as life" in ended.stderr
    assert "agents 0 → 4 (human)" in ended.stderr
    from agenttop.record.read import Recording

    with Recording(out) as recording:
        session = recording.session
        assert (session.simulated, session.speedup, session.demo) == ("RTX 5090", 20.0, True)
        gpus = [frame for frame in recording.frames() if frame.__class__.__name__ == "GpuSample"]
        assert {gpu.name for gpu in gpus if gpu.gpu.startswith("sim:")} == {"NVIDIA GeForce RTX 5090"}
        assert recording.turns()


@pytest.mark.slow
def test_the_demo_says_that_it_falls_back_on_a_simulated_engine(tmp_path):
    program = (
        "import sys; sys.modules['xllamacpp'] = None; from agenttop.cli import main;"
        "sys.exit(main(['demo', '--headless', '--for', '2s', '--no-record']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=child_environment()
    )
    first, _, rest = ended.stderr.partition("\n")
    assert first.startswith("agenttop: the simulated engine runs here, because llama.cpp is not installed")
    assert "is a simulated RTX 5090: nothing here was measured" in rest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "h100"], "--host is of the simulated engine"),
        (["--sim", "--host", "abacus"], "there is no simulated host 'abacus'"),
        (["--sim", "--speedup", "-1"], "out of range"),
        (["--sim", "--host", "rtx-3090", "--model", "qwen3.5-27b-q8_k_xl"], "does not fit"),
    ],
)
def test_a_demo_that_cannot_be_is_refused_before_anything_starts(words, said, capsys):
    from agenttop.cli import main

    assert main(["demo", "--headless", "--for", "60s", *words]) == 2
    assert said in capsys.readouterr().err


def test_two_that_load_at_one_port_do_not_share_it():
    """While vLLM loads its port is bound and does not listen, which Linux lets two programs do."""
    words, pipe = ["sim", "--model", "tiny", "--load-time", "2s", "--json"], subprocess.PIPE
    with subprocess.Popen([*AGENTTOP, *words], stdout=pipe, stderr=pipe, env=child_environment()) as first:
        port = json.loads(first.stdout.readline())["port"]
        try:
            with SimProcess.start("rtx-5090", "tiny", more=["--port", str(port)]) as second:
                assert first.wait(20) == 1
                assert second.running
            said = f"agenttop: cannot listen on 127.0.0.1:{port}: another program does now\n"
            assert first.stderr.read().decode() == said
        except AgenttopError as refused:
            if "cannot listen on" not in str(refused):  # the first one was quicker, or it is not Linux
                raise
        finally:
            first.kill()
