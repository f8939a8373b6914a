"""The recordings that come with the source: small, readable, replayable, comparable."""

import json
from pathlib import Path

import pytest

from tests.commands.test_cli import agenttop

FOLDER = Path(__file__).parents[2] / "recordings"
FILES = sorted(FOLDER.glob("*.agenttop"))


def test_there_are_two_or_three_of_them_and_they_are_small():
    assert 2 <= len(FILES) <= 3
    assert all(file.stat().st_size < 500_000 for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_replays_to_a_picture_with_its_agents(file):
    done = agenttop("replay", str(file), "--at", "1:00")
    assert done.returncode == 0, done.stderr
    assert "llama.cpp" in done.stdout
    assert "a1" in done.stdout


def test_they_compare_level_by_level():
    done = agenttop("compare", *map(str, FILES), "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    assert len(report["levels"]) >= len(FILES)
    for level in report["levels"]:
        assert level["turns"] > 0
        assert level["decode_tok_s"] > 0
        assert level["preemptions"] is None
        assert level["valid"] in (True, False)
        assert (level["why_invalid"] is None) == level["valid"]


def test_turns_export_with_the_columns_scripts_rely_on():
    done = agenttop("export", str(FILES[0]), "--to", "csv", "--table", "turns")
    assert done.returncode == 0, done.stderr
    header = done.stdout.splitlines()[0].split(",")
    times = "t_sent,t_first_token,t_last_token"
    counts = "prompt_tokens,cached_tokens,output_tokens"
    wanted = f"agent,turn,kind,{times},{counts},finish_reason,error"
    assert set(wanted.split(",")) <= set(header)


def test_nothing_in_them_names_a_place_it_was_made_at():
    for file in FILES:
        content = file.read_bytes()
        assert b"/home/" not in content
        assert b"/root" not in content
