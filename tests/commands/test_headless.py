"""Runs without a console."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from agenttop.commands.doors import running
from agenttop.model.clock import SystemClock
from agenttop.model.commands import StopAll
from agenttop.oslayer import WINDOWS
from agenttop.stream.lines import AttachSource
from tests.servers import free_port
from tests.waiting import gone, until


@contextlib.contextmanager
def headless_run(tmp_path, monkeypatch):
    """A run that waits for an engine that never comes, and the door of its session."""
    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path / "runtime"))
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "agenttop", "run", "human", "--headless", "--json", "--for", "5m"),
            *("--url", f"http://127.0.0.1:{free_port()}", "--out", str(tmp_path / "run.agenttop")),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert run.stderr is not None
        assert "level 1 of 1" in run.stderr.readline()
        yield run, until(running)[0]
    finally:
        run.kill()
        run.communicate()


def test_a_run_whose_agents_are_stopped_from_elsewhere_is_over(tmp_path, monkeypatch):
    with headless_run(tmp_path, monkeypatch) as (run, door):
        console = AttachSource(door, SystemClock())
        console.send(StopAll())
        shown, said = run.communicate(timeout=30)
        console.close()
    assert run.returncode == 1
    assert json.loads(shown)["failure"] == "the run was stopped before its end"
    assert said.splitlines()[-1] == "agenttop: the run was stopped before its end"


@pytest.mark.skipif(WINDOWS, reason="no signal asks a process to end there")
@pytest.mark.parametrize(
    ("node_gets_it", "failure"), [(False, "interrupted"), (True, "ended by signal SIGTERM")]
)
def test_a_run_that_is_ended_by_a_signal_ends_its_session_and_says_so(
    tmp_path, monkeypatch, node_gets_it, failure
):
    with headless_run(tmp_path, monkeypatch) as (run, door):
        os.kill(door.pid if node_gets_it else run.pid, signal.SIGTERM)
        shown, _ = run.communicate(timeout=30)
        assert gone(door.pid)
    assert run.returncode == 1
    assert json.loads(shown)["failure"] == failure


def test_of_a_run_without_any_request_only_the_reason_is_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path / "runtime"))
    out = tmp_path / "run.agenttop"
    engine = f"http://127.0.0.1:{free_port()}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "agenttop", "run", "human", "--agents", "1", "--headless"),
            *("--for", "5m", "--url", engine, "--out", str(out)),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{engine} cannot take load" in done.stderr.splitlines()[-1]
    assert out.exists()
