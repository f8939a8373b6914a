"""The demo engine from the outside: what it prints, how it fails, and that it never outlives its owner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agenttop.demo.engine import MODEL_NAME, DemoEngine, demo_model
from agenttop.demo.gguf import TINY
from agenttop.errors import AgenttopError
from agenttop.oslayer import child_environment
from tests.servers import LlamaServer
from tests.waiting import gone, until

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine_needed")]


@pytest.fixture
def model(model_cache: Path) -> Path:
    return demo_model(model_cache, TINY)


def spawn_server(*words: str | Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "agenttop.demo.server", *map(str, words)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=child_environment())


def test_stdout_is_one_line_of_json_and_the_log_goes_to_its_file(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with spawn_server("--model", model, "--log", log) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert server.stderr is not None
        report = json.loads(server.stdout.readline())
        assert report == {
            "port": report["port"],
            "pid": server.pid,
            "url": f"http://127.0.0.1:{report['port']}",
        }
        socket.create_connection(("127.0.0.1", report["port"])).close()
        server.stdin.close()
        assert server.wait(10) == 0
        assert server.stdout.read() == ""
        assert server.stderr.read() == ""
    assert "listening" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_server_in_order(model: Path, number: signal.Signals) -> None:
    with spawn_server("--model", model) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.send_signal(number)
        assert server.wait(10) == 0


def test_a_server_without_the_wheel_says_what_to_install(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with spawn_server("--model", model) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.wait(10) == 1
        assert server.stdout.read() == ""
        assert server.stderr.read() == (
            "llama.cpp is missing: there is no xllamacpp package (pip install 'agenttop[demo]')\n"
        )


def test_the_engine_answers_at_its_url_and_is_gone_after_stop(model: Path) -> None:
    with DemoEngine.start(model, threads=1) as engine:
        assert engine.running
        pid = engine.pid
        assert any("listening" in line for line in engine.log_tail)
    assert not engine.running
    assert gone(pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", engine.port))
    engine.stop()


def test_a_frozen_engine_is_stopped_too(model: Path) -> None:
    engine = DemoEngine.start(model, threads=1)
    os.kill(engine.pid, signal.SIGSTOP)
    engine.stop(timeout_s=0.2)
    assert gone(engine.pid)


def test_the_model_reports_what_it_is(llama_server: LlamaServer) -> None:
    assert llama_server.json("/v1/models")["data"][0]["id"] == MODEL_NAME
    assert llama_server.json("/props")["total_slots"] == 4


def test_a_killed_owner_takes_the_engine_along(model: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from agenttop.demo.engine import DemoEngine\n"
        "engine = DemoEngine.start(Path(sys.argv[1]), threads=1)\n"
        "print(engine.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, model], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
        until(lambda: gone(pid), what="the end of the orphan engine")


def test_the_engine_has_a_session_of_its_own(llama_server: LlamaServer) -> None:
    assert os.getsid(llama_server.pid) == llama_server.pid


def test_a_taken_port_is_named(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AgenttopError, match=f"couldn't bind.*{port}"):
            DemoEngine.start(model, port=port)


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("<html>404</html>")
    with pytest.raises(AgenttopError, match=r"did not start, exit code 1 .*its log says: .*(magic|load)"):
        DemoEngine.start(tmp_path / "model.gguf")
    with pytest.raises(AgenttopError, match="there is no model file"):
        DemoEngine.start(tmp_path / "absent.gguf")


def test_too_little_time_is_said_and_leaves_no_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def remember(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        spawned.append(real(*arguments, **options))  # type: ignore[call-overload]
        return spawned[-1]

    monkeypatch.setattr("agenttop.child.subprocess.Popen", remember)
    with pytest.raises(AgenttopError, match="took too long to start"):
        DemoEngine.start(model, timeout_s=0.0)
    assert len(spawned) == 1
    assert spawned[0].poll() is not None


def test_the_model_is_written_once(tmp_path: Path) -> None:
    path = demo_model(tmp_path, TINY)
    written = path.stat().st_mtime_ns
    assert demo_model(tmp_path, TINY) == path
    assert path.stat().st_mtime_ns == written
