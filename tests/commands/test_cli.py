"""The command line: fast, light, and clear when it is misused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agenttop.cli import COMMANDS, main

HEAVY = (
    "textual",
    "rich",
    "pandas",
    "numpy",
    "httpx",
    "asyncio",
    "msgspec",
    "psutil",
    "pynvml",
    "plotext",
    "agenttop.model",
)


def agenttop(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "agenttop", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )


def imported(*arguments):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "agenttop", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    return {
        line.rsplit("|", 1)[-1].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }


def test_help_imports_nothing_heavy():
    modules = imported("--help")
    assert not [name for name in modules if name.startswith(HEAVY)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_works_and_stays_light(command):
    modules = imported(command, "--help")
    assert not [name for name in modules if name.startswith(("textual", "pandas", "httpx", "asyncio"))]


def test_help_takes_little_more_than_the_interpreter_itself():
    def seconds(*argv):
        import time

        best = 9.0
        for _ in range(5):
            begun = time.perf_counter()
            subprocess.run(argv, capture_output=True, check=True, timeout=60)
            best = min(best, time.perf_counter() - begun)
        return best

    bare = seconds(sys.executable, "-c", "import argparse")
    assert seconds(sys.executable, "-m", "agenttop", "--help") < 4 * bare


def test_help_names_every_command_and_the_exit_codes():
    text = agenttop("--help").stdout
    assert all(f"\n    {name} " in text for name in COMMANDS)
    assert "exit codes: 0 fine, 1 the run or check failed, 2 wrong usage" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "ftp://x", "once"], "ftp://x"),
        (["once", "--url", "not a url"], "not a url"),
        (["once", "--window", "soon"], "'soon' is not a duration"),
        (["run", "human"], "needs exactly one engine"),
        (["run", "humna", "--url", "http://127.0.0.1:1"], "did you mean human"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--levels", "4,x"], "not a list of numbers"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--levels", "4,0"], "at least one agent"),
        (["--no-record", "run", "human", "--url", "http://127.0.0.1:1"], "always recorded"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--agents", "99999"], "too many"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--pace", "0"], "--pace 0 is out of range"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--pace", "nan"], "--pace nan is out of range"),
        (["run", "human", "--url", "http://127.0.0.1:1", "--for", "0s"], "no time for a level"),
        (["demo", "--headless", "--for", "1s", "--agents", "-1"], "--agents -1 is out of range"),
        (["replay", "x.agenttop", "--at", "noon"], "'noon' is not a"),
        (["once", "--api-key-env", "NO_SUCH_VARIABLE_HERE"], "NO_SUCH_VARIABLE_HERE is not set"),
        (["attach", "nothing-like-it"], "no session runs"),
        (["frobnicate"], "invalid choice"),
        (["--frobnicate"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_two_or_one(arguments, says):
    done = agenttop(*arguments)
    assert done.returncode in ((1,) if "attach" in arguments else (2,))
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_exists_is_not_recorded_over(tmp_path):
    target = tmp_path / "old.agenttop"
    target.write_text("precious")
    done = agenttop("run", "human", "--url", "http://127.0.0.1:1", "--out", str(target))
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert target.read_text() == "precious"


def test_a_fault_of_ours_is_one_line_unless_asked_for(monkeypatch, capsys):
    from agenttop.commands import list_

    def broken(_arguments):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(list_, "run", broken)
    assert main(["list"]) == 1
    assert "internal error: ZeroDivisionError: boom" in capsys.readouterr().err
    monkeypatch.setenv("AGENTTOP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["list"])


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    for words in (["list"], ["demo", "--headless", "--for", "1s"]):
        done = agenttop(*words, AGENTTOP_RECORDINGS=str(blocked / "x"))
        assert done.returncode == 1
        assert f"the folder {blocked / 'x'} cannot be made: not a directory" in done.stderr
        assert "AGENTTOP_RECORDINGS" in done.stderr
    done = agenttop("doctor", AGENTTOP_RECORDINGS=str(blocked / "x"))
    assert "✗ recordings" in done.stdout


def test_doctor_looks_around_where_no_session_can_have_a_door(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = agenttop("doctor", AGENTTOP_RUNTIME=str(blocked), HOME=str(blocked), XDG_CACHE_HOME="")
    assert "✗ sessions" in done.stdout, done.stderr
    assert "✓ memory" in done.stdout


def test_glyphs_that_the_output_does_not_have_are_no_fault():
    done = agenttop("profile", "show", "human", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "context.limit" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="locales of POSIX")
def test_the_c_locale_keeps_marks_apart():
    for way in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}):
        done = agenttop("doctor", **way)
        assert (done.returncode, done.stderr) == (0, "")
        assert "+ memory" in done.stdout
        assert "- terminal" in done.stdout


def test_a_home_that_nobody_has_is_one_sentence():
    for words in (["--api-key-file", "~nobody-at-all/x"], ["--ca-file", "~nobody-at-all/x"]):
        done = agenttop("once", "--url", "http://127.0.0.1:9", *words)
        assert done.returncode == 2
        assert "there is no home folder for ~nobody-at-all" in done.stderr


def test_a_name_that_a_shell_left_empty_is_told():
    for option in ("--api-key-env", "--api-key-file", "--ca-file"):
        done = agenttop("once", "--url", "http://127.0.0.1:9", option, "")
        assert done.returncode == 2
        assert f"{option} is empty" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="descriptors are closed by a shell")
def test_output_that_goes_nowhere(tmp_path):
    command = f"{sys.executable} -m agenttop profile list"
    assert subprocess.run(["sh", "-c", f"{command} >&-"], check=False, timeout=60).returncode == 0
    if Path("/dev/full").exists():
        full = subprocess.run(
            ["sh", "-c", f"{command} > /dev/full"], capture_output=True, text=True, check=False, timeout=60
        )
        assert (full.returncode, full.stderr) == (1, "agenttop: No space left on device\n")


def test_a_reader_that_goes_away_is_no_error():
    writer = subprocess.Popen(
        [sys.executable, "-m", "agenttop", "stream", "--for", "20s", "--url", "http://127.0.0.1:1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert json.loads(writer.stdout.readline())["kind"] == "session"
    writer.stdout.close()
    assert writer.wait(30) == 0
    assert writer.stderr is not None
    assert writer.stderr.read() == ""
    writer.stderr.close()
