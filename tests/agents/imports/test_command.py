"""`agenttop profile import`: what is written, what is said, what is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agenttop.agents.imports.detect import NAMES
from agenttop.agents.profile import read
from agenttop.agents.tracefile import TraceFile
from agenttop.cli import main
from agenttop.commands.profile_import import FORMATS
from tests.agents.imports.files import Log, lines, request, weka


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Three sessions and a damaged file in a folder."""
    folder = tmp_path / "traces"
    for number in range(3):
        requests = [
            request(n * 60.0, 4000 + 900 * n, 150 + n, "tool_use", think_time=5.0 + n, api_time=3.0)
            for n in range(20 + number)
        ]
        requests[6]["stop"] = "end_turn"
        lines(folder / f"t{number}.json", [weka(requests)])
    lines(folder / "odd.jsonl", ["{not json"])
    return folder


def run(*arguments: Any) -> int:
    return main(["profile", "import", *map(str, arguments)])


def test_the_command_knows_every_format() -> None:
    assert set(FORMATS) == set(NAMES)


def test_a_trace_profile_and_its_trace(
    traces: Path, private_places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(traces, "--name", "mine") == 0
    text = capsys.readouterr().out
    assert "read 3 sessions, 63 turns (files: 3 weka; sizes as counted by their engine)" in text
    assert "left out: 1 files of no known format" in text
    profile = read(private_places / "profiles" / "mine.toml")
    assert profile.trace is not None
    assert profile.description == "3 recorded sessions (weka), replayed"
    trace = TraceFile(Path(profile.trace.file))
    assert [len(one.turns) for one in trace.sessions()] == [20, 21, 22]
    assert (trace.head.sessions, trace.head.turns, trace.head.format) == (3, 63, ["weka"])
    assert main(["profile", "check", "mine"]) == 0
    if os.name == "posix":
        assert stat.S_IMODE(trace.path.stat().st_mode) == 0o600


def test_fitted_as_json(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fitted.toml"
    assert run(traces, "--as", "fitted", "--out", out, "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["schema"] == 1
    assert value["written"] == [str(out)]
    assert value["formats"] == {"weka": 3}
    fits = {fit["quantity"]: fit for fit in value["fits"]}
    assert set(fits) >= {"first", "input", "output", "tool pause", "human pause", "tool turns", "system"}
    assert fits["output"]["values"] == 63
    assert 0 <= fits["output"]["distance"] <= 1
    assert read(out).trace is None
    assert not list(tmp_path.glob("*.trace.jsonl"))


def test_nothing_is_overwritten(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.toml"
    (tmp_path / "mine.trace.jsonl").write_text("precious")
    assert run(traces, "--out", out) == 2
    assert "mine.trace.jsonl exists already" in capsys.readouterr().err
    assert not out.exists()
    assert (tmp_path / "mine.trace.jsonl").read_text() == "precious"


def test_a_name_comes_from_the_file(tmp_path: Path, private_places: Path) -> None:
    log = Log()
    log.person(0, "please")
    log.answer(4, "a", 3, 5000, 10_000, 120)
    log.result(9, "so")
    log.answer(12, "b", 3, 100, 15_000, 80)
    path = lines(tmp_path / "my log (2).jsonl.gz", log.lines)
    assert run(path) == 0
    assert sorted(file.name for file in (private_places / "profiles").iterdir()) == [
        "my-log-2.toml",
        "my-log-2.trace.jsonl",
    ]


def test_words_are_kept_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = {"messages": [{"role": "user", "content": "my secret"}, {"role": "assistant", "content": "yes"}]}
    path = lines(tmp_path / "chat.jsonl", [chat])
    assert run(path, "--out", tmp_path / "a.toml") == 0
    assert "my secret" not in (tmp_path / "a.trace.jsonl").read_text()
    assert "my secret" not in capsys.readouterr().out
    assert run(path, "--out", tmp_path / "b.toml", "--with-text") == 0
    assert "my secret" in (tmp_path / "b.trace.jsonl").read_text()
    assert run(path, "--out", tmp_path / "c.toml", "--with-text", "--as", "fitted") == 2


def test_nothing_usable_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = lines(tmp_path / "bad.jsonl", [{"input_length": "many", "timestamp": 1}] * 40)
    assert run(bad, "--out", tmp_path / "x.toml") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nothing in" in error
    assert "bad.jsonl:1: input_length: expected a number of tokens, found many" in error
    assert list(tmp_path.iterdir()) == [bad]
    assert run(tmp_path / "not there", "--out", tmp_path / "x.toml") == 1
    assert "no such file" in capsys.readouterr().err


def test_lines_that_may_be_either_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"session_id": "a", "input_length": size, "output_length": 9} for size in (500, 900)]
    path = lines(tmp_path / "m.jsonl", rows)
    assert run(path, "--out", tmp_path / "m.toml") == 2
    assert "say which with --cumulative or --delta" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]
    assert run(path, "--out", tmp_path / "m.toml", "--delta", "--format", "mooncake") == 0
    [session] = TraceFile(tmp_path / "m.trace.jsonl").sessions()
    assert [turn.prompt for turn in session.turns] == [500, 1409]


def test_more_sessions_than_wanted_are_not_read(traces: Path, tmp_path: Path) -> None:
    assert run(traces, "--limit", "2", "--out", tmp_path / "m.toml") == 0
    assert len(TraceFile(tmp_path / "m.trace.jsonl")) == 2
