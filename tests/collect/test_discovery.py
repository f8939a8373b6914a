"""Engines on this host: by process, by port, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agenttop.collect import discovery, procfs
from agenttop.collect.discovery import Finder, find_engines, process_at
from agenttop.collect.engine import recognise
from agenttop.collect.engine.kinds.llamacpp import KIND
from agenttop.collect.engine.kinds.llamacpp.arguments import read_arguments
from agenttop.collect.hints import kind_of, port_in
from agenttop.collect.process import Command
from tests import hostile
from tests.collect import imitations as imitate
from tests.servers import LlamaServer, free_port
from tests.waiting import until


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("llama-server -m x.gguf --port 8081", "llama.cpp"),
        ("/opt/llama.cpp/build/bin/llama-server -m x", "llama.cpp"),
        (r"C:\llama\llama-server.exe -m x", "llama.cpp"),
        ("python -m agenttop.demo.server --model x", "llama.cpp"),
        ("/usr/bin/python3.12 -m llama_cpp.server", "llama-cpp-python"),
        ("/usr/bin/python3 /usr/local/bin/vllm serve Qwen/Qwen3-8B", "vLLM"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "vLLM"),
        ("VLLM::APIServer_0", "vLLM"),
        ("python -m sglang.launch_server --model-path x", "SGLang"),
        ("/usr/local/bin/ollama serve", "Ollama"),
        ("text-generation-launcher --model-id x", "TGI"),
        ("python koboldcpp.py x.gguf", "KoboldCpp"),
        ("llama-swap --config x", "llama-swap"),
        ("mlx_lm.server --model x", "mlx_lm"),
        # no engines
        ("", None),
        ("vim llama-server.log", None),
        ("tail -f /var/log/llama-server", None),
        ("agenttop --url http://127.0.0.1:8080", None),
        ("python -m agenttop.node --url x", None),
        ("python -m agenttop node", None),
        ("grep llama-server", None),
        ("python manage.py runserver 8000", None),
        ("VLLM::EngineCore", None),
    ],
)
def test_command_lines(command: str, name: str | None) -> None:
    kind = kind_of(Command(command.split(" ") if command else []))
    assert (kind.name if kind else None) == name


@pytest.mark.parametrize(
    ("command", "port"),
    [("x --port 81", 81), ("x --port=82", 82), ("x --port 0", None), ("x --port", None), ("x", None)],
)
def test_ports_in_command_lines(command: str, port: int | None) -> None:
    assert port_in(Command(command.split(" ")), KIND) == port


@pytest.mark.engine
def test_a_real_server_is_found_with_its_process(start_llama: Callable[..., LlamaServer]) -> None:
    server = start_llama(unified=True, context=1024, sleep_idle_s=60)
    found = {each.url: each for each in find_engines()}
    assert server.url in found
    engine = found[server.url]
    assert (engine.hint, engine.pid) == ("llama.cpp", server.pid)
    process = process_at(server.url)
    assert process is not None
    assert process.pid == server.pid
    arguments = read_arguments(process.command.words, process.environment)
    assert (arguments.context, arguments.unified, arguments.sleep_idle_s) == (1024, True, 60)
    server.stop()
    assert server.url not in {each.url for each in find_engines()}
    assert process_at(server.url) is None


def test_a_server_of_this_process_is_not_taken_for_an_engine() -> None:
    with hostile.llama_like() as server:
        assert server.url not in {each.url for each in find_engines()}
        assert process_at(server.url) is None
        assert server.asked == []


def test_a_usual_port_is_asked_once_per_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports that no visible process of an engine holds: a container's, another user's."""
    monkeypatch.setattr(recognise, "_ANSWER_S", 0.5)
    with imitate.serves(imitate.VLLM) as vllm, hostile.html_page() as page, hostile.not_http() as other:
        monkeypatch.setattr(discovery, "USUAL_PORTS", (vllm.port, page.port, other.port))
        finder = Finder()
        for _ in range(3):
            found = {each.url: each for each in finder.find()}
            assert found[vllm.url].hint == "vLLM"
            assert not {page.url, other.url} & set(found)
        assert len(vllm.asked) == len(set(vllm.asked))
        assert len(page.asked) == len(set(page.asked))
        assert all(line.startswith("GET ") for line in vllm.asked + page.asked)
        asked = len(page.asked)
        assert Finder().find()
        assert len(page.asked) == 2 * asked  # another finder has its own memory


