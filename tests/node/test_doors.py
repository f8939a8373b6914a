"""The door of a running session, entered over real sockets by the source that `attach` uses."""

import asyncio
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from agenttop.commands.doors import find, running
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.clock import SystemClock
from agenttop.model.commands import Mark
from agenttop.model.door import Door
from agenttop.model.frames import SCHEMA, Bye, Event, Session
from agenttop.node.doors import Doorman
from agenttop.stream.lines import AttachSource
from agenttop.wire.codec import decode_command, encode


def session(pid=1):
    return Session(t=0, schema=SCHEMA, session="s-1", started_unix=0.0, host="box", os="Linux", node_pid=pid)


class Party:
    """Who came, who left, what was said."""

    def __init__(self):
        self.inside, self.lines = [], []
        self.heard = asyncio.Event()
        self.left = asyncio.Event()

    def enter(self, listener):
        self.inside.append(listener)
        listener.offer(encode(Event(t=1.0, event="mark", text="welcome")))

    def leave(self, listener):
        self.inside.remove(listener)
        self.left.set()

    def line(self, line):
        self.lines.append(decode_command(line))
        self.heard.set()


async def taken(source, count):
    frames = []
    while len(frames) < count:
        await asyncio.to_thread(source.wait, 0.05)
        frames += source.take().frames
    return frames


@pytest.mark.parametrize("unix", [True, False], ids=["unix-socket", "loopback-port"])
async def test_a_console_comes_in_is_heard_and_leaves(short_directory, unix):
    if unix and sys.platform == "win32":
        pytest.skip("no Unix sockets in asyncio on Windows")
    folder = short_directory / f"doors-{unix}"
    folder.mkdir()
    party = Party()
    doorman = Doorman(folder, session(), enter=party.enter, leave=party.leave, line=party.line, unix=unix)
    await doorman.open()
    door = msgspec.json.decode((folder / "s-1.json").read_bytes(), type=Door)
    assert (door.unix is not None) == unix
    source = await asyncio.to_thread(AttachSource, door, SystemClock())
    (frame,) = await taken(source, 1)
    assert frame.text == "welcome"
    source.send(Mark(text="hello"))
    await asyncio.wait_for(party.heard.wait(), 10)
    assert party.lines == [Mark(text="hello")]
    source.close()
    await asyncio.wait_for(party.left.wait(), 10)
    await doorman.close()
    assert list(folder.iterdir()) == []


async def test_who_does_not_know_the_token_is_not_let_in(short_directory):
    folder = short_directory / "token"
    folder.mkdir()
    party = Party()
    doorman = Doorman(folder, session(), enter=party.enter, leave=party.leave, line=party.line, unix=False)
    await doorman.open()
    wrong = msgspec.structs.replace(doorman.door, token="guessed")
    source = await asyncio.to_thread(AttachSource, wrong, SystemClock())
    while source.take().ended is None:
        await asyncio.to_thread(source.wait, 0.05)
    source.close()
    assert party.inside == []
    for rubbish in (b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 50 + b"\n", b'{"token":1}\n'):
        reader, writer = await asyncio.open_connection("127.0.0.1", doorman.door.port)
        writer.write(rubbish)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert party.inside == []
    await doorman.close()


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are POSIX")
async def test_the_file_with_the_token_is_for_its_owner_only(short_directory):
    folder = short_directory / "modes"
    folder.mkdir()
    party = Party()
    doorman = Doorman(folder, session(), enter=party.enter, leave=party.leave, line=party.line)
    await doorman.open()
    assert stat.S_IMODE((folder / "s-1.json").stat().st_mode) == 0o600
    await doorman.close()


async def test_without_a_folder_there_is_no_door_and_nothing_else_is_amiss(tmp_path):
    party = Party()
    doorman = Doorman(
        tmp_path / "missing", session(), enter=party.enter, leave=party.leave, line=party.line, unix=True
    )
    with pytest.raises(FileNotFoundError):
        await doorman.open()
    doorman.update(agents=3)
    await doorman.close()
    assert not (tmp_path / "missing").exists()


async def test_a_farewell_still_reaches_the_console(short_directory):
    folder = short_directory / "bye"
    folder.mkdir()
    party = Party()
    doorman = Doorman(folder, session(), enter=party.enter, leave=party.leave, line=party.line)
    await doorman.open()
    source = await asyncio.to_thread(AttachSource, doorman.door, SystemClock())
    await taken(source, 1)
    party.inside[0].offer(encode(Bye(t=2.0, why="the run has ended")))
    await doorman.close()
    while (batch := source.take()).ended is None:
        await asyncio.to_thread(source.wait, 0.05)
    assert batch.ended == "the run has ended"
    assert source.accepts == "the run has ended"
    source.close()


def write_door(folder: Path, name: str, pid: int):
    door = Door(session=name, pid=pid, host="box", started_unix=1.0, token="t", port=1)
    (folder / f"{name}.json").write_bytes(msgspec.json.encode(door))


def test_sessions_are_found_by_the_beginning_of_their_name(monkeypatch, tmp_path):
    import os

    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path))
    from agenttop import paths

    folder = paths.sessions()
    with pytest.raises(AgenttopError, match="no session runs"):
        find(None)
    write_door(folder, "alpha-1", os.getpid())
    assert find(None).session == "alpha-1"
    write_door(folder, "beta-1", os.getpid())
    with pytest.raises(UsageError, match="several sessions run"):
        find(None)
    assert find("be").session == "beta-1"
    with pytest.raises(UsageError, match="no session begins with 'gamma'"):
        find("gamma")


@pytest.mark.skipif(sys.platform == "win32", reason="the dead are not kept on Windows")
def test_a_killed_node_that_its_console_has_not_buried_runs_no_more(monkeypatch, tmp_path):
    import os
    import subprocess

    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path))
    from agenttop import paths

    node = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write_door(paths.sessions(), "killed-1", node.pid)
    assert [door.session for door in running()] == ["killed-1"]
    node.kill()
    os.waitid(os.P_PID, node.pid, os.WEXITED | os.WNOWAIT)
    assert running() == []
    node.wait()


def test_the_file_of_a_killed_node_is_cleared_away(monkeypatch, tmp_path):
    import subprocess

    monkeypatch.setenv("AGENTTOP_RUNTIME", str(tmp_path))
    from agenttop import paths

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    write_door(paths.sessions(), "dead-1", dead.pid)
    (paths.sessions() / "broken.json").write_text("{")
    assert running() == []
    assert not (paths.sessions() / "dead-1.json").exists()


async def test_a_session_that_does_not_answer_is_named():
    door = Door(session="gone-1", pid=1, host="box", started_unix=0, token="t", port=1)
    with pytest.raises(AgenttopError, match="gone-1 does not answer"):
        AttachSource(door, SystemClock())
