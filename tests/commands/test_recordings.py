"""compare, export and list as they are typed: what they print, write, and refuse."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import msgspec
import pytest

from agenttop import paths
from agenttop.analyse.compare import LevelRow
from agenttop.cli import main
from agenttop.commands.cells import aligned, csv_cell, markdown, width
from agenttop.commands.compare import render
from agenttop.model.door import Door
from agenttop.model.frames import FRAME_TYPES, Event, Frame, Turn, kind_of
from agenttop.record.read import Recording
from agenttop.wire.codec import decode_frame
from tests.record.build import record, session, session_frames, small, tick

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def ramp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three levels, the last of them too short."""
    return record(
        tmp_path_factory.mktemp("ramp") / "ramp.agenttop", session_frames([(1, 60), (4, 60), (2, 15)])
    )


def said(capture: Capture, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capture.readouterr()
    return code, out, err


# compare


def test_compare_as_json_has_the_schema_and_one_row_a_level(ramp: Path, capsys: Capture) -> None:
    code, out, err = said(capsys, "compare", ramp, ramp, "--format", "json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["schema"] == 1
    assert [row["agents"] for row in told["levels"]] == [1, 4, 2, 1, 4, 2]
    assert set(told["levels"][0]) == set(LevelRow.__struct_fields__)
    assert told["levels"][0]["preemptions"] is None
    assert [row["valid"] for row in told["levels"][:3]] == [True, True, False]


def test_compare_as_a_table_is_plain_text_with_the_reasons_below(ramp: Path, capsys: Capture) -> None:
    _, out, _ = said(capsys, "compare", ramp)
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["file", "host", "agents"]
    assert [line.split()[2] for line in lines[1:4]] == ["1", "4", "2"]
    assert lines[1].endswith("yes")
    assert lines[3].endswith("no")
    assert lines[5] == (
        "not valid: ramp.agenttop level 3 (2 agents): too short: 15 s after the warm-up, 30 s are needed"
    )
    assert "\x1b" not in out


def test_compare_fits_120_columns_and_says_what_follows(tmp_path: Path, capsys: Capture) -> None:
    paths_of = []
    for host, rate in (
        ("a-host-with-a-long-name.example.org", 50.0),
        ("another-host-with-a-long-name", 25.0),
    ):
        path = tmp_path / f"a-long-name-of-a-recording-on-{host}.agenttop"
        frames = session_frames([(1, 60), (4, 60)], rate=rate)
        paths_of.append(record(path, frames, first=session(host=host)))
    _, out, _ = said(capsys, "compare", *paths_of)
    assert max(map(len, out.splitlines())) <= 120
    tables = out.split("\n\n")
    assert tables[0].count("…") == 8
    assert tables[1].startswith("valid, but warming: ")
    assert tables[2].splitlines()[0].split()[:3] == ["file", "agents", "KV"]
    assert "not known of any level: again, preempt, limit" in tables[2]
    words = tables[3].replace("\n  ", " ")
    assert "another-host-with-a-long-name against a-host-with-a-long-name.example.org with 4 agents" in words
    assert "-50 % decode per agent" in words or "2.0 times less decode per agent" in words
    _, out, _ = said(capsys, "compare", *paths_of, "--format", "json")
    assert any("against" in line for line in json.loads(out)["story"])


def test_compare_too_wide_for_one_table_is_two_and_wide_letters_take_two_cells() -> None:
    level = LevelRow(
        file="名前-of-a-recording.agenttop",
        host="box",
        level=1,
        agents=16,
        t_start=0.0,
        t_end=200.0,
        warm_up_s=40.0,
        window_s=160.0,
        valid=True,
        failures=36,
        failure_kinds={"queue-timeout": 36},
        stalls=3,
        retries=32,
        kv_max_fraction=1.0,
        prefix_hit_fraction=0.9,
        waiting_fraction=1.0,
        preemptions_per_min=17.5,
        compactions=12,
        compaction_s_p50=15.2,
        compaction_prefill_tokens_p50=7013.0,
        gpu_throttled_fraction=1.0,
        steady="steady",
        bottleneck="thermal throttle",
    )
    row = msgspec.to_builtins(level)
    plain = dict(row, file="plain-name-of-a-recording.agenttop", agents=8)
    out = render([row, plain], "table")
    lines = out.splitlines()
    assert max(width(line) for line in lines) <= 120
    assert sum(line.startswith("file") for line in lines) == 3
    causes = [line.split() for line in lines if line.startswith("file")][1:]
    assert [heading[:2] for heading in causes] == [["file", "agents"]] * 2
    assert causes[1][-1] == "limit"
    wide, narrow = (next(line for line in lines if line.startswith(name)) for name in ("名前", "plain"))
    assert width(wide.split("box")[0]) == width(narrow.split("box")[0])


def test_compare_as_markdown_and_csv(ramp: Path, capsys: Capture) -> None:
    _, out, _ = said(capsys, "compare", ramp, "--format", "markdown")
    assert out.splitlines()[1].startswith("| --- | --- | ---: |")
    assert out.count("\n| ramp.agenttop |") == 3
    _, out, _ = said(capsys, "compare", ramp, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["agents"] for row in rows] == ["1", "4", "2"]
    assert rows[0]["preemptions"] == ""
    assert float(rows[1]["decode_tok_s"]) > 50


def test_compare_draws_a_chart_without_colours(ramp: Path, capsys: Capture) -> None:
    _, out, _ = said(capsys, "compare", ramp, "--chart")
    assert "decode tok/s per agent (p50) over agents" in out
    assert "decode tok/s of all agents together over agents" in out
    assert out.count("● box1, ramp.agenttop") == 2
    assert "\x1b" not in out
    code, _, err = said(capsys, "compare", ramp, "--chart", "--format", "json")
    assert (code, err.count("\n")) == (2, 1)


def test_compare_says_when_no_agents_ran(tmp_path: Path, capsys: Capture) -> None:
    path = record(tmp_path / "idle.agenttop", tick(1.0))
    code, out, err = said(capsys, "compare", path, "--format", "json")
    assert (code, json.loads(out)["levels"]) == (0, [])
    assert err == f"agenttop: {path} has no level: no agents ran while it was recorded\n"


@pytest.mark.parametrize("command", [["compare"], ["export", "--to", "csv", "--table", "turns"]])
def test_a_file_that_is_no_recording_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: Capture, command: list[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a recording, just notes")
    code, out, err = said(capsys, command[0], path, *command[1:])
    assert (code, out, err) == (1, "", f"agenttop: {path} is not an agenttop recording\n")


# export


def test_turns_as_csv_have_the_promised_columns_and_a_row_each(ramp: Path, capsys: Capture) -> None:
    code, out, _ = said(capsys, "export", ramp, "--to", "csv", "--table", "turns")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    promised = "agent,turn,kind,t_sent,t_first_token,t_last_token,prompt_tokens,cached_tokens,output_tokens"
    promised += ",finish_reason,error"
    assert set(promised.split(",")) <= set(rows[0])
    with Recording(ramp) as recording:
        turns = recording.turns()
    assert [(row["agent"], int(row["turn"]), row["kind"]) for row in rows] == [
        (turn.agent, turn.turn, turn.turn_kind) for turn in turns
    ]
    assert [row["output_tokens"] for row in rows] == [
        "" if turn.output_tokens is None else str(turn.output_tokens) for turn in turns
    ]
    assert float(rows[0]["t_first_token"]) == turns[0].t_first_token


def test_json_lines_are_the_stream_of_the_session(ramp: Path, capsys: Capture) -> None:
    _, out, _ = said(capsys, "export", ramp, "--to", "jsonl")
    with Recording(ramp) as recording:
        assert [decode_frame(line.encode()) for line in out.splitlines()] == recording.frames()
    _, out, _ = said(capsys, "export", ramp, "--to", "jsonl", "--table", "events")
    assert {json.loads(line)["kind"] for line in out.splitlines()} == {"event"}


ABSENT = {"bye", "finding", "latency", "part", "process", "hardware"}
"""Kinds of which the recording has none."""


def test_all_tables_as_csv_go_into_a_folder(ramp: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "out"
    code, out, err = said(capsys, "export", ramp, "--to", "csv", "--out", folder)
    assert (code, out, err) == (0, "", f"wrote 14 tables into {folder}{os.sep}\n")
    kinds = {path.stem for path in folder.iterdir()}
    assert kinds == {kind_of(kind) for kind in FRAME_TYPES} - ABSENT
    with (folder / "plan.csv").open() as file:
        (plan,) = csv.DictReader(file)
    assert json.loads(plan["settings"]) == {"context": {"limit": 100_000}}


def test_parquet_keeps_types_and_arrival_times(ramp: Path, tmp_path: Path, capsys: Capture) -> None:
    import pandas

    path = tmp_path / "turns.parquet"
    assert said(capsys, "export", ramp, "--to", "parquet", "--table", "turns", "--out", path)[0] == 0
    frame = pandas.read_parquet(path)
    with Recording(ramp) as recording:
        turns = recording.turns()
    assert len(frame) == len(turns)
    assert list(frame["agent"]) == [turn.agent for turn in turns]
    assert len(frame["arrivals_us"][0]) == turns[0].events
    assert frame["error"].isna().sum() == sum(turn.error is None for turn in turns)


def test_parquet_without_pyarrow_names_the_extra(
    ramp: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = said(capsys, "export", ramp, "--to", "parquet", "--out", tmp_path / "out")
    assert (code, err) == (
        1,
        "agenttop: Parquet needs the package pyarrow (pip install 'agenttop[parquet]')\n",
    )


def test_an_export_overwrites_nothing_and_needs_a_place(ramp: Path, tmp_path: Path, capsys: Capture) -> None:
    taken = tmp_path / "taken.csv"
    taken.write_text("precious")
    code, _, err = said(capsys, "export", ramp, "--to", "csv", "--table", "turns", "--out", taken)
    assert (code, taken.read_text()) == (2, "precious")
    assert err.startswith(f"agenttop: {taken} exists already")
    code, _, err = said(capsys, "export", ramp, "--to", "csv", "--out", "-")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = said(capsys, "export", ramp, "--to", "csv", "--table", "tokens")
    assert code == 2
    assert "there is no table 'tokens'" in err
    code, _, err = said(
        capsys, "export", ramp, "--to", "csv", "--table", "turns", "--out", tmp_path / "no" / "x.csv"
    )
    assert (code, err) == (
        1,
        f"agenttop: cannot write {tmp_path / 'no' / 'x.csv'}: no such file or directory\n",
    )


def test_foreign_text_is_no_formula_in_a_spreadsheet(tmp_path: Path, capsys: Capture) -> None:
    evil: list[Frame] = [
        Event(t=1.0, event="mark", text=text) for text in ("=1+1", "+x", "-2", "@cmd", 'a "b", c', "plain")
    ]
    path = record(tmp_path / "a.agenttop", evil)
    _, out, _ = said(capsys, "export", path, "--to", "csv", "--table", "events")
    texts = [row["text"] for row in csv.DictReader(io.StringIO(out))]
    assert texts == ["'=1+1", "'+x", "'-2", "'@cmd", 'a "b", c', "plain"]
    assert csv_cell(-2.5) == -2.5


def test_what_is_left_of_a_cut_recording_becomes_a_new_one(
    ramp: Path, tmp_path: Path, capsys: Capture
) -> None:
    cut = tmp_path / "cut.agenttop"
    cut.write_bytes(ramp.read_bytes()[:-5000])
    new = tmp_path / "rescued.agenttop"
    code, _, err = said(capsys, "compare", cut)
    assert code == 1
    assert "agenttop export cut.agenttop --to agenttop --out rescued.agenttop" in err
    code, _, err = said(capsys, "export", cut, "--to", "agenttop", "--out", new)
    assert code == 0
    assert "gaps where rows are lost" in err
    with Recording(new) as recording:
        assert recording.count(Turn) > 10
    assert said(capsys, "export", cut, "--to", "agenttop")[0] == 2


# list


def door(name: str, pid: int, **changes: object) -> Path:
    made = Door(
        session=name, pid=pid, host="box1", started_unix=1_796_066_099.0, token="secret-token", **changes
    )  # type: ignore[arg-type]
    path = paths.sessions() / f"{name}.json"
    path.write_bytes(msgspec.json.encode(made))
    return path


def test_list_shows_sessions_and_recordings(capsys: Capture) -> None:
    folder = paths.recordings()
    small(folder / "by-hand.agenttop", seconds=20)
    record(folder / "run.agenttop", session_frames([(1, 12), (3, 12)]), first=session(demo=True))
    record(folder / "idle.agenttop", tick(1.0))
    door(
        "20261130-1-box1-aa",
        os.getpid(),
        engines=["http://127.0.0.1:8080"],
        agents=4,
        recording=str(folder / "idle.agenttop"),
    )
    code, out, err = said(capsys, "list")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1][0] == "20261130-1-box1-aa"
    assert lines[1][3:] == ["4", "http://127.0.0.1:8080"]
    rows = {line[0]: line for line in lines if line and line[0].endswith(".agenttop")}
    assert list(rows) == ["by-hand.agenttop", "idle.agenttop", "run.agenttop"]
    assert rows["run.agenttop"][1:4] == ["box1", "llama.cpp", "(demo)"]
    assert rows["run.agenttop"][-2] == "1,3"
    assert "secret-token" not in out


def test_list_says_what_is_simulated(capsys: Capture) -> None:
    folder = paths.recordings()
    fast = session(simulated="RTX 5090", speedup=20.0)
    record(folder / "fast.agenttop", session_frames([(1, 12)]), first=fast)
    small(folder / "real.agenttop", seconds=5, agents=1)
    door("fast", os.getpid(), engines=["http://127.0.0.1:8080"], simulated="RTX 5090", speedup=20.0)
    _, out, _ = said(capsys, "list")
    marked = [line.split()[0] for line in out.splitlines() if "(RTX 5090 sim, 20x)" in line]
    assert marked == ["fast", "fast.agenttop"]
    _, out, _ = said(capsys, "list", "--json")
    told = json.loads(out)
    rows = [*told["sessions"], *told["recordings"]]
    assert [(row["simulated"], row["speedup"]) for row in rows] == [("RTX 5090", 20.0)] * 2 + [(None, 1.0)]


def test_list_as_json_and_the_dead_are_left_out(capsys: Capture) -> None:
    folder = paths.recordings()
    small(folder / "a.agenttop", seconds=20)
    door("alive", os.getpid(), recording=str(folder / "a.agenttop"))
    dead = door("dead", 2**22 + 12345)
    _, out, _ = said(capsys, "list", "--json")
    told = json.loads(out)
    assert told["schema"] == 1
    assert [session["session"] for session in told["sessions"]] == ["alive"]
    assert not dead.exists()
    (row,) = told["recordings"]
    assert (row["path"], row["recording_now"], row["agents_max"]) == (str(folder / "a.agenttop"), True, 3)
    assert row["size_bytes"] == (folder / "a.agenttop").stat().st_size
    assert row["duration_s"] > 20


def test_a_broken_recording_has_its_sentence_in_the_list(capsys: Capture) -> None:
    folder = paths.recordings()
    whole = small(folder / "whole.agenttop", seconds=5)
    (folder / "cut.agenttop").write_bytes(whole.read_bytes()[:9000])
    (folder / "empty.agenttop").touch()
    (folder / "folder.agenttop").mkdir()
    code, out, _ = said(capsys, "list")
    assert code == 0
    assert f"{folder / 'cut.agenttop'} is cut short: its end is missing" in out
    assert f"{folder / 'empty.agenttop'} is empty, not a recording" in out
    assert f"{folder / 'folder.agenttop'} is a folder, not a recording" in out
    _, out, _ = said(capsys, "list", "--json")
    assert sum("error" in row for row in json.loads(out)["recordings"]) == 3


def test_a_file_name_cannot_act_on_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    made = small(tmp_path / "a.agenttop", seconds=5, agents=1)
    named = paths.recordings() / "a\x1b[31mred\x07\u202e.agenttop"
    shutil.move(made, named)
    for words in (["list"], ["compare", named], ["replay", f"{named}x"], ["compare", named.parent / "\x1b"]):
        _, out, err = said(capsys, *words)
        assert not {"\x1b", "\x07", "\u202e"} & set(out + err)
    named.unlink()


def test_one_time_ages_away_does_not_hold_up_an_export(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path / "a.agenttop", seconds=5, agents=1)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute('UPDATE "event" SET "t" = 1e15 WHERE "seq" = (SELECT max("seq") FROM "event")')
        database.execute(
            'UPDATE "commits" SET "t_high" = 1e15 WHERE "seq" ='
            ' (SELECT min("seq") FROM "commits" WHERE "seq" >= (SELECT max("seq") FROM "event"))'
        )
        database.commit()
    code, out, _ = said(capsys, "export", path, "--to", "jsonl")
    assert code == 0
    with Recording(path) as recording:
        assert len(out.splitlines()) == len(recording.frames())


def test_nothing_to_list_is_said(capsys: Capture) -> None:
    shutil.rmtree(paths.recordings())
    code, out, _ = said(capsys, "list")
    assert (code, out) == (
        0,
        f"no session runs on this host\n\nno recordings in {paths.recordings()}\n",
    )


def test_tables_of_text() -> None:
    rows = [("a", "1"), ("long", "22")]
    assert aligned(("name", "n"), rows) == "name   n\na      1\nlong  22\n"
    assert markdown(("name", "n"), [("a|b", "1")]) == "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n"
