"""Whole sessions with a key: behind TLS, and nowhere to be seen."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agenttop.access.entries import Entry
from agenttop.access.ways import Ways
from agenttop.model import commands as c
from agenttop.model.frames import EngineSample, Plan
from agenttop.node.director import Director
from agenttop.node.hub import Hub
from agenttop.oslayer import child_environment
from agenttop.record.read import Recording
from tests import hostile, tls
from tests.node.live import live

SECRET = "sk-Zm9vYmFy0123456789"
QUICK = str(Path(__file__).with_name("quick.toml"))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "the.key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def front(start_sim, tmp_path: Path) -> Iterator[tls.Terminator]:
    """A simulated engine that wants the key, behind TLS."""
    engine = start_sim(api_key_env="SIM_KEY", env={"SIM_KEY": SECRET})
    tls.ca_file(tmp_path)
    with tls.Terminator(engine.port) as terminator:
        yield terminator


def agenttop(*words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "agenttop", *words]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    )


def command_lines() -> dict[str, bytes]:
    """What `ps` shows of every process."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[process.name] = (process / "cmdline").read_bytes()
    return found


def holding(folder: Path, *, but: Path) -> list[str]:
    """Files with the secret in them."""
    files = [file for file in folder.rglob("*") if file.is_file() and file != but]
    return [file.name for file in files if SECRET.encode() in file.read_bytes()]


def test_a_run_with_a_key_from_a_file_shows_it_nowhere(
    front: tls.Terminator, key_file: Path, tmp_path: Path, private_places: Path
) -> None:
    out = tmp_path / "run.agenttop"
    words = ["--headless", "--json", "--agents", "2", "--for", "5s", "--out", str(out)]
    reach = ["--url", front.url, "--ca-file", str(tmp_path / "ca.pem"), "--api-key-file", str(key_file)]
    seen: dict[str, bytes] = {}
    process = agenttop("run", QUICK, *words, *reach)
    kept: list[str] = []
    while process.poll() is None:
        seen |= command_lines()
        kept += holding(private_places, but=key_file)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
    told, errors = process.communicate()
    assert json.loads(told)["levels"], errors
    recording = Recording(out)
    good = [turn for turn in recording.turns() if turn.error_kind is None]
    recording.close()
    assert good, errors
    assert not kept
    assert not holding(tmp_path, but=key_file)
    assert SECRET not in told + errors
    if sys.platform == "linux":
        lines = b"\n".join(seen.values())
        assert b"agenttop.agents.driver" in lines
        assert str(key_file).encode() in lines  # its name may be seen
        assert SECRET.encode() not in lines


def _quotes(_: hostile.HostileServer, connection: socket.socket) -> None:
    """Says no, and repeats what it was sent, as some gateways do."""
    while True:
        data = connection.recv(65536)
        if not data:
            return
        body = json.dumps({"error": {"message": f"wrong: {data.decode('latin-1')}"}}).encode()
        head = f"HTTP/1.1 401 No\r\nServer: x {SECRET}\r\nWWW-Authenticate: {SECRET}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.mark.parametrize("command", [["once"], ["once", "--json"], ["doctor"]])
def test_a_server_that_repeats_the_key_is_not_repeated(command: list[str], key_file: Path) -> None:
    with hostile.HostileServer(_quotes) as server:
        process = agenttop(*command, "--url", server.url, "--api-key-file", str(key_file))
        told, errors = process.communicate(timeout=60)
    assert SECRET not in told + errors
    assert "does not accept the key from" in " ".join(told.split()) or command == ["once"]


def test_what_a_server_repeats_is_in_no_frame(key_file: Path) -> None:
    with (
        hostile.HostileServer(_quotes) as server,
        live(urls=[server.url], api_key_file=key_file, record=False) as session,
    ):
        session.until(lambda: session.engine and session.engine.state == "unauthorised")
        assert f"does not accept the key from {key_file}" in session.engine.note
        assert SECRET not in repr(session.frames)


class _Orders:
    """In the place of the drivers."""

    def __init__(self) -> None:
        self.orders: list[c.DriverCommand] = []

    def send(self, *orders: c.DriverCommand) -> None:
        self.orders += orders


