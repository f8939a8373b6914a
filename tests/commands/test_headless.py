"""Runs without a console."""

import os
import subprocess
import sys

from agenttop.commands.doors import running
from agenttop.model.clock import SystemClock
from agenttop.model.commands import StopAll
from agenttop.stream.lines import AttachSource
from tests.servers import free_port
from tests.waiting import until


def test_a_run_whose_agents_are_stopped_from_elsewhere_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path / "runtime"))
    out = tmp_path / "run.agenttop"
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "agenttop", "run", "human", "--headless", "--for", "5m"),
            *("--url", f"http://127.0.0.1:{free_port()}", "--out", str(out)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        door = until(running)[0]
        console = AttachSource(door, SystemClock())
        until(lambda: any(getattr(f, "event", "") == "run.level" for f in console.take().frames))
        console.send(StopAll())
        _, said = run.communicate(timeout=30)
        console.close()
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 1
    assert said.splitlines()[-1] == "agenttop: the run was stopped before its end"
