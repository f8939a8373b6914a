"""Answers to probes where recordings are compared and exported."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from agenttop.cli import main
from agenttop.model.frames import Frame, Turn
from tests.record.build import record, session_frames


def answered(frames: list[Frame], every: int, wrong: int) -> list[Frame]:
    """Every so many turns asked for a fact; of the answers each `wrong`-th is a leak, none with 0."""
    made: list[Frame] = []
    asked = seen = 0
    for frame in frames:
        if isinstance(frame, Turn) and frame.error_kind is None:
            seen += 1
            if seen % every == 0:
                asked += 1
                verdict = "leaked" if wrong and asked % wrong == 0 else "right"
                frame = msgspec.structs.replace(frame, probe=verdict, probe_detail="depth 50%")
        made.append(frame)
    return made


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Nothing asked; all right; every third answer a leak."""
    plain = session_frames([(1, 60), (4, 60)])
    paths = tmp_path / "plain.agenttop", tmp_path / "good.agenttop", tmp_path / "bad.agenttop"
    for path, frames in zip(paths, (plain, answered(plain, 2, 0), answered(plain, 2, 3)), strict=True):
        record(path, frames)
    return paths


def test_without_questions_nothing_is_added(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(files[0])]) == 0
    assert "probes" not in capsys.readouterr().out
    assert main(["compare", str(files[0]), "--format", "json"]) == 0
    assert not {"probes", "probe_notes"} & set(json.loads(capsys.readouterr().out))


def test_a_small_table_stands_below_the_levels(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, files)]) == 0
    text = capsys.readouterr().out
    head, *lines = text[text.index("\nprobes ") + 1 :].splitlines()
    assert " ".join(head.split()) == (
        "probes level agents asked right wrong region leaked truncated no answer recall 95 %"
    )
    body = [line.split() for line in lines[: lines.index("")]]
    assert max(len(line) for line in [head, *lines]) <= 120
    rows = [line for line in body if line[0] == "good.agenttop"]
    whole = rows[-1]
    assert whole[1] == "all"
    assert whole[3] == whole[4]
    assert whole[9 - 1] == "0"
    assert "bad.agenttop: " in text
    assert "held a number of another agent: prompts are mixed up" in text
    assert "could not be told apart" in text or "answered more of its questions right" in text


def test_two_that_got_everything_right_are_a_tie(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(files[1]), str(files[1])]) == 0
    text = capsys.readouterr().out
    assert "could not be told apart: both answered every question right" in text


def test_json_and_markdown(files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(files[2]), "--format", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    whole = value["probes"][-1]
    assert whole["level"] is None
    assert whole["verdicts"]["leaked"] == whole["asked"] - whole["verdicts"]["right"] > 0
    assert whole["recall_low"] < whole["recall"] < whole["recall_high"]
    assert "mixed up" in value["probe_notes"][0]
    assert main(["compare", str(files[2]), "--format", "markdown"]) == 0
    assert "| probes | level |" in capsys.readouterr().out


def test_the_export_of_turns_has_the_verdicts(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(files[2]), "--to", "csv", "--table", "turns"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    place = head.split(",").index("probe")
    assert {"right", "leaked", ""} == {row.split(",")[place] for row in rows}
    assert "probe_detail" in head
