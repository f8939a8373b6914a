"""What commands that print once say about a simulated engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.simulated import Simulated


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
    lines = printed("doctor", "--url", server.url).splitlines()
    engine = next(line for line in lines if server.url in line)
    assert "SIMULATED RTX 5090, 20x as fast as life" in engine
    assert any(line.startswith("✓ GPU0") and "SIMULATED" in line for line in lines)
