"""Ports that containers publish: command lines of those who forward them, and the API behind a socket."""

from __future__ import annotations

import contextlib
import json
import shlex
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenttop.collect import containers
from agenttop.collect.containers import ContainerApi, Published, ask, belongs, forwarded, sockets
from agenttop.collect.process import Command
from agenttop.oslayer import WINDOWS

pytestmark = pytest.mark.skipif(WINDOWS, reason="Unix sockets")

VLLM = {
    "Id": "0a1b",
    "Names": ["/my-vllm"],
    "Image": "vllm/vllm-openai:latest",
    "Ports": [
        {"IP": "0.0.0.0", "PrivatePort": 8000, "PublicPort": 8001, "Type": "tcp"},
        {"IP": "::", "PrivatePort": 8000, "PublicPort": 8001, "Type": "tcp"},
        {"PrivatePort": 9000, "Type": "tcp"},
        {"IP": "127.0.0.1", "PrivatePort": 53, "PublicPort": 5353, "Type": "udp"},
    ],
}


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Stands in for Docker: answers every request with the same bytes and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, path: Path, answer: bytes, delay_s: float = 0.0, drips: bytes = b"") -> None:
        self.asked: list[str] = []
        self.answer, self.delay_s, self.drips = answer, delay_s, drips
        super().__init__(str(path), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: Daemon

    def handle(self) -> None:
        line = self.rfile.readline().decode().strip()
        while self.rfile.readline().strip():
            pass
        self.server.asked.append(line)
        time.sleep(self.server.delay_s)
        with contextlib.suppress(OSError):  # it has not been waited for
            self.wfile.write(self.server.answer)
            for _ in range(60 if self.server.drips else 0):
                time.sleep(0.1)
                self.wfile.write(self.server.drips)


def json_reply(body: Any, status: str = "200 OK") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    made: list[Daemon] = []

    def start(answer: bytes, **more: Any) -> Daemon:
        path = tmp_path / "docker.sock"
        made.append(Daemon(path, answer, **more))
        threading.Thread(target=made[-1].serve_forever, args=(0.02,), daemon=True).start()
        return made[-1]

    yield start
    for each in made:
        each.shutdown()
        each.server_close()


def test_the_list_of_containers_and_nothing_else_is_asked_for(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    server = daemon(json_reply([VLLM]))
    found = ask(tmp_path / "docker.sock")
    one = Published(
        address="", port=8001, container_port=8000, image="vllm/vllm-openai:latest", name="my-vllm"
    )
    assert found == [one, one]  # over IPv4 and IPv6
    assert server.asked == ["GET /containers/json HTTP/1.1"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not HTTP\r\n\r\n",
        json_reply({"message": "no"}, "403 Forbidden"),
        json_reply(b"not JSON"),
        json_reply({"an": "object"}),
        json_reply([1, 2]),
        json_reply(b"[" * 100_000),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[",
    ],
)
def test_a_daemon_that_answers_something_else(
    daemon: Callable[..., Daemon], tmp_path: Path, answer: bytes
) -> None:
    daemon(answer)
    assert ask(tmp_path / "docker.sock") is None


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"Names": None, "Ports": None},
        {"Names": [3], "Ports": [None, 3, {}, {"PublicPort": "80", "PrivatePort": 80}]},
        {"Ports": [{"PublicPort": 0, "PrivatePort": 80}, {"PublicPort": 70000, "PrivatePort": 80}]},
        {"Ports": {"80/tcp": 1}},
    ],
)
def test_odd_containers_are_left_out(daemon: Callable[..., Daemon], tmp_path: Path, odd: Any) -> None:
    daemon(json_reply([odd, VLLM]))
    assert [each.port for each in ask(tmp_path / "docker.sock") or []] == [8001, 8001]


