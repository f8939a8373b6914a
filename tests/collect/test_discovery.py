"""Engines on this host: by process, by port, and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agenttop.collect import discovery, hints, listening, procfs, sockdiag
from agenttop.collect.containers import Published
from agenttop.collect.discovery import Finder, Found, find_engines, process_at
from agenttop.collect.engine import recognise
from agenttop.collect.engine.kinds.llamacpp.arguments import read_arguments
from agenttop.collect.engine.registry import Registry, registry
from agenttop.collect.hints import judge
from agenttop.collect.listening import EngineProcess, Port, Scene
from agenttop.collect.process import Command
from tests import hostile
from tests.collect import imitations as imitate
from tests.servers import LlamaServer, free_port
from tests.simulated import Simulated
from tests.waiting import until


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


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says which ports are usual, in place of those that others on this host may use."""
    monkeypatch.setattr(recognise, "_ANSWER_S", 0.5)

    def are(*ports: int) -> None:
        monkeypatch.setattr(discovery, "usual_ports", lambda: frozenset(ports))

    return are


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


NOBODY = -1


def test_a_usual_port_is_asked_once_per_socket(usual: Callable[..., None]) -> None:
    """Ports that no visible process of an engine holds: a container's, another user's."""
    with imitate.serves(imitate.VLLM) as vllm, hostile.html_page() as page, hostile.not_http() as other:
        usual(vllm.port, page.port, other.port)
        time = Time()
        finder = Finder(time, own=NOBODY)
        for _ in range(4):
            found = {each.url: each for each in finder.find()}
            assert found[vllm.url].hint == "vLLM"
            assert not {page.url, other.url} & set(found)
            time.now += 100.0
        assert len(vllm.asked) == len(set(vllm.asked))
        assert len(page.asked) == len(set(page.asked))
        assert all(line.startswith("GET ") for line in vllm.asked + page.asked)
        asked = len(page.asked)
        assert Finder(own=NOBODY).find()
        assert len(page.asked) == 2 * asked  # another finder has its own memory


def test_what_is_known_comes_before_ports_are_asked(usual: Callable[..., None]) -> None:
    early: list[list[Found]] = []
    with hostile.stalls() as server:
        usual(server.port)
        finder = Finder(own=NOBODY)
        known = finder.find(early.append)
        assert early == [known]
        finder.find(early.append)
        assert len(early) == 1  # it is not asked again at once


