"""What a recorder leaves on disk, in good times and bad."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agenttop.errors import AgenttopError, UsageError
from agenttop.model.frames import FRAME_TYPES, EngineSample, Event, HostSample, Session, kind_of
from agenttop.record.read import Recording
from agenttop.record.schema import APPLICATION_ID
from agenttop.record.write import Recorder
from agenttop.wire.codec import Unknown
from tests.record.build import URL, record, session, session_frames, small, tick

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start_writer(path: Path, *limit: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.record.writer", str(path), *limit],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB, where this user may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_every_frame_comes_back_as_it_was(tmp_path: Path) -> None:
    frames = session_frames([(1, 20), (3, 20)])
    path = record(tmp_path / "a.agenttop", frames)
    with Recording(path) as recording:
        assert recording.frames() == sorted([session(), *frames], key=lambda frame: frame.t)


def test_a_closed_recording_is_one_file_that_says_what_it_is(tmp_path: Path) -> None:
    path = small(tmp_path / "a.agenttop")
    assert names(tmp_path) == ["a.agenttop"]
    assert path.read_bytes()[68:72] == b"agtp"
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {kind_of(frame_type) for frame_type in FRAME_TYPES} | {"unknown", "commits"}
    database.close()


def test_columns_are_the_fields_with_their_types(tmp_path: Path) -> None:
    database = sqlite3.connect(small(tmp_path / "a.agenttop", seconds=5))
    columns = {row[1]: row[2] for row in database.execute("PRAGMA table_info(host)")}
    assert list(columns)[1:] == [field.name for field in msgspec.structs.fields(HostSample)]
    assert (columns["t"], columns["cpu_per_core"], columns["ram_used_bytes"]) == ("REAL", "TEXT", "INTEGER")
    assert database.execute("SELECT json_array_length(cpu_per_core) FROM host").fetchone() == (16,)
    assert database.execute("SELECT swap_used_bytes FROM host").fetchone() == (None,)
    database.close()


def test_anyone_can_read_along_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.agenttop"
    recorder = Recorder(path, session())
    other = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    for second in range(1, 25):  # two checkpoints happen on the way
        for frame in tick(float(second)):
            recorder.add(frame)
        assert other.execute("SELECT count(*) FROM host").fetchone() == (second - 1,)
        recorder.commit()
        assert other.execute("SELECT count(*) FROM host").fetchone() == (second,)
    other.close()
    recorder.close()
    assert names(tmp_path) == ["a.agenttop"]


def test_a_reader_that_stays_does_not_keep_rows_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.agenttop"
    recorder = Recorder(path, session())
    recorder._database.execute("PRAGMA busy_timeout=0")
    reader = Recording(path)
    for frame in tick(1.0):
        recorder.add(frame)
    recorder.close()
    assert recorder.failure is None
    copy = tmp_path / "copy.agenttop"
    shutil.copyfile(path, copy)  # the one file alone, without its side files
    with Recording(copy) as recording:
        assert recording.duration == 1.0
    reader.close()


@pytest.mark.parametrize("seed", range(6))
def test_after_kill_9_everything_up_to_the_last_commit_is_there(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.agenttop"
    writer = start_writer(path)
    assert writer.stdout is not None
    last = 0.0
    for _ in range(random.Random(seed).randint(1, 40)):
        last = float(writer.stdout.readline())
    writer.kill()
    rest = writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    last = max([last, *(float(line) for line in rest)])
    before = path.read_bytes()
    with Recording(path) as recording:
        assert recording.duration >= last
        assert not recording.finished
        whole = int(recording.duration)
        per_tick = len(tick(1.0))
        assert len(recording.frames()) == 1 + whole * per_tick
        assert [frame.t for frame in recording.of(HostSample)] == [float(n + 1) for n in range(whole)]
    assert path.read_bytes() == before
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_a_full_disk_stops_the_recording_with_one_sentence(tiny_disk: Path) -> None:
    path = tiny_disk / "a.agenttop"
    writer = start_writer(path)
    assert writer.stdout is not None
    *committed, sentence = writer.stdout.read().splitlines()
    writer.stdout.close()
    assert writer.wait() == 0
    assert sentence.startswith(f"the disk is full; {path} is whole up to 00:0")
    with Recording(path) as recording:
        # The commit whose checkpoint found the disk full is in the side file, and so in the recording.
        assert recording.duration >= float(committed[-1]) > 20
        assert len(recording.of(HostSample)) == recording.duration


@POSIX
def test_a_file_that_may_not_grow_stops_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.agenttop"
    writer = start_writer(path, str(400_000))
    assert writer.stdout is not None
    *committed, sentence = writer.stdout.read().splitlines()
    writer.stdout.close()
    assert writer.wait() == 0
    assert sentence.startswith("the file cannot be written (disk I/O error)")
    assert str(path) in sentence
    with Recording(path) as recording:
        assert recording.duration >= float(committed[-1]) > 20


def test_no_pages_left_stops_the_recording_and_keeps_the_rows(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.agenttop", session())
    recorder._database.execute("PRAGMA max_page_count=24")
    t = 0.0
    while recorder.failure is None:
        t += 1.0
        for frame in tick(t):
            recorder.add(frame)
        recorder.commit()
    recorder.add(tick(t)[0])
    recorder.commit()
    recorder.close()
    assert recorder.failure.startswith("the disk is full")
    with Recording(recorder.path) as recording:
        assert recording.duration >= t - 1.0


def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.agenttop", session())
    recorder.path.unlink()
    for second in range(1, 12):
        recorder.add(tick(float(second))[0])
        recorder.commit()
    assert recorder.failure is not None
    assert "moved or deleted" in recorder.failure
    recorder.close()


def test_a_lock_held_by_another_program_delays_rows_and_loses_none(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.agenttop", session())
    recorder._database.execute("PRAGMA busy_timeout=0")
    other = sqlite3.connect(recorder.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder.add(tick(1.0)[0])
    recorder.commit()
    recorder.add(tick(2.0)[0])
    recorder.commit()
    assert recorder.failure is None
    other.execute("COMMIT")
    other.close()
    recorder.close()
    with Recording(recorder.path) as recording:
        assert [frame.t for frame in recording.of(HostSample)] == [1.0, 2.0]


def test_it_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "a.agenttop"
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        Recorder(path, session())
    assert path.read_text() == "precious"


def test_a_place_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no directory"):
        Recorder(tmp_path / "nowhere" / "a.agenttop", session())
    (tmp_path / "file").touch()
    with pytest.raises(AgenttopError, match="not a directory"):
        Recorder(tmp_path / "file" / "a.agenttop", session())


def test_a_disk_that_is_full_already_is_told_at_once(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(500_000))
    with pytest.raises(AgenttopError, match=r"cannot record to .*: the disk is full"):
        Recorder(tiny_disk / "a.agenttop", session())
    assert names(tiny_disk) == ["filler"]


def test_the_session_frame_is_written_once(tmp_path: Path) -> None:
    path = record(tmp_path / "a.agenttop", [session(), *tick(1.0)])
    with Recording(path) as recording:
        assert recording.of(Session) == [session()]
        assert recording.session == session()


def test_frames_of_unknown_kinds_are_kept_as_they_came(tmp_path: Path) -> None:
    line = b'{"kind":"tomorrow","t":2.5,"x":1}'
    recorder = Recorder(tmp_path / "a.agenttop", session())
    recorder.add(Unknown(t=2.5, kind="tomorrow", line=line))
    recorder.close()
    with Recording(recorder.path) as recording:
        assert recording.unknown_kinds() == {"tomorrow": 1}
        assert recording.duration == 2.5
    database = sqlite3.connect(recorder.path)
    assert database.execute("SELECT t, kind, line FROM unknown").fetchall() == [(2.5, "tomorrow", line)]
    database.close()


def test_one_value_that_cannot_be_stored_costs_only_itself(tmp_path: Path) -> None:
    sound = Event(t=1.0, event="mark", text="before")
    huge = EngineSample(
        t=1.0, engine=URL, url=URL, name="x", state="ok", running=3, output_tokens_total=10**30
    )
    torn = Event(t=2.0, event="mark", text="half \ud83d a pair")
    path = record(tmp_path / "a.agenttop", [sound, huge, torn])
    with Recording(path) as recording:
        (engine,) = recording.of(EngineSample)
        assert (engine.running, engine.output_tokens_total) == (3, None)
        assert [event.text for event in recording.events()] == ["before", "half ? a pair"]


def test_size_counts_the_side_file_too(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.agenttop", session())
    small_size = recorder.size_bytes
    for frame in session_frames([(2, 30)]):
        recorder.add(frame)
    recorder.commit()
    assert recorder.size_bytes > small_size + 10_000
    recorder.close()
    assert recorder.size_bytes == recorder.path.stat().st_size
