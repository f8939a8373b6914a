"""Engines of every kind in a recording: parts, latencies, figures with names, files from before them."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import msgspec
import pytest

from agenttop.commands.export import run as export
from agenttop.model.frames import EngineSample, Event, Frame, LatencySample, PartSample
from agenttop.record.read import Recording
from agenttop.record.schema import named
from agenttop.record.write import Recorder
from agenttop.stream.history import HISTORY_S
from agenttop.stream.replay import MOST_FRAMES
from agenttop.view.store import Store
from tests.record.build import record
from tests.view import engine_scenes as kinds
from tests.view.draw import drawn, folded

BUNDLED = sorted((Path(__file__).parents[2] / "recordings").glob("*.agenttop"))


def written(path: Path, frames: list[Frame]) -> Path:
    """A recording of a scene, whose first frame is the session."""
    session, *others = frames
    recorder = Recorder(path, session)  # type: ignore[arg-type]
    for frame in others:
        recorder.add(frame)
    recorder.close()
    assert recorder.failure is None
    return path


def part(t: float, **changes: object) -> PartSample:
    fields: dict[str, object] = {"t": t, "engine": kinds.OLLAMA, "part": "m", "role": "model", **changes}
    return PartSample(**fields)  # type: ignore[arg-type]


def parts_in(path: Path) -> list[float]:
    with Recording(path) as recording:
        return [frame.t for frame in recording.of(PartSample)]


def test_figures_with_names_come_back_as_they_were(tmp_path: Path) -> None:
    path = record(tmp_path / "a.agenttop", [kinds.vllm(1.0), *kinds.ranks(1.0), *kinds.vllm_latencies(1.0)])
    with Recording(path) as recording:
        assert list(recording.of(EngineSample)) == [kinds.vllm(1.0)]
        assert list(recording.of(PartSample)) == kinds.ranks(1.0)
        assert list(recording.of(LatencySample)) == kinds.vllm_latencies(1.0)
    database = sqlite3.connect(path)
    (reasons,) = database.execute("SELECT finish_reasons FROM engine").fetchone()
    assert json.loads(reasons) == {"stop": 8123, "length": 411, "abort": 12}
    assert database.execute(
        "SELECT sum(json_extract(waiting_reasons, '$.capacity')) FROM engine"
    ).fetchone() == (3,)
    database.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("latencies", "latency"),
        ("parts", "part"),
        ("part", "part"),
        ("processes", "process"),
        ("hardware", "hardware"),
        ("ies", None),
        ("es", None),
    ],
)
def test_tables_by_their_plural(name: str, kind: str | None) -> None:
    table = named(name)
    assert (table.kind if table is not None else None) == kind


class TestRepeats:
    def test_a_part_that_stands_still_is_written_once(self, tmp_path: Path) -> None:
        frames = [part(float(t), state="loaded", running=0) for t in range(10)]
        assert parts_in(record(tmp_path / "a.agenttop", frames)) == [0.0]

    def test_every_change_is_written(self, tmp_path: Path) -> None:
        frames = [part(float(t), running=t // 3) for t in range(9)]
        assert parts_in(record(tmp_path / "a.agenttop", frames)) == [0.0, 3.0, 6.0]

    def test_the_time_until_it_is_unloaded_runs_by_itself(self, tmp_path: Path) -> None:
        frames = [part(float(t), expires_s=300.0 - t + 0.3 * (t % 2)) for t in range(20)]
        used = [part(20.0 + t, expires_s=300.0 - t) for t in range(5)]
        never = [part(25.0 + t) for t in range(3)]
        assert parts_in(record(tmp_path / "a.agenttop", [*frames, *used, *never])) == [0.0, 20.0, 25.0]

    def test_a_part_that_went_and_came_back_is_written_anew(self, tmp_path: Path) -> None:
        frames = [part(1.0), part(2.0, state="gone"), part(3.0), part(4.0)]
        assert parts_in(record(tmp_path / "a.agenttop", frames)) == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize(
        "change",
        [
            kinds.ollama(2.0, restarts=1),
            kinds.ollama(2.0, name="LM Studio"),
            Event(t=2.0, event="engine.gone", text="gone", subject=kinds.OLLAMA),
        ],
        ids=["restart", "another kind", "gone"],
    )
    def test_where_a_reader_forgets_all_is_written_anew(self, tmp_path: Path, change: Frame) -> None:
        frames = [kinds.ollama(1.0), part(1.0), change, part(2.5)]
        assert parts_in(record(tmp_path / "a.agenttop", frames)) == [1.0, 2.5]

    def test_a_latency_of_nothing_is_written_once(self, tmp_path: Path) -> None:
        counts = [3, 0, 0, 0, 2, 0, 0]
        frames = [
            LatencySample(t=float(t), engine=kinds.VLLM, measure="ttft", window_s=60.0, count=count)
            for t, count in enumerate(counts)
        ]
        with Recording(record(tmp_path / "a.agenttop", frames)) as recording:
            assert [frame.t for frame in recording.of(LatencySample)] == [0.0, 1.0, 4.0, 5.0]


@pytest.mark.parametrize("engine", [kinds.VLLM, kinds.ROUTER, kinds.OLLAMA, kinds.PROXY])
def test_a_seek_shows_what_was_on_the_screen(tmp_path: Path, engine: str) -> None:
    frames = kinds.several(40)
    path = written(tmp_path / "a.agenttop", frames)
    live = drawn([frame for frame in frames if frame.t <= 31.0], 31.0, engine=engine)
    with Recording(path) as recording:
        assert drawn(recording.state_at(31.0, HISTORY_S, MOST_FRAMES)[0], 31.0, engine=engine) == live
        store = Store()
        store.feed(recording.state_at(20.0, HISTORY_S, MOST_FRAMES)[0], 20.0)
        store.feed(recording.news(20.0, 31.0, 1 << 62)[0], 31.0)
    whole = folded([frame for frame in frames if frame.t <= 31.0], 31.0)
    assert {key: _timeless(parts) for key, parts in store.parts.items()} == {
        key: _timeless(parts) for key, parts in whole.parts.items()
    }
    assert store.latencies == whole.latencies


def _timeless(parts: dict[tuple[str, str], PartSample]) -> dict[tuple[str, str], PartSample]:
    """In a recording a part that stands still has the time of its last change."""
    return {
        key: msgspec.structs.replace(
            part, t=0.0, expires_s=round(part.t + part.expires_s) if part.expires_s is not None else None
        )
        for key, part in parts.items()
    }


class TestFilesFromBefore:
    @pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
    def test_bundled_recordings_open(self, path: Path) -> None:
        with Recording(path) as recording:
            samples = list(recording.of(EngineSample))
            assert samples
            assert all(sample.waiting_reasons == {} and sample.finish_reasons == {} for sample in samples)
            assert not list(recording.of(PartSample))
            assert not list(recording.of(LatencySample))
            text = drawn(recording.state_at(60.0, HISTORY_S, MOST_FRAMES)[0], 60.0)
        assert "cannot be drawn" not in text
        assert "Slots and agents" in text

    def test_null_in_a_column_of_names_is_none_told(self, tmp_path: Path) -> None:
        path = record(tmp_path / "a.agenttop", [kinds.vllm(1.0)])
        database = sqlite3.connect(path)
        database.execute("UPDATE engine SET finish_reasons = NULL, waiting_reasons = '[1'")
        database.commit()
        database.close()
        with Recording(path) as recording:
            (sample,) = recording.of(EngineSample)
        assert sample.finish_reasons == {}
        assert sample.waiting_reasons == {}
        assert sample.running == 23


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_all_can_be_exported(tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    path = written(tmp_path / "a.agenttop", kinds.several(20))
    out = tmp_path / ("out.jsonl" if form == "jsonl" else "out")
    _export(path, form, out)
    if form == "jsonl":
        kinds_of = [json.loads(line)["kind"] for line in out.read_text().splitlines()]
        assert {"part", "latency", "engine"} <= set(kinds_of)
        return
    assert {file.stem for file in out.iterdir()} >= {"part", "latency", "engine"}
    if form == "csv":
        rows = [row for row in _table(out / "engine.csv") if row["name"] == "vLLM"]
        reasons = {json.dumps(json.loads(row["finish_reasons"])) for row in rows}
        assert reasons == {'{"stop": 8123, "length": 411, "abort": 12}'}
        assert {row["measure"] for row in _table(out / "latency.csv")} == {"ttft", "itl", "e2e", "queue"}


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _export(path: Path, form: str, out: Path) -> None:
    import argparse

    code = export(argparse.Namespace(file=str(path), to=form, table=None, out=str(out)))
    assert code == 0
