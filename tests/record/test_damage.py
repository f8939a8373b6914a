"""Files that are not what they should be: one sentence, never a traceback."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest

from agenttop.errors import AgenttopError
from agenttop.model.clock import ManualClock
from agenttop.record.opening import closed_in_order
from agenttop.record.read import Recording
from agenttop.record.rescue import rescue
from agenttop.stream.replay import ReplaySource
from tests.record.build import small


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small(tmp_path_factory.mktemp("sound") / "a.agenttop", seconds=12, agents=2).read_bytes()


def use_everything(path: Path) -> str | None:
    """Do all that can be done with a recording; the sentence, when it is refused."""
    try:
        with Recording(path) as recording:
            recording.frames()
            recording.latest_before(7.0)
            recording.events()
            recording.turns()
            recording.unknown_kinds()

            clock = ManualClock()
            replay = ReplaySource(recording, clock, at=3.0)
            replay.take()
            clock.advance(2.0)
            replay.take()
            replay.next_event(1)
            replay.step_sample(-1)
            return replay.take().ended
    except AgenttopError as error:
        return str(error)


def full(path: Path) -> AgenttopError:
    with pytest.raises(AgenttopError) as caught:
        Recording(path)
    assert "\n" not in str(caught.value)
    return caught.value


def refused(path: Path) -> str:
    return full(path).message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "a.agenttop"
    os.mkfifo(pipe)
    sentence = f"{pipe} is not a regular file, so not a recording"
    assert refused(pipe) == sentence
    with pytest.raises(AgenttopError) as caught:
        rescue(pipe, tmp_path / "b.agenttop")
    assert str(caught.value) == sentence
    assert not closed_in_order(pipe)


def test_each_kind_of_wrong_file_has_its_sentence(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    assert refused(path) == f"there is no file {path}"
    assert refused(tmp_path) == f"{tmp_path} is a folder, not a recording"
    path.write_bytes(b"")
    assert refused(path) == f"{path} is empty, not a recording"
    path.write_text("t,cpu\n1,2\n" * 100)
    assert refused(path) == f"{path} is not an agenttop recording"
    path.write_text("S")
    assert refused(path) == f"{path} is cut short: its end is missing"
    path.write_bytes(sound[:-1])
    assert refused(path) == f"{path} is cut short: its end is missing"
    path.write_bytes(sound[:100] + bytes(len(sound) - 100))
    assert refused(path) == f"{path} is damaged"


def test_a_foreign_database_is_not_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.agenttop"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE session (t REAL)")
    database.close()
    assert refused(path) == f"{path} is an SQLite file, but not an agenttop recording"


def test_a_view_that_computes_for_ever_is_not_asked(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    path.write_bytes(sound)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE host")
        database.execute(
            "CREATE VIEW host AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
            " SELECT x AS seq, 1.0 AS t FROM c"
        )
        database.commit()
    assert refused(path) == f"{path} is no recording as agenttop writes it: it holds views"
    assert rescue(path, tmp_path / "b.agenttop").frames > 0


def test_a_newer_schema_is_named(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    path.write_bytes(sound)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=2")
    database.close()
    with pytest.raises(AgenttopError) as caught:
        Recording(path)
    assert str(caught.value) == (
        f"{path} was written by a newer agenttop (schema 2, this one reads 1) (upgrade agenttop)"
    )


def test_a_recording_without_its_session_says_so(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    path.write_bytes(sound)
    database = sqlite3.connect(path)
    database.execute("DELETE FROM session")
    database.commit()
    database.close()
    assert "does not say which session" in refused(path)


def test_cut_anywhere_it_is_refused(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    for length in range(1, len(sound), 997):
        path.write_bytes(sound[:length])
        assert refused(path) == f"{path} is cut short: its end is missing"


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_never_end_in_a_traceback(tmp_path: Path, sound: bytes, seed: int) -> None:
    dice = random.Random(seed)
    path = tmp_path / "a.agenttop"
    sentences = set()
    for _ in range(40):
        damaged = bytearray(sound)
        for _ in range(dice.choice((1, 1, 5, 200))):
            # Half of the hits go to where the structure is: page headers and the schema.
            near = dice.randrange(len(sound) // 4096) * 4096 + dice.randrange(12)
            damaged[dice.choice((dice.randrange(len(sound)), near))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        sentences.add(use_everything(path))
    assert None in sentences  # some damage is not even noticed
    assert len(sentences) > 1  # and some is


def test_a_damaged_side_file_never_ends_in_a_traceback(tmp_path: Path) -> None:
    from tests.record.test_read import killed

    path = killed(tmp_path / "a.agenttop")
    side = Path(f"{path}-wal")
    whole = side.read_bytes()
    dice = random.Random(1)
    for _ in range(40):
        damaged = bytearray(whole[: dice.randrange(1, len(whole))])
        damaged[dice.randrange(len(damaged))] ^= 255
        side.write_bytes(damaged)
        Path(f"{path}-shm").unlink(missing_ok=True)
        use_everything(path)


def test_what_is_left_of_a_cut_recording_is_rescued_in_order(tmp_path: Path) -> None:
    whole = small(tmp_path / "whole.agenttop", seconds=120, agents=2)
    sound = whole.read_bytes()
    path = tmp_path / "a.agenttop"
    counts = []
    for part in range(4, 10):
        path.write_bytes(sound[: len(sound) * part // 10])
        assert "agenttop export a.agenttop --to agenttop --out rescued.agenttop" in str(full(path))
        out = tmp_path / f"rescued{part}.agenttop"
        rescued = rescue(path, out)
        with Recording(out) as after, Recording(whole) as before:
            assert after.session == before.session
            frames, known = after.frames(), before.frames()
            assert len(frames) == rescued.frames
            assert [frame for frame in known if frame in frames] == frames
            assert rescued.gaps > 0
        counts.append(rescued.frames)
    assert counts == sorted(counts)
    assert counts[-1] > len(known) / 2


def test_rows_behind_a_damaged_page_are_rescued(tmp_path: Path) -> None:
    path = small(tmp_path / "a.agenttop", seconds=120, agents=2)
    with Recording(path) as recording:
        known = recording.frames()
    damaged = bytearray(path.read_bytes())
    middle = len(damaged) // 8192 * 4096
    damaged[middle : middle + 8192] = bytes(8192)
    path.write_bytes(damaged)
    with Recording(path) as recording, pytest.raises(AgenttopError, match="is damaged"):
        recording.frames()
    rescued = rescue(path, tmp_path / "b.agenttop")
    assert rescued.gaps > 0
    with Recording(tmp_path / "b.agenttop") as recording:
        frames = recording.frames()
        assert len(known) - 150 < len(frames) < len(known)
        assert recording.duration == known[-1].t


def test_a_sound_recording_is_rescued_whole_and_a_foreign_file_not_at_all(
    tmp_path: Path, sound: bytes
) -> None:
    path = tmp_path / "a.agenttop"
    path.write_bytes(sound)
    assert rescue(path, tmp_path / "b.agenttop").gaps == 0
    with Recording(path) as before, Recording(tmp_path / "b.agenttop") as after:
        assert after.frames() == before.frames()
    path.write_bytes(b"x" * 5000)
    with pytest.raises(AgenttopError, match="is not an agenttop recording"):
        rescue(path, tmp_path / "c.agenttop")
    path.write_bytes(sound[:100] + bytes(len(sound) - 100))
    with pytest.raises(AgenttopError, match="can be rescued"):
        rescue(path, tmp_path / "c.agenttop")
    assert not (tmp_path / "c.agenttop").exists()


def test_garbage_in_the_schema_is_told_in_words(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "a.agenttop"
    path.write_bytes(sound.replace(b'CREATE TABLE "turn"', b"\xc1\xff\xc1" * 6 + b"x"))
    assert refused(path) == f"{path} is damaged"
