"""Servers of a front, found by the process tree: over a made-up /proc, and a real child."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agenttop.collect.children import children_of, port_of
from agenttop.collect.process import Command, ServerProcess
from tests.waiting import until

_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class Proc:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/net").mkdir(parents=True)
        self._lines: list[str] = []
        self._inode = 100

    def process(
        self, pid: int, parent: int, *argv: str, name: str = "x", user: int = 1000, environment: str = ""
    ) -> None:
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cmdline").write_bytes("\0".join([*argv, ""]).encode())
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1 4194560\n")
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (folder / "environ").write_bytes(environment.encode())

    def listens(self, pid: int | None, port: int, address: str = "0100007F", user: int = 1000) -> None:
        self._inode += 1
        self._lines.append(
            f"   0: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {user}"
            f"        0 {self._inode} 1 0000000000000000 100 0 0 10 0\n"
        )
        (self.root / "proc/net/tcp").write_text(_HEAD + "".join(self._lines))
        if pid is not None:
            (self.root / "proc" / str(pid) / "fd" / "3").symlink_to(f"socket:[{self._inode}]")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    made.process(10, 1, "ollama", "serve")
    made.listens(10, 11434)
    return made


def test_children_and_theirs_that_listen_where_they_say(proc: Proc) -> None:
    proc.process(11, 10, "llama-server", "--port", "5001", "-np", "2", name="a) (b")
    proc.listens(11, 5001)
    proc.process(12, 10, "bash", "-c", "llama-server --port 5002")
    proc.process(13, 12, "llama-server", "--port=5002")
    proc.listens(13, 5002, "00000000")
    found = children_of(10, proc.root)
    assert [(each.pid, port_of(each)) for each in found] == [(11, 5001), (13, 5002)]


@pytest.mark.parametrize(
    "how", ["no port", "not listening", "another's port", "another's child", "elsewhere"]
)
def test_what_is_no_server_of_the_front(proc: Proc, how: str) -> None:
    parent = 1 if how == "another's child" else 10
    port = [] if how == "no port" else ["--port", "5001"]
    proc.process(11, parent, "llama-server", *port)
    if how == "another's port":
        proc.process(20, 1, "nginx")
        proc.listens(11, 6000)
        proc.listens(20, 5001)
    elif how == "elsewhere":
        proc.listens(11, 5001, "0A00000A")
    elif how != "not listening":
        proc.listens(11, 5001)
    assert children_of(10, proc.root) == ()


def test_only_variables_that_its_kind_names(proc: Proc) -> None:
    proc.process(
        11, 10, "llama-server", "--port", "5001", environment="SECRET=x\0LLAMA_ARG_N_PARALLEL=3\0HF_TOKEN=y\0"
    )
    proc.listens(11, 5001)
    proc.process(12, 10, "something", "--port", "5002", environment="SECRET=x\0")
    proc.listens(12, 5002)
    first, second = children_of(10, proc.root)
    assert dict(first.environment) == {"LLAMA_ARG_N_PARALLEL": "3"}
    assert dict(second.environment) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can stand for another user")
def test_where_sockets_may_not_be_seen_the_owner_has_to_do(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agenttop.collect.procfs.may_see_sockets", lambda *_: False)
    proc.process(11, 10, "llama-server", "--port", "5001", user=970)
    proc.listens(None, 5001, user=970)
    proc.process(12, 10, "llama-server", "--port", "5002", user=970)
    proc.listens(None, 5002, user=0)
    assert [each.pid for each in children_of(10, proc.root)] == [11]


def test_a_circle_of_parents_ends(proc: Proc) -> None:
    proc.process(11, 12, "a")
    proc.process(12, 11, "b")
    assert children_of(11, proc.root) == ()
    assert children_of(99, proc.root) == ()
    assert children_of(99, proc.root / "nothing") == ()


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        (["s", "--port", "80"], 80),
        (["s", "--port=81"], 81),
        (["s", "--port", "0"], None),
        (["s", "--port", "99999"], None),
        (["s", "--port", "x"], None),
        (["s"], None),
    ],
)
def test_ports(argv: list[str], port: int | None) -> None:
    assert port_of(ServerProcess(pid=1, command=Command(argv))) == port


def test_a_real_child() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        server.set_inheritable(True)
        wait = "import sys; sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", wait, "--port", str(port)],
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
        )
        try:
            # Until it runs its own program, a new process has the command line of this one.
            until(lambda: children_of(os.getpid()))
            assert [(each.pid, port_of(each)) for each in children_of(os.getpid())] == [(child.pid, port)]
        finally:
            child.communicate()
    assert children_of(os.getpid()) == ()
