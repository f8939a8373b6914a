"""What a reader finds: spans, states, and files in every condition a session can leave behind."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agenttop.errors import AgenttopError
from agenttop.model.frames import (
    AgentSample,
    Event,
    Frame,
    GpuSample,
    HostSample,
    Level,
    Missing,
    OwnSample,
    SlotSample,
    Turn,
    kind_of,
)
from agenttop.model.identity import IDENTITY, identity
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from tests.record.build import URL, record, session, session_frames, small, tick

MOMENTS = [-1.0, 0.0, 0.05, 1.0, 2.0, 7.3, 19.99, 20.25, 33.0, 58.5, 65.0, 1e9]


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return [session(), *session_frames([(2, 20), (4, 20), (1, 20)], gpus=2)]


@pytest.fixture(scope="module")
def recording(frames: list[Frame], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    path = record(tmp_path_factory.mktemp("read") / "a.agenttop", frames)
    with Recording(path) as recording:
        yield recording


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that a test may `lock`."""
    place = tmp_path / "media"
    place.mkdir()
    yield place
    subprocess.run(["umount", str(place)], capture_output=True, check=False)
    place.chmod(0o755)


def lock(place: Path) -> None:
    """Make a folder read-only, for root too."""
    if os.geteuid() == 0:
        for command in (["--bind", str(place), str(place)], ["-o", "remount,bind,ro", str(place)]):
            if subprocess.run(["mount", *command], capture_output=True, check=False).returncode != 0:
                pytest.skip("mounting is not allowed here")
    else:
        place.chmod(0o555)


def killed(path: Path) -> Path:
    """A recording whose writer went away between two checkpoints: rows in the side file."""
    other = path.with_name("original.agenttop")
    recorder = Recorder(other, session())
    for second in range(1, 6):
        for frame in tick(float(second)):
            recorder.add(frame)
        recorder.commit()
    shutil.copyfile(other, path)
    shutil.copyfile(f"{other}-wal", f"{path}-wal")
    recorder.close()
    other.unlink()
    return path


def test_a_span_is_the_frames_of_the_span(recording: Recording, frames: list[Frame]) -> None:
    played = sorted(frames, key=lambda frame: frame.t)
    for t0 in MOMENTS:
        for t1 in MOMENTS:
            assert recording.frames(t0, t1) == [frame for frame in played if t0 <= frame.t <= t1]
    some = recording.frames(10.0, 30.0, (Turn, HostSample))
    assert some == [f for f in played if 10 <= f.t <= 30 and isinstance(f, Turn | HostSample)]


@pytest.mark.parametrize("t", MOMENTS)
def test_the_state_at_a_moment_is_the_newest_of_everything_before_it(
    recording: Recording, frames: list[Frame], t: float
) -> None:
    newest: dict[object, Frame] = {}
    for frame in sorted(frames, key=lambda frame: frame.t):
        key = identity(frame)
        if frame.t <= t and key is not None:
            newest[key] = frame
    assert sorted(recording.latest_before(t), key=repr) == sorted(newest.values(), key=repr)


def test_an_agent_that_stopped_long_ago_is_still_part_of_the_state(recording: Recording) -> None:
    agents = {frame.agent: frame for frame in recording.latest_before(62.0) if isinstance(frame, AgentSample)}
    assert {name: agent.state == "stopped" for name, agent in agents.items()} == {
        "a1": False,
        "a2": True,
        "a3": True,
        "a4": True,
    }


def test_identities_are_those_of_the_model() -> None:
    keyed: list[Frame] = [*tick(1.0), *session_frames([(1, 5)]), session(), Level(t=0.0, level=0, agents=1)]
    for frame in keyed:
        columns = IDENTITY.get(type(frame))
        key = identity(frame)
        assert (columns is None) == (key is None)
        if columns is not None and key is not None:
            assert key == (kind_of(type(frame)), *(getattr(frame, name) for name in columns))


def test_state_at_is_state_and_window_and_events(recording: Recording, frames: list[Frame]) -> None:
    found, _ = recording.state_at(45.0, 10.0, 100_000)
    ids = [repr(frame) for frame in found]
    assert len(set(ids)) == len(ids)
    wanted = [*recording.latest_before(45.0), *recording.frames(35.0, 45.0)]
    wanted += [frame for frame in frames if isinstance(frame, Event) and frame.t <= 45.0]
    assert set(ids) == {repr(frame) for frame in wanted}
    assert [frame.t for frame in found] == sorted(frame.t for frame in found)


def test_a_window_with_too_many_frames_is_shortened_from_its_start(recording: Recording) -> None:
    found, _ = recording.state_at(45.0, 40.0, 100)
    assert {repr(frame) for frame in recording.latest_before(45.0)} <= {repr(frame) for frame in found}
    assert len(found) < 150
    assert max(frame.t for frame in found) == max(frame.t for frame in recording.frames(40.0, 45.0))


def test_news_come_once_and_completely(recording: Recording, frames: list[Frame]) -> None:
    seen, mark = recording.state_at(3.0, 300.0, 100_000)
    t = 3.0
    while t < recording.duration:
        some, mark = recording.news(t, t + 0.7, mark)
        assert len(some) <= recording.between(t, t + 0.7)
        seen += some
        t += 0.7
    assert seen == sorted(frames, key=lambda frame: frame.t)