def test_a_loading_engine_at_a_usual_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile.loading() as server:
        monkeypatch.setattr(discovery, "USUAL_PORTS", (server.port,))
        assert {each.url: each.hint for each in Finder().find()}[server.url] == "llama.cpp"


def test_ports_of_an_engine_for_its_own_workers_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text(
        "import socket, sys\n"
        "held = [socket.create_server(('127.0.0.1', int(port))) for port in sys.argv[1:3]]\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    serving, worker = free_port(), free_port()
    command = [sys.executable, str(script), str(worker), str(serving), "--port", str(serving)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        found = {each.url: each for each in find_engines()}
        assert found[f"http://127.0.0.1:{serving}"].hint == "vLLM"
        assert f"http://127.0.0.1:{worker}" not in found
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_listeners_of_this_host() -> None:
    with hostile.llama_like() as server:
        mine = [each for each in procfs.listeners() if each.port == server.port]
        assert [each.address for each in mine] == ["127.0.0.1"]
        assert mine[0].inode in procfs.sockets_of(os.getpid())
    assert procfs.sockets_of(2**30) == set()


def test_addresses_as_the_kernel_prints_them(tmp_path: Path) -> None:
    folder = tmp_path / "proc/net"
    folder.mkdir(parents=True)
    head = "  sl  local_address rem_address   st\n"
    rest = "00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100 0 0 10 0\n"
    (folder / "tcp").write_text(
        head
        + "   0: 0100007F:1F90 00000000:0000 0A " + rest.format(11)
        + "   1: 00000000:0050 00000000:0000 0A " + rest.format(12)
        + "   2: 0100007F:1F91 0100007F:1F90 01 " + rest.format(13)
        + "   3: broken\n"
    )  # fmt: skip
    zeros = "0" * 32
    (folder / "tcp6").write_text(
        head
        + f"   0: {zeros}:1F92 {zeros}:0000 0A " + rest.format(14)
        + f"   1: 00000000000000000000000001000000:1F93 {zeros}:0000 0A " + rest.format(15)
        + f"   2: 0000000000000000FFFF00000100007F:1F94 {zeros}:0000 0A " + rest.format(16)
    )  # fmt: skip
    assert [(each.address, each.port, each.inode) for each in procfs.listeners(tmp_path)] == [
        ("127.0.0.1", 8080, 11),
        ("0.0.0.0", 80, 12),
        ("::", 8082, 14),
        ("::1", 8083, 15),
        ("127.0.0.1", 8084, 16),
    ]
    assert procfs.listeners(tmp_path / "nowhere") == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_wanted_variables_of_a_process_are_read() -> None:
    environment = {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_API_KEY": "secret"}
    process = subprocess.Popen(["sleep", "60"], env=environment)
    try:
        found = until(lambda: procfs.environment(process.pid, {"LLAMA_ARG_CTX_SIZE"}))  # once it is started
        assert found == {"LLAMA_ARG_CTX_SIZE": "512"}
    finally:
        process.kill()
        process.wait()


def test_without_procfs_the_same_engine_is_found(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The way of macOS and Windows, here: psutil asks each process for its sockets."""
    server: LlamaServer = request.getfixturevalue("llama_server")
    monkeypatch.setattr(discovery, "_listening_linux", discovery._listening_psutil)
    assert server.url in {each.url for each in Finder().find()}
    process = process_at(server.url)
    assert process is not None
    assert process.pid == server.pid