def test_the_agents_of_each_engine_get_its_own_key(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that was found and confirmed gets none: the one of the command line was not given for it."""
    monkeypatch.setenv("LINE_KEY", SECRET)
    named, own, found = "http://box2:8000", "http://box3:8000", "http://127.0.0.1:8000"
    entry = Entry(origin=own, where="x:1", api_key_file=str(key_file), ca_file=str(tls.ca_file(tmp_path)))
    director = Director(
        Hub(lambda: 0.0, None, None),
        lambda: 0.0,
        origin=0.0,
        ways=Ways([named, own], api_key_env="LINE_KEY", entries=[entry]),
        engine=lambda _: None,
        knows=lambda _: True,
        slot_of=lambda _: None,
    )
    driver = director._driver = _Orders()
    director._plan = Plan(t=0.0, engine=named, profile="x", settings={}, notes=[], seed=0, stagger_s=0.0)
    for url in (named, own, found):
        director._configure(EngineSample(t=0.0, engine=url, name="vLLM", url=url, state="ok"))
    told = [(order.api_key_env, order.api_key_file, order.ca_file) for order in driver.orders]
    assert told == [
        ("LINE_KEY", None, None),
        (None, str(key_file), str(tmp_path / "ca.pem")),
        (None, None, None),
    ]
    assert SECRET not in repr(driver.orders)


def _proxy(seen: list[str]) -> hostile.HostileServer:
    """An HTTP proxy that knows one llama.cpp server, whatever name it is asked for."""
    with hostile.llama_like() as server:
        idle = server._handler

    def answer(host: hostile.HostileServer, connection: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            while data := connection.recv(65536):
                method, target, rest = data.decode("latin-1").split(" ", 2)
                seen.append(f"{method} {target}")
                path = "/" + target.split("/", 3)[3]
                ours.sendall(f"{method} {path} {rest}".replace("keep-alive", "close").encode("latin-1"))
                ours.shutdown(socket.SHUT_WR)
                idle(host, theirs)
                theirs.shutdown(socket.SHUT_WR)
                while reply := ours.recv(65536):
                    connection.sendall(reply)
                return

    return hostile.HostileServer(answer)


def test_it_is_told_once_that_agents_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    url, seen = "http://box2.invalid:8000", []
    with _proxy(seen) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with live(urls=[url], record=False) as session:
            session.until(lambda: session.engine and session.engine.state == "ok", what="the engine")
            for _ in range(2):
                session.source.send(c.StartAgents(engine=url, profile=QUICK, target=1))
                session.until(lambda: session.newest(type(session.turns[0])) if session.turns else None)
            refused = session.turns[0]
            told = [event.text for event in session.of(type(session.event("agents.no-proxy")))]
    assert refused.error_kind == "refused"
    assert sum("use no proxy, although HTTP_PROXY is set" in text for text in told) == 1
    assert all(line.startswith("GET http://box2.invalid:8000/") for line in seen)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--api-key-file", "{missing}"], "no such file"),
        (["--ca-file", "{key}"], "holds no certificate"),
        (["--ca-file", "{missing}"], "no such file"),
        (["--api-key-env", "HOME", "--api-key-file", "{key}"], "exclude each other"),
    ],
)
def test_a_key_or_ca_of_no_use_is_refused_at_the_start(
    words: list[str], said: str, key_file: Path, tmp_path: Path
) -> None:
    words = [word.format(missing=tmp_path / "missing", key=key_file) for word in words]
    process = agenttop("once", "--url", "http://127.0.0.1:1", *words)
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, told) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1
    assert SECRET not in errors


@pytest.mark.parametrize(
    "option", [["--api-key-env", "HOME"], ["--api-key-file", "{key}"], ["--ca-file", "{ca}"]]
)
def test_a_key_without_an_engine_is_refused(option: list[str], key_file: Path, tmp_path: Path) -> None:
    words = [word.format(key=key_file, ca=tls.ca_file(tmp_path)) for word in option]
    process = agenttop("once", *words)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{option[0]} holds for engines that are named, and none is" in errors


def test_an_entry_of_engines_toml_is_enough(
    front: tls.Terminator, key_file: Path, tmp_path: Path, private_places: Path
) -> None:
    folder = Path(os.environ["AGENTTOP_CONFIG"])
    folder.mkdir()
    entry = (
        f'[[engine]]\nurl = "{front.url}"\napi-key-file = "{key_file}"\nca-file = "{tmp_path / "ca.pem"}"\n'
    )
    (folder / "engines.toml").write_text(entry)
    with live(urls=[front.url], record=False) as session:
        session.until(lambda: session.engine and session.engine.state == "ok", what="the engine")
        session.source.send(c.StartAgents(engine=front.url, profile=QUICK, target=2))
        session.until(lambda: [turn for turn in session.turns if turn.error_kind is None], what="a turn")
        assert not [turn.error for turn in session.turns if turn.error_kind]
        assert SECRET not in repr(session.frames)


def test_a_wrong_engines_toml_is_one_sentence() -> None:
    folder = Path(os.environ["AGENTTOP_CONFIG"])
    folder.mkdir()
    (folder / "engines.toml").write_text('[[engine]]\nurl = "8080"\napi-key = "sk-0123456789"\n')
    process = agenttop("once", "--json")
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, told) == (2, "")
    assert "engines.toml:3: api-key: a key does not stand in this file" in errors
    assert "sk-0123456789" not in errors
