"""`agenttop run --find-knee` from the command line, on an engine whose knee is planted."""

import json
import subprocess
import sys

import pytest

from agenttop.model.frames import Finding, Level
from agenttop.record.read import Recording

PROFILE = """
description = "Short turns without pauses: as many requests run as there are agents"
[start]
kind = "at-once"
[context]
limit = 3000
system = 150
first = 300
[turn]
input = { kind = "uniform", min = 40, max = 120 }
output = { kind = "uniform", min = 120, max = 280 }
[compaction]
to_fraction = 0.3
summary = 60
[pacing]
tool_pause_s = 0.2
[request]
ignore_eos = true
"""


@pytest.fixture
def profile(tmp_path):
    file = tmp_path / "short.toml"
    file.write_text(PROFILE)
    return str(file)


def agenttop(*words):
    return subprocess.run(
        [sys.executable, "-m", "agenttop", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.slow
def test_a_planted_knee_is_found_within_one_level(start_sim, profile, tmp_path):
    engine = start_sim(host="rtx-5090", plant="step=0.1,knee=3", speedup=50, seed=1)
    out = tmp_path / "knee.agenttop"
    wish = ("--find-knee", "--max-agents", 8, "--budget", "16m", "--slo", "decode>=7@80%")
    done = agenttop("run", profile, *wish, "--json", "--url", engine.url, "--out", out)
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1
    assert answer["recording"] == str(out)
    levels, report = answer["levels"], answer["knee"]
    assert levels[0]["agents"] == 1
    assert all(level["simulated"] and level["agents"] <= 8 for level in levels)
    assert report["search"]["levels"] == len(levels)
    assert report["search"]["spent_s"] <= 16 * 60 + 60
    assert "all times" not in done.stdout, "JSON and nothing else"
    slow_machine = [level for level in levels if "client" in (level["why_invalid"] or "")]
    if not slow_machine:
        assert done.returncode == 0, done.stderr
        tested = sorted({3, *(level["agents"] for level in levels)})
        found = report["knee"]["agents"]
        assert found is not None, report["sentence"]
        assert abs(tested.index(found) - tested.index(3)) <= 1
        assert report["capacity"]["agents"] is not None
        assert report["capacity"]["agents"] <= 5, "with eight agents each has less than 4 tok/s"
    with Recording(out) as recording:
        findings = recording.of(Finding)
        assert findings[-1].report["knee"] == report["knee"]
        assert len(findings) == len(levels) + 1, "one after each level, and the answer"
        assert [level.agents for level in recording.of(Level)] == [level["agents"] for level in levels]


def test_an_engine_that_refuses_everything_is_no_answer(start_sim, profile):
    engine = start_sim(fault=["5xx"], speedup=20)
    done = agenttop(
        *(
            "run",
            profile,
            "--find-knee",
            "--max-agents",
            4,
            "--budget",
            "10m",
            "--headless",
            "--url",
            engine.url,
        )
    )
    assert done.returncode == 1
    assert "every request of the first level failed" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_engine_that_goes_down_in_the_middle_is_no_cliff(start_sim, profile):
    engine = start_sim(fault=["restart=24h@after=8"], plant="step=0.1,knee=3", speedup=50)
    wish = ("--find-knee", "--max-agents", 4, "--budget", "30m", "--json")
    done = agenttop("run", profile, *wish, "--url", engine.url)
    report = json.loads(done.stdout)["knee"]
    assert report["search"]["cut_short"] is True, (report["search"], done.stderr[-2500:])
    assert report["search"]["ended"].startswith("the engine went down with"), report["search"]
    assert report["cliff"]["agents"] is None, report["cliff"]


@pytest.mark.slow
def test_settled_levels_meet_an_slo_or_not_and_say_that_time_is_simulated(start_sim, profile):
    engine = start_sim(host="rtx-5090", plant="step=0.1,knee=2", speedup=40, seed=1)
    wish = ("--levels", "1,4", "--at-most", "100s", "--slo", "decode>=7", "--set", "context.limit=2k")
    done = agenttop("run", profile, *wish, "--headless", "--url", engine.url)
    assert "40 times faster than life" in done.stdout
    assert "level 2 of 2: 4 agents" in done.stderr
    assert done.stderr.count(" ends: ") == 2
    assert "capacity" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--find-knee", "--for", "5m"), "--for does not go with --find-knee"),
        (("--find-knee", "--at-most", "5m"), "--at-most does not go with --find-knee"),
        (("--find-knee", "--cold"), "--cold does not go with --find-knee"),
        (("--find-knee", "--max-agents", "0"), "--max-agents 0 is out of range"),
        (("--find-knee", "--budget", "0"), "--budget 0 leaves no time"),
        (("--find-knee", "--slo", "speed>=3"), "knows no 'speed'"),
        (("--levels", "1,2", "--budget", "5m"), "--budget belongs to a search"),
        (("--levels", "1,2", "--for", "5m", "--at-most", "5m"), "exclude each other"),
        (("--agents", "2", "--at-most", "0"), "--at-most 0 leaves no time"),
        (("--agents", "2", "--set", "context.limit"), "is not KEY=VALUE"),
        (("--agents", "2", "--set", "context.speed=3"), "context.speed"),
        (("--find-knee", "--levels", "1,2"), "not allowed with argument"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_starts(words, says):
    done = agenttop("run", "human", *words, "--url", "http://127.0.0.1:9", "--headless")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
