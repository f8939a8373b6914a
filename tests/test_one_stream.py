"""The promise of the design: the same session through a child process, through a door and from its recording
gives the same screens."""

import asyncio
import sys

import pytest

from agenttop.model.clock import ManualClock, SystemClock
from agenttop.model.frames import Session
from agenttop.node.doors import Doorman
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream.lines import AttachSource, ChildSource
from agenttop.stream.replay import ReplaySource
from agenttop.stream.rewind import Deck
from agenttop.view.store import Store
from agenttop.view.text import picture
from agenttop.wire.codec import encode
from tests.view.scenes import running

SIZES = [(80, 24), (120, 40), (200, 60)]

PRINT_RECORDING = """
import sys
from pathlib import Path
from agenttop.record.read import Recording
from agenttop.wire.codec import encode
for frame in Recording(Path(sys.argv[1])).frames(0.0, 1e9):
    sys.stdout.buffer.write(encode(frame))
sys.stdout.buffer.flush()
sys.stdin.read()
"""


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "scene.agenttop"
    frames = running()
    session = next(frame for frame in frames if isinstance(frame, Session))
    recorder = Recorder(path, session)
    for frame in frames:
        if not isinstance(frame, Session):
            recorder.add(frame)
    recorder.close()
    opened = Recording(path)
    yield opened
    opened.close()


def screens(deck, now, until):
    store = Store()
    while not until(store):
        batch = deck.take()
        store.feed(batch.frames, now, reset=batch.reset)
    return [picture(store, width, height) for width, height in SIZES]


def test_child_door_and_replay_show_the_same_screens(recording, short_directory):
    now = recording.duration

    def complete(store):
        return store.newest is not None and store.newest >= now

    replay = Deck(ReplaySource(recording, ManualClock(), at=now), ManualClock())
    expected = screens(replay, now, complete)
    assert "a1" in expected[0]

    child = ChildSource([sys.executable, "-c", PRINT_RECORDING, str(recording.path)], SystemClock())
    through_child = screens(Deck(child, SystemClock()), now, complete)
    child.close()
    child.wait_exit(10)
    child.process.stdout.close()
    assert through_child == expected

    through_door = asyncio.run(_through_door(recording, short_directory, now, complete))
    assert through_door == expected


async def _through_door(recording, folder, now, complete):
    lines = b"".join(map(encode, recording.frames(0.0, now + 1)))
    doorman = Doorman(
        folder,
        recording.session,
        enter=lambda listener: listener.offer(lines),
        leave=lambda listener: None,
        line=lambda line: None,
    )
    await doorman.open()
    source = await asyncio.to_thread(AttachSource, doorman.door, SystemClock())
    try:
        return await asyncio.to_thread(screens, Deck(source, SystemClock()), now, complete)
    finally:
        source.close()
        await doorman.close()