def test_a_port_without_a_verdict_is_asked_again_less_and_less(
    usual: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's forwarder takes connections before the engine in it has loaded its model."""
    with hostile.HostileServer(hostile._read_request) as server:
        usual(server.port)
        time = Time()
        finder = Finder(time, own=NOBODY)
        finder.find()
        once = len(server.asked)
        assert once > 0
        finder.find()
        assert len(server.asked) == once
        for _ in range(8):
            time.now += 60.0
            finder.find()
        assert len(server.asked) > 7 * once
    monkeypatch.setattr(discovery, "_SILENT_TIMES", 2)
    with hostile.stalls() as server:
        usual(server.port)
        time = Time()
        finder = Finder(time, own=NOBODY)
        for _ in range(6):
            finder.find()
            time.now += 60.0
        assert len(server.asked) <= 2 * 2  # one that says nothing is let be


def test_a_loading_engine_at_a_usual_port_is_found(usual: Callable[..., None]) -> None:
    with hostile.loading() as server:
        usual(server.port)
        assert {each.url: each.hint for each in Finder(own=NOBODY).find()}[server.url] == "llama.cpp"


def test_a_server_of_this_process_at_a_usual_port_is_not_asked(usual: Callable[..., None]) -> None:
    with hostile.loading() as server:
        usual(server.port)
        assert server.url not in {each.url for each in Finder().find()}
        assert server.asked == []


def test_processes_are_looked_through_only_when_other_sockets_listen(
    usual: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual()
    looks: list[int] = []
    sockets = [procfs.Listener("127.0.0.1", 1, 1)]
    monkeypatch.setattr(procfs, "listeners", lambda: list(sockets))
    monkeypatch.setattr(listening.Looker, "look", lambda self: looks.append(1) or listening.Scene())
    monkeypatch.setattr(discovery.sys, "platform", "linux")
    time = Time()
    finder = Finder(time)
    for _ in range(3):
        finder.find()
    assert len(looks) == 1
    sockets.append(procfs.Listener("127.0.0.1", 2, 2))
    finder.find()
    assert len(looks) == 2
    time.now += discovery.LOOK_AT_ALL_S
    finder.find()
    assert len(looks) == 3


# What belongs to whom, without processes


def process(
    pid: int, command: str, *sockets: int, parents: tuple[int, ...] = (), **more: Any
) -> EngineProcess:
    words = Command(command.split(" "))
    judged = judge(words)
    assert judged is not None
    held = more.pop("held", frozenset(sockets))
    return EngineProcess(pid=pid, command=words, judged=judged, ancestors=parents, sockets=held, **more)


def scene(ports: list[tuple[str, int, int]], *engines: EngineProcess, **more: Any) -> Scene:
    """`ports`: address, port, socket."""
    return Scene(
        ports=tuple(Port(address, port, number, 0) for address, port, number in ports),
        engines={each.pid: each for each in engines},
        **more,
    )


def by_process(seen: Scene) -> list[tuple[str, str, int | None]]:
    return [(each.url, each.hint, each.pid) for each in discovery._by_process(seen)]


def test_several_api_servers_at_one_port_are_one_engine() -> None:
    inherited = scene(
        [("0.0.0.0", 9000, 1), ("127.0.0.1", 41000, 2)],
        process(20, "VLLM::APIServer_0", 1, 2, parents=(10,)),
        process(21, "VLLM::APIServer_1", 1, parents=(10,)),
        process(10, "vllm serve x --port 9000 --api-server-count 2", 1),
    )
    assert by_process(inherited) == [("http://127.0.0.1:9000", "vLLM", 10)]
    own_sockets = scene(  # SO_REUSEPORT
        [("127.0.0.1", 9000, 1), ("127.0.0.1", 9000, 2), ("127.0.0.1", 41000, 3)],
        process(20, "VLLM::APIServer_0", 1, 3, parents=(10,)),
        process(21, "VLLM::APIServer_1", 2, parents=(10,)),
        process(10, "python3 /usr/bin/vllm serve x --port 9000"),
    )
    assert by_process(own_sockets) == [("http://127.0.0.1:9000", "vLLM", 20)]


def test_what_starts_a_server_keeps_its_own_ports() -> None:
    seen = scene(
        [("127.0.0.1", 8000, 1), ("127.0.0.1", 50001, 2)],
        process(10, "mpirun -n 2 trtllm-serve x", 2),
        process(11, "python3 /usr/bin/trtllm-serve x", 1, parents=(10,)),
    )
    assert by_process(seen) == [("http://127.0.0.1:8000", "TensorRT-LLM", 11)]


def test_two_engines_on_one_port_over_ipv4_and_ipv6_are_two() -> None:
    two = scene(
        [("127.0.0.1", 8080, 1), ("::1", 8080, 2)],
        process(10, "llama-server", 1),
        process(11, "llama-server", 2),
    )
    assert by_process(two) == [
        ("http://127.0.0.1:8080", "llama.cpp", 10),
        ("http://[::1]:8080", "llama.cpp", 11),
    ]
    everywhere = scene(
        [("0.0.0.0", 8080, 1), ("::", 8080, 2)],
        process(10, "llama-server", 1),
        process(11, "llama-server", 2),
    )
    assert [url for url, _, _ in by_process(everywhere)] == ["http://127.0.0.1:8080", "http://[::1]:8080"]
    one = scene([("127.0.0.1", 8080, 1), ("::1", 8080, 2)], process(10, "llama-server", 1, 2))
    assert by_process(one) == [("http://127.0.0.1:8080", "llama.cpp", 10)]


def test_each_address_has_its_own_engine() -> None:
    seen = scene(
        [("127.0.0.1", 8080, 1), ("127.0.0.2", 8080, 2), ("192.168.1.5", 8080, 3), ("fe80::1", 8080, 4)],
        *(process(10 + number, "llama-server", number) for number in (1, 2, 3, 4)),
    )
    assert [url for url, _, _ in by_process(seen)] == [
        "http://127.0.0.1:8080",
        "http://127.0.0.2:8080",
        "http://192.168.1.5:8080",
    ]


def test_https_and_a_path_as_the_command_line_says() -> None:
    seen = scene(
        [("127.0.0.1", 8000, 1), ("127.0.0.1", 8080, 2)],
        process(10, "vllm serve x --ssl-keyfile k --ssl-certfile c", 1),
        process(11, "llama-server --api-prefix /engines/a/", 2),
    )
    assert [url for url, _, _ in by_process(seen)] == [
        "https://127.0.0.1:8000",
        "http://127.0.0.1:8080/engines/a",
    ]


def test_a_server_that_a_front_has_started_is_the_fronts_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    front = msgspec.structs.replace(registry().named("Ollama"), reads_children=True)
    kinds = tuple(front if each.name == "Ollama" else each for each in registry().kinds)
    monkeypatch.setattr(hints, "registry", lambda: Registry(kinds))
    monkeypatch.setattr(discovery, "usual_ports", lambda: frozenset({41000}))
    child = "llama-server --port 41000 --offline"
    seen = scene(
        [("127.0.0.1", 11434, 1), ("127.0.0.1", 41000, 2)],
        process(10, "ollama serve", 1),
        process(30, child, 2, parents=(20, 10)),
    )
    found = {each.url: each.behind for each in discovery._by_process(seen)}
    assert found == {"http://127.0.0.1:11434": None, "http://127.0.0.1:41000": "http://127.0.0.1:11434"}
    # Another user's: nothing of it can be seen but the command lines.
    hidden = scene(
        [("127.0.0.1", 11434, 1), ("127.0.0.1", 41000, 2)],
        process(10, "ollama serve", held=None, user=0),
        process(30, child, held=None, user=0, parents=(20, 10)),
    )
    assert by_process(hidden) == []
    asked = discovery._candidates(hidden, [], [])
    assert [(each.url, each.pid) for each in asked] == [("http://127.0.0.1:11434", 10)]


def candidates(seen: Scene, *published: Published) -> list[tuple[str, str | None]]:
    return [(each.url, each.hint) for each in discovery._candidates(seen, [], published)]


def test_another_users_engine_is_asked_where_its_command_line_says(usual: Callable[..., None]) -> None:
    usual()
    ports = [("127.0.0.1", 9123, 1), ("127.0.0.1", 9124, 2), ("192.168.1.5", 9123, 3)]
    one = process(10, "vllm serve x --port 9123", held=None, user=0)
    assert candidates(scene(ports, one)) == [("http://127.0.0.1:9123", None)]
    other_user = process(10, "vllm serve x --port 9123", held=None, user=7)
    assert candidates(scene(ports, other_user)) == []
    twice = process(11, "vllm serve y --port 9123", held=None, user=0)  # in containers of their own
    assert candidates(scene(ports, one, twice)) == []


def test_ports_that_containers_publish(usual: Callable[..., None]) -> None:
    usual(8000)
    ports = [("0.0.0.0", 9001, 1), ("::", 9001, 2), ("127.0.0.1", 5432, 3), ("192.168.1.5", 9002, 4)]

    def at(port: int, inner: int, image: str = "", address: str = "") -> Published:
        return Published(address=address, port=port, container_port=inner, image=image)

    seen = scene(ports)
    assert candidates(seen) == []
    assert candidates(seen, at(9001, 8000)) == [("http://127.0.0.1:9001", None)]
    assert candidates(seen, at(9001, 8000, "vllm/vllm-openai")) == [("http://127.0.0.1:9001", "vLLM")]
    assert candidates(seen, at(5432, 5432, "postgres:16")) == []
    assert candidates(seen, at(9001, 9999, "vllm/vllm-openai")) == []  # not its API
    assert candidates(seen, at(9002, 8000, address="192.168.1.5")) == []  # loopback alone is asked
    # The kernel forwards it, and nothing listens.
    assert candidates(seen, at(9003, 8000, "vllm/vllm-openai")) == [("http://127.0.0.1:9003", "vLLM")]
    assert candidates(seen, at(9003, 8000, "nginx")) == []


def test_an_engine_in_a_container_is_shown_while_it_loads(
    usual: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual()
    with hostile.closes() as server:
        published = Published(address="", port=server.port, container_port=8000, image="vllm/vllm-openai")
        monkeypatch.setattr(discovery.ContainerApi, "published", lambda self, processes: [published])
        found = {each.url: each.hint for each in Finder(own=NOBODY).find()}
        assert found[server.url] == "vLLM"
    with hostile.html_page() as server:
        published = Published(address="", port=server.port, container_port=8000, image="vllm/vllm-openai")
        assert server.url not in {each.url for each in Finder(own=NOBODY).find()}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_forwarder_is_seen_with_its_port(usual: Callable[..., None]) -> None:
    usual(8000)
    with imitate.serves(imitate.VLLM) as server:
        command = ["docker-proxy", "-c", "print('up', flush=True); import sys; sys.stdin.read()"]
        command += ["-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", str(server.port)]
        command += ["-container-ip", "172.17.0.2", "-container-port", "8000"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, executable=sys.executable, stdin=pipe, stdout=pipe) as forwarder:
            assert forwarder.stdout is not None
            assert forwarder.stdout.readline() == b"up\n"
            found = {each.url: each.hint for each in Finder(own=NOBODY).find()}
            forwarder.communicate()
        assert found[server.url] == "vLLM"


def test_names_that_lead_to_an_engine() -> None:
    names = frozenset({"localhost", "127.0.0.1", "box", "192.168.1.5"})
    here = Found(url="http://127.0.0.1:8000", hint="vLLM")
    assert here.is_at("https://localhost:8000", names)
    assert not here.is_at("http://192.168.1.5:8000", names)
    assert not here.is_at("http://127.0.0.1:8001", names)
    assert not here.is_at("http://[::1]:8000", names)
    assert Found(url="http://192.168.1.5:8000", hint="vLLM").is_at("http://192.168.1.5:8000/v2", names)


@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
def test_a_simulated_engine_is_found(start_sim: Callable[..., Simulated], wire: str) -> None:
    server = start_sim(wire=wire)
    found = {each.url: each for each in find_engines()}
    assert found[server.url].pid == server.pid


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


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_kernel_tells_the_same_as_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = sockdiag.listeners()
    if asked is None:
        pytest.skip("not to be had here")
    with socket.create_server(("127.0.0.1", 0)) as four, socket.socket(socket.AF_INET6) as six:
        six.bind(("::1", 0))
        six.listen()
        mine = {four.getsockname()[:2], six.getsockname()[:2]}
        for each in (sockdiag.listeners(), procfs._listed(Path("/"))):
            assert each is not None
            told = {(one.address, one.port): one for one in each}
            assert mine <= set(told)
            inodes = {told[one].inode for one in mine}
            assert inodes <= procfs.sockets_of(os.getpid())
            assert {told[one].user for one in mine} == {os.geteuid()}
    monkeypatch.setattr(sockdiag, "_SOCK_DIAG", 4000)  # no such protocol
    assert sockdiag.listeners() is None
    assert procfs.listeners()


@pytest.mark.parametrize("data", [b"", b"x" * 7, b"\0" * 16, b"\4\0\0\0" * 40])
def test_an_answer_that_is_none_is_not_read_for_ever(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert list(sockdiag._messages(data)) == []


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
    psutil_only = lambda self: listening.look_psutil(self._own)  # noqa: E731
    monkeypatch.setattr(listening.Looker, "look", psutil_only)
    assert server.url in {each.url for each in Finder().find()}
    process = process_at(server.url)
    assert process is not None
    assert process.pid == server.pid
