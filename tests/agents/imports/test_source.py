"""Files as they come: compressed, cut off, enormous, of no known kind."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from agenttop.agents.imports import source
from agenttop.agents.imports.detect import detect
from agenttop.agents.imports.reading import files_in
from agenttop.agents.imports.source import Report, Source
from agenttop.errors import AgenttopError
from tests.agents.imports.files import lines, read


def values(path: Path) -> tuple[list[dict[str, object]], Report]:
    report = Report()
    return [value for _, value in Source(path, report).values()], report


def test_lines_an_array_and_one_document_are_told_apart(tmp_path: Path) -> None:
    some = [{"a": 1}, {"b": {"c": [2]}}]
    assert values(lines(tmp_path / "lines", some))[0] == some
    (tmp_path / "array").write_text(" \n" + json.dumps(some, indent=3))
    assert values(tmp_path / "array")[0] == some
    (tmp_path / "document").write_text("\n" + json.dumps(some[1], indent=3))
    assert values(tmp_path / "document")[0] == [some[1]]
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + b'{"a": 1}\r\n\r\n{"a": 2}')
    assert values(tmp_path / "marked")[0] == [{"a": 1}, {"a": 2}]


def test_a_first_line_that_is_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    found, report = values(lines(tmp_path / "lines", ['{"a": ', {"b": 1}, {"c": 2}]))
    assert found == [{"b": 1}, {"c": 2}]
    assert report.named == [f"{tmp_path / 'lines'}:1: not JSON"]


def test_many_damaged_lines_are_counted_and_a_few_named(tmp_path: Path) -> None:
    _, report = values(lines(tmp_path / "lines", [{"a": 1}, *["nonsense"] * 90]))
    assert report.skipped == 90
    assert len(report.named) == 5


def test_a_compressed_file_that_is_cut_gives_its_beginning(tmp_path: Path) -> None:
    text = "".join(json.dumps({"n": n, "pad": os.urandom(40).hex()}) + "\n" for n in range(2000))
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(text.encode())[:-30_000])
    found, report = values(path)
    assert 500 < len(found) < 2000
    assert [value["n"] for value in found] == list(range(len(found)))
    assert "cannot be read to its end" in report.named[-1]


def test_a_file_of_nothing_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_BLANK", 8192)
    (tmp_path / "blank").write_bytes(b"\n" * 4000 + b'{"a": 1}')
    assert values(tmp_path / "blank")[0] == [{"a": 1}]
    (tmp_path / "blank").write_bytes(b"\n" * 50_000 + b'{"a": 1}')
    assert values(tmp_path / "blank")[0] == []


def test_a_line_too_long_to_hold_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 8192)
    long = {"pad": "x" * 50_000}
    found, report = values(lines(tmp_path / "lines", [{"a": 1}, long, {"b": 2}]))
    assert found == [{"a": 1}, {"b": 2}]
    assert report.skipped == 1
    found, report = values(lines(tmp_path / "lines", [{"a": 1}, json.dumps([long])]))
    assert found == [{"a": 1}]


def test_deep_nesting_and_wrong_bytes_are_damage_like_other_damage(tmp_path: Path) -> None:
    deep = '{"a":' * 20_000
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n' + deep.encode() + b"\n\xff\xfe\x00\n")
    found, report = values(path)
    assert found == [{"a": 1}]
    assert report.skipped == 2
    (tmp_path / "array").write_text("[" * 20_000)
    assert values(tmp_path / "array")[1].skipped == 1


def test_formats_are_found_out_behind_lines_that_could_be_anything(tmp_path: Path) -> None:
    log = [
        {"type": "summary", "summary": "x", "leafUuid": "u1"},
        {"type": "mode", "mode": "plan"},
        {"type": "user", "sessionId": "s", "parentUuid": None, "message": {}},
    ]
    assert detect(lines(tmp_path / "log.jsonl", log)) == "claude-code"
    assert detect(lines(tmp_path / "other.jsonl", [{"Timestamp": 5, "Request tokens": 7}])) is None
    assert detect(lines(tmp_path / "bailian.jsonl", [{"chat_id": 1, "input_length": 5, "turn": 1}])) is None


def test_what_is_no_recording_of_agents_is_one_sentence(tmp_path: Path) -> None:
    path = lines(tmp_path / "other.jsonl", [{"x": 1}])
    with pytest.raises(AgenttopError, match="no format of recorded agents") as caught:
        read(path)
    assert "weka" in (caught.value.hint or "")


def test_of_many_files_an_odd_one_is_left_out(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    lines(tmp_path / "in" / "a.jsonl", [chat])
    lines(tmp_path / "in" / "deep" / "b.jsonl.gz", [chat])
    lines(tmp_path / "in" / "settings.json", [{"theme": "dark"}])
    lines(tmp_path / "in" / "readme.txt", ["hello"])
    files = files_in([str(tmp_path / "in"), str(tmp_path / "in" / "a.jsonl")])
    assert [file.name for file in files] == ["a.jsonl", "b.jsonl.gz", "settings.json"]
    sessions, reading = read(*files)
    assert len(sessions) == 2
    assert reading.report.left_out == {"files of no known format": 1}


def test_places_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, why in (("empty", "no .json or .jsonl file"), ("nowhere", "no such file")):
        with pytest.raises(AgenttopError, match=why):
            files_in([str(tmp_path / place)])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AgenttopError, match="not a regular file"):
        read(tmp_path / "pipe")
