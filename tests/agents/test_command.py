"""`agenttop profile list|show|check`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agenttop import paths
from agenttop.cli import main
from tests.agents.profiles import DEFAULTS, TEXT


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    code = main(["profile", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list(capsys) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert any(line.startswith("busy") and "12" in line for line in out.splitlines())
    folder = paths.user_profiles()
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("agents = 3")
    code, out, _ = run(capsys, "list", "--json")
    listed = json.loads(out)
    assert listed["schema"] == 1
    by_name = {entry["name"]: entry for entry in listed["profiles"]}
    assert by_name["human"]["agents"] == 4
    assert not by_name["human"]["own"]
    assert by_name["broken"]["own"]
    assert "description: missing" in by_name["broken"]["error"]


def test_show(capsys) -> None:
    code, out, _ = run(capsys, "show", "human")
    assert code == 0
    assert "context.limit            100000" in out
    assert "log-normal, median 742" in out
    code, out, _ = run(capsys, "show", "human", "--context", "4096", "--json")
    shown = json.loads(out)
    assert shown["profile"]["context"]["limit"] < 4096
    assert shown["notes"][0].startswith("context limit 100000 → ")


def test_show_of_nothing(capsys) -> None:
    code, out, err = run(capsys, "show", "humna")
    assert (code, out) == (2, "")
    assert "did you mean human?" in err


def test_check(capsys, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(TEXT.format(**DEFAULTS))
    bad.write_text(TEXT.format(**DEFAULTS).replace("agents", "agnets"))
    code, out, _ = run(capsys, "check", str(good), "busy")
    assert code == 0
    assert f"{good}: fine" in out
    code, out, _ = run(capsys, "check", str(good), str(bad))
    assert code == 1
    assert f"{bad}:3: agnets: not a key of a profile; nearest: agents" in out
    code, out, _ = run(capsys, "check", str(bad), "--json")
    assert code == 1
    report = json.loads(out)
    assert report["schema"] == 1
    assert len(report["files"][0]["problems"]) == 1
    code, out, _ = run(capsys, "check", str(tmp_path / "none.toml"))
    assert code == 1
    assert "no such file" in out


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("words", [[], ["--agents", "8", "--for", "10m"], ["--context", "32768"]])
def test_what_is_shown_fits_the_terminal(
    width: int, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(capsys, "show", "human", *words)
    assert max(map(len, out.splitlines())) <= width
    words_of = " ".join(out.split())
    if not words:
        assert "log-normal, median 742, 90 % within 122 to 4534" in words_of
        assert "Tokens of prompt and output at which the context is compacted" in words_of or width > 80


def test_through_a_pipe_it_is_120_columns_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("os.get_terminal_size", _no_terminal)
    _, out, _ = run(capsys, "show", "human", "--agents", "8", "--for", "10m")
    assert 110 < max(map(len, out.splitlines())) <= 120


def _no_terminal(*_: object) -> os.terminal_size:
    raise OSError("not a terminal")
