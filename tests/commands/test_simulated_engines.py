"""What commands that print once say about a simulated engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from agenttop.commands import doctor
from agenttop.model.frames import EngineSample, Missing
from tests.simulated import Simulated
from tests.view.draw import folded


@pytest.fixture
def server(start_sim_here: Callable[..., Simulated]) -> Simulated:
    return start_sim_here(speedup=20)


def printed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agenttop", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_once_says_so_in_text(server: Simulated) -> None:
    text = printed("once", "--url", server.url)
    assert "SIMULATED RTX 5090 · 20x" in "\n".join(text.splitlines()[:2])  # the header
    assert "SIM 20x" in text or text.count("SIMULATED RTX 5090 · 20x") == 2  # the engine


def test_once_says_so_in_json(server: Simulated) -> None:
    report = json.loads(printed("once", "--json", "--window", "1s", "--url", server.url))
    [engine] = [engine for engine in report["engines"] if engine["url"] == server.url]
    assert (engine["simulated"], engine["speedup"], engine["state"]) == ("RTX 5090", 20.0, "ok")
    invented = [gpu["gpu"] for gpu in report["gpus"] if gpu["gpu"].startswith("sim:")]
    assert invented == [f"sim:127.0.0.1:{server.port}/0"]


def test_doctor_says_so(server: Simulated) -> None:
    text = printed("doctor", "--url", server.url)
    engine = " ".join(text[text.index("✓ engine") :].split())
    assert server.url in engine
    assert "SIMULATED RTX 5090, 20x as fast as life" in engine
    assert any(line.startswith("✓ GPU0") and "SIMULATED" in line for line in text.splitlines())


def unsupported(url: str) -> EngineSample:
    note = "this session runs at another speed"
    return EngineSample(t=1.0, engine=url, url=url, name="vLLM", state="unsupported", note=note)


def test_doctor_beside_a_faster_one_says_how_to_watch_it(server: Simulated) -> None:
    store = folded([unsupported(server.url), unsupported("http://127.0.0.1:9")])
    told = {check["status"]: check for check in doctor._engine_checks(doctor.seen_engines(store))}
    assert set(told) == {"ok", "bad"}
    assert "SIMULATED RTX 5090" in told["ok"]["text"]
    assert "runs 20 times as fast as life" in told["ok"]["text"]
    assert told["ok"]["fix"].endswith(f"agenttop --url {server.url}")
    assert "http://127.0.0.1:9: unsupported" in told["bad"]["text"]


def test_doctor_says_whose_gpu_is_missing() -> None:
    engine = EngineSample(t=1.0, engine="u", url="u", name="vLLM", state="ok", simulated="RTX 5090")
    missing = Missing(t=1.0, what="gpu", why="no NVIDIA driver")
    (check,) = doctor._gpus(folded([engine, missing]))
    assert check["text"] == "of this machine, not of the simulated one: no NVIDIA driver"
    (check,) = doctor._gpus(folded([missing]))
    assert check["text"] == "no NVIDIA driver"