def test_one_that_hangs_is_not_waited_for(
    daemon: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "ANSWER_S", 0.1)
    daemon(json_reply([VLLM]), delay_s=3.0)
    assert ask(tmp_path / "docker.sock") is None
    assert ask(tmp_path / "nowhere.sock") is None


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n["], ids=["in its head", "in its list"])
def test_one_that_never_comes_to_an_end_is_not_waited_for(
    daemon: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(containers, "ANSWER_S", 0.3)
    daemon(head, drips=b" ")
    begun = time.monotonic()
    assert ask(tmp_path / "docker.sock") is None
    assert time.monotonic() - begun < 2.0


def test_it_is_asked_only_while_containers_run_and_when_they_have_changed(
    daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    server = daemon(json_reply([VLLM]))
    api = ContainerApi({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}, root=tmp_path / "nowhere")
    assert api.published(frozenset()) == []
    assert server.asked == []
    for _ in range(3):
        assert len(api.published(frozenset({7}))) == 2
    assert len(server.asked) == 1
    server.answer = json_reply([])
    assert api.published(frozenset({7, 8})) == []
    assert len(server.asked) == 2
    assert api.published(frozenset()) == []
    assert len(server.asked) == 2


def test_a_socket_that_is_not_permitted(
    daemon: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = daemon(json_reply([VLLM]))
    monkeypatch.setattr(containers.os, "access", lambda *_: False)
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}
    [found] = sockets(environment, tmp_path / "nowhere")
    assert (found.engine, found.permitted) == ("Docker", False)
    assert ContainerApi(environment, tmp_path / "nowhere").published(frozenset({7})) == []
    assert server.asked == []


def test_where_the_sockets_are(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon(json_reply([]))
    (tmp_path / "run/podman").mkdir(parents=True)
    (tmp_path / "run/podman/podman.sock").symlink_to(tmp_path / "docker.sock")
    (tmp_path / "run/docker.sock").write_text("no socket")
    assert [each.engine for each in sockets({}, tmp_path)] == ["Podman"]
    both = sockets({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}, tmp_path)
    assert [each.engine for each in both] == ["Docker"]  # the same socket once
    assert sockets({"DOCKER_HOST": "tcp://127.0.0.1:2375"}, tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("command", "ports"),
    [
        (
            "/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8001 -container-ip 172.17.0.2"
            " -container-port 8000 -use-listen-fd",
            [("", 8001, 8000)],
        ),
        (
            "docker-proxy -proto tcp -host-ip 127.0.0.1 -host-port 11435 -container-port 11434",
            [("127.0.0.1", 11435, 11434)],
        ),
        ("docker-proxy -proto udp -host-ip 0.0.0.0 -host-port 53 -container-port 53", []),
        ("docker-proxy -proto tcp -host-port x -container-port 80", []),
        ("pasta --config-net -t 8001-8002:8000-8001 -T none", [("", 8001, 8000), ("", 8002, 8001)]),
        ("pasta.avx2 -t 127.0.0.1/8080:80 -u none", [("127.0.0.1", 8080, 80)]),
        ("pasta -t 3000", [("", 3000, 3000)]),
        ("pasta -t auto,~80", []),
        ("slirp4netns --disable-host-loopback 123 tap0", []),
        ("vllm serve", []),
    ],
)
def test_forwarders_name_their_ports(command: str, ports: list[tuple[str, int, int]]) -> None:
    found = forwarded(Command(shlex.split(command)))
    assert [(each.address, each.port, each.container_port) for each in found] == ports


@pytest.mark.parametrize(
    ("command", "theirs"),
    [
        ("docker-proxy -proto tcp", True),
        ("/usr/bin/containerd-shim-runc-v2 -namespace moby -id 0a1b", True),
        ("/usr/bin/conmon --api-version 1 -c 0a1b", True),
        ("containers-rootlessport", True),
        ("wslrelay.exe --mode 2", True),
        ("dockerd -H fd://", False),  # there may be no container
        ("vim conmon.c", False),
    ],
)
def test_who_runs_or_forwards_for_containers(command: str, theirs: bool) -> None:
    assert belongs(Command(shlex.split(command))) is theirs