def test_a_growing_file_brings_late_frames_too(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.agenttop", session())
    recorder.add(tick(5.0)[0])
    recorder.commit()
    with Recording(recorder.path) as recording:
        _, mark = recording.state_at(5.0, 300.0, 1000)
        late = Event(t=4.5, event="mark", text="written a moment later")
        recorder.add(late)
        recorder.add(tick(6.0)[0])
        recorder.commit()
        assert recording.duration == 6.0
        some, mark = recording.news(5.0, 5.5, mark)
        assert some == [late]
        some, mark = recording.news(5.5, 6.0, mark)
        assert [frame.t for frame in some] == [6.0]
        assert recording.latest_before(math.inf)[-1].t == 6.0
        assert not recording.finished
        recorder.close()
    with Recording(recorder.path) as recording:
        assert recording.duration == 6.0


def test_turns_events_rows_and_counts(recording: Recording, frames: list[Frame]) -> None:
    turns = [frame for frame in frames if isinstance(frame, Turn)]
    assert recording.turns() == sorted(turns, key=lambda frame: frame.t)
    assert recording.turns()[0].arrivals
    assert [event.text for event in recording.events(25.0)] == ["agents → 2", "agents → 4"]
    assert recording.count(GpuSample) == len(recording.of(GpuSample)) == 2 * recording.count(HostSample)
    assert list(recording.rows(SlotSample)) == [frame for frame in frames if isinstance(frame, SlotSample)]
    assert recording.duration == max(frame.t for frame in frames)
    assert recording.finished


def test_what_the_writer_left_open_is_read_without_touching_it(tmp_path: Path) -> None:
    path = killed(tmp_path / "a.agenttop")
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    with Recording(path) as recording:
        assert recording.duration == 5.0
        assert len(recording.of(OwnSample)) == 5
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_killed_recording_in_a_read_only_folder_is_whole_too(read_only_disk: Path) -> None:
    path = killed(read_only_disk / "a.agenttop")
    lock(read_only_disk)
    with pytest.raises(OSError, match=r"denied|Read-only"):
        (read_only_disk / "x").write_text("")
    with Recording(path) as recording:
        assert recording.duration == 5.0
    assert sorted(item.name for item in read_only_disk.iterdir()) == ["a.agenttop", "a.agenttop-wal"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_copy_that_lacks_the_side_file_with_everything_is_told(read_only_disk: Path) -> None:
    path = killed(read_only_disk / "a.agenttop")
    Path(f"{path}-wal").unlink()
    lock(read_only_disk)
    # Nothing was checkpointed yet: the tables are all in the side file that is gone.
    with pytest.raises(AgenttopError, match=r"lacks its side file a\.agenttop-wal"):
        Recording(path)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_finished_recording_in_a_read_only_folder(read_only_disk: Path) -> None:
    path = small(read_only_disk / "a.agenttop", seconds=10)
    lock(read_only_disk)
    with Recording(path) as recording:
        assert recording.finished
        assert recording.count(HostSample) > 10


def test_a_file_with_more_and_with_fewer_columns_is_read(tmp_path: Path) -> None:
    path = small(tmp_path / "a.agenttop", seconds=10)
    database = sqlite3.connect(path)
    database.execute("ALTER TABLE host ADD COLUMN of_tomorrow REAL DEFAULT 7")
    database.execute("ALTER TABLE host DROP COLUMN cpu_fraction")
    database.execute("CREATE TABLE tomorrow (seq INTEGER PRIMARY KEY, t REAL)")
    database.execute("DROP TABLE own")
    database.execute("ALTER TABLE missing DROP COLUMN what")
    database.commit()
    database.close()
    with Recording(path) as recording:
        host = recording.of(HostSample)[0]
        assert (host.cpu_fraction, host.ram_total_bytes) == (None, 64 << 30)
        assert recording.of(OwnSample) == []
        assert recording.of(Missing) == []  # cannot be without `what`
        assert recording.latest_before(9.0)


def test_a_damaged_value_costs_itself_and_hostile_text_is_cleaned(tmp_path: Path) -> None:
    path = small(tmp_path / "a.agenttop", seconds=10)
    database = sqlite3.connect(path)
    database.execute("UPDATE host SET cpu_fraction = 'soon', ram_used_bytes = 12.5, cpu_per_core = '[1,'")
    database.execute("UPDATE gpu SET power_w = 9e999, state = x'ff1b5b324a'")
    database.execute("UPDATE event SET text = 'a' || char(27) || '[2J' || char(8238) || 'b'")
    database.execute('UPDATE plan SET settings = \'{"a":{"b":"x\\u001b[31m"}}\', notes = \'["\\u0007n"]\'')
    database.execute("UPDATE slot SET slot = 'none' WHERE slot = 1")
    database.execute("UPDATE engine SET load_allowed = 'yes'")
    database.commit()
    database.close()
    with Recording(path) as recording:
        host = recording.of(HostSample)[0]
        assert (host.cpu_fraction, host.cpu_per_core, host.ram_used_bytes) == (None, None, None)
        assert host.disk_read_bytes_s == 1234.5
        gpu = recording.of(GpuSample)[0]
        assert (gpu.power_w, gpu.temperature_c, gpu.state) == (None, 71.0, "ok")
        assert {event.text for event in recording.events()} == {"a [2J b"}
        frames = recording.frames()
        assert "\x1b" not in repr(frames)
        assert "\\x1b" not in repr([frame for frame in frames if not isinstance(frame, Turn)])
        assert {frame.slot for frame in frames if isinstance(frame, SlotSample)} == {0, 2, 3}
        assert {frame.engine for frame in frames if isinstance(frame, SlotSample)} == {URL}
