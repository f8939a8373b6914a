"""`agenttop knee` as it is typed: recordings and tables, words and JSON, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from agenttop.cli import main
from tests.record.build import record, session, session_frames, tick

Capture = pytest.CaptureFixture[str]

ONE_BUDGET = (
    "quant,agents,completions_per_min,wait_s,prefill_tok_s\n"
    'Q8_K_XL,3,1.54,112,"1,481"\nQ6_K_XL,5,1.63,168,"1,582"\nQ4_K_M,9,1.52,330,"1,572"\n'
)

CLIFF = (
    "agents;decode_tok_s;decode_tok_s_per_agent;preemptions;kv_max_fraction\n"
    "1;50;50;0;10%\n2;99;50;0;20%\n4;195;49;0;40%\n8;360;46;0;80%\n12;390;33;0;95%\n16;400;26;0;97%\n24;210;12;44;100%\n"
)


def said(capture: Capture, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capture.readouterr()
    return code, out, err


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "levels.csv"
    path.write_text(CLIFF, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def climb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(
        tmp_path_factory.mktemp("climb") / "climb.agenttop", session_frames([(1, 60), (2, 60), (4, 60)])
    )


def test_a_published_table_leads_to_its_authors_conclusion(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "slots.csv"
    path.write_text(ONE_BUDGET, encoding="utf-8")
    code, out, err = said(capsys, "knee", "--table", path)
    assert code == 0
    assert err == "agenttop: columns not used: quant\n"
    assert out.startswith("5 agents are the soft ceiling: from 3 to 9 the total hardly moves")
    assert "while the wait grows 2.9 times" in out
    assert "soft ceiling: 5 agents" in out  # of the chart
    assert "1.63" in out
    _, out, _ = said(capsys, "knee", "--table", path, "--json")
    told = json.loads(out)
    assert (told["measure"], told["knee"]["agents"], told["cliff"]["agents"]) == (
        "completions_per_min",
        5,
        None,
    )


def test_knee_cliff_and_capacity_are_told_in_words_with_a_chart(table: Path, capsys: Capture) -> None:
    code, out, err = said(capsys, "knee", "--table", table, "--slo", "decode>=30")
    assert (code, err) == (0, "")
    assert out.startswith("The knee is at ")
    assert "cliff lies between 16 and 24 (KV pool full)" in out.replace("\n", " ")
    assert "12 agents meet decode>=30" in out.replace("\n", " ")
    assert "○ knee: " in out
    assert "cliff: 24 agents" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    rows = [line for line in out.splitlines() if line.strip().startswith("24  ")]
    assert rows
    assert rows[0].endswith("cliff")
    _, bare, _ = said(capsys, "knee", "--table", table, "--no-chart")
    assert "○" not in bare


def test_json_has_the_promised_shape(table: Path, capsys: Capture) -> None:
    _, out, _ = said(capsys, "knee", "--table", table, "--json", "--slo", "decode>=30@90%")
    told = json.loads(out)
    assert told["schema"] == 1
    assert {"agents", "low", "high", "second_opinion", "why"} <= set(told["knee"])
    assert (told["cliff"]["agents"], told["cliff"]["cause"]) == (24, "KV pool full")
    assert (told["capacity"]["agents"], told["capacity"]["slo"]) == (12, "decode>=30@90%")
    assert {"serial_fraction", "crosstalk"} <= set(told["scaling"])
    assert told["floor"] is None
    assert told["sentence"].endswith(".")
    _, out, _ = said(capsys, "knee", "--table", table, "--json")
    assert json.loads(out)["capacity"] is None


def test_a_table_may_come_through_a_pipe(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CLIFF.encode()), encoding="utf-8"))
    code, out, _ = said(capsys, "knee", "--table", "-", "--json")
    assert (code, json.loads(out)["cliff"]["agents"]) == (0, 24)


def test_a_recording_is_analysed_with_its_requests(climb: Path, capsys: Capture) -> None:
    code, out, err = said(capsys, "knee", climb, "--json", "--slo", "decode>=20,ttft<=10s")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["measure"] == "decode_tok_s"
    assert told["noise_from"] == "requests"
    assert told["capacity"]["agents"] == 4
    assert all(level["requests"] > 5 for level in told["capacity"]["levels"])
    assert told["knee"]["agents"] is None


def test_a_simulated_host_is_said_first(climb: Path, tmp_path: Path, capsys: Capture) -> None:
    first = session(simulated="RTX 5090", speedup=20.0)
    path = record(tmp_path / "sim.agenttop", session_frames([(1, 60), (2, 60), (4, 60)]), first=first)
    _, out, _ = said(capsys, "knee", path, "--no-chart")
    assert out.startswith("SIMULATED RTX 5090, 20x: nothing here was measured\n")
    _, out, _ = said(capsys, "knee", path, "--json")
    assert json.loads(out)["simulated"] == "RTX 5090, 20x"
    _, out, _ = said(capsys, "knee", climb, "--no-chart")
    assert "SIMULATED" not in out


def test_several_recordings_are_told_one_after_the_other(climb: Path, capsys: Capture) -> None:
    code, out, _ = said(capsys, "knee", climb, "--file", climb, "--no-chart")
    assert code == 0
    assert out.count("climb.agenttop\n") == 2
    _, out, _ = said(capsys, "knee", climb, climb, "--json")
    assert [report["file"] for report in json.loads(out)["reports"]] == [str(climb)] * 2


def test_recordings_may_be_taken_as_one_curve(tmp_path: Path, capsys: Capture) -> None:
    paths = [
        record(tmp_path / f"{agents}.agenttop", session_frames([(agents, 60)], rate=60 / agents))
        for agents in (1, 2, 4)
    ]
    code, out, _ = said(capsys, "knee", *paths, "--together", "--json")
    told = json.loads(out)
    assert code == 0
    assert [(step["start"], step["end"]) for step in told["steps"]] == [(1, 2), (2, 4)]


def test_without_a_name_it_takes_the_newest_recording(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTTOP_RECORDINGS", str(tmp_path))
    code, _, err = said(capsys, "knee")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no recording yet" in err
    for age, name in ((100, "old"), (0, "new")):
        path = record(tmp_path / f"{name}.agenttop", session_frames([(1, 50), (2, 50)]))
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    code, out, err = said(capsys, "knee", "--json")
    assert (code, err) == (0, f"agenttop: {tmp_path / 'new.agenttop'}\n")
    assert json.loads(out)["knee"]["agents"] is None


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--table", "nowhere.csv"], 2, "nowhere.csv cannot be read: No such file"),
        (["--table", "."], 2, ". cannot be read: "),
        (["--table", "{table}", "{climb}"], 2, "--table does not go with recordings"),
        (["--table", "{table}", "--slo", "fast"], 2, "'fast' is not a condition of an SLO"),
        (["--table", "{binary}"], 2, "is not UTF-8 text"),
        (["{table}"], 1, "is not an agenttop recording"),
        (["{idle}"], 1, "has no level: no agents ran while it was recorded"),
    ],
)
def test_what_cannot_be_judged_is_one_line(
    words: list[str], code: int, why: str, table: Path, climb: Path, tmp_path: Path, capsys: Capture
) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)))
    idle = record(tmp_path / "idle.agenttop", tick(1.0))
    filled = [word.format(table=table, climb=climb, binary=binary, idle=idle) for word in words]
    made, out, err = said(capsys, "knee", *filled)
    assert (made, out, err.count("\n")) == (code, "", 1)
    assert why in err


def test_control_characters_in_a_table_do_not_reach_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("agents,decode_tok_s,\x1b[31mred\n1,2,3\n", encoding="utf-8")
    _, out, err = said(capsys, "knee", "--table", path)
    assert "\x1b" not in out + err


def test_compare_says_of_a_recording_what_knee_says(climb: Path, capsys: Capture) -> None:
    _, report, _ = said(capsys, "knee", climb, "--json")
    _, compared, _ = said(capsys, "compare", climb, "--format", "json")
    sentence = json.loads(report)["sentence"].rstrip(".")
    told = json.loads(compared)["story"]
    assert any(line.endswith(sentence[0].lower() + sentence[1:]) for line in told), (sentence, told)
