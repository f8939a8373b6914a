"""`agenttop run` in a terminal: a progress bar and a table, or the console; and stopping it early."""

import re
from pathlib import Path

from agenttop.record.read import Recording
from tests.terminal.screens import PROFILES, load

QUICK = str(PROFILES["quick"])


def recording_named(printed):
    return Path(re.search(r"^recording: (.+\.agenttop)$", printed, re.MULTILINE)[1])


def test_a_headless_run_shows_its_progress_and_ends_with_a_table(terminal, llama_server):
    run = ("run", QUICK, "--url", llama_server.url, "--levels", "1,2", "--for", "4s", "--headless")
    terminal.start(*run, size=(160, 40))
    terminal.until(lambda screen: re.search(r"^00:00:\d\d █+·+ +\d+ %  1/1 agents ", screen, re.MULTILINE))
    terminal.until(lambda screen: re.search(r"^00:00:\d\d █+·* +\d+ %  2/2 agents ", screen, re.MULTILINE))
    assert terminal.exit_code() == 0
    printed = terminal.printed()
    assert "2/2 agents" not in printed, "the bar is gone"
    assert len(re.findall(r"^20\d\d\S* +.* (?:yes|no)$", printed, re.MULTILINE)) == 2
    with Recording(recording_named(printed)) as recording:
        assert recording.finished
    terminal.until_nothing_runs()


def test_ctrl_c_stops_a_headless_run_in_order(terminal, llama_server):
    run = ("run", QUICK, "--url", llama_server.url, "--agents", "2", "--for", "5m", "--headless")
    terminal.start(*run, size=(160, 40))
    terminal.until(lambda screen: re.search(r"2/2 agents .* [1-9]\d* turns", screen))
    terminal.keys("C-c")
    assert terminal.exit_code() == 1
    printed = terminal.printed()
    assert "agenttop: interrupted" in printed
    assert "Traceback" not in printed
    terminal.until_nothing_runs()
    assert not llama_server.busy_slots()
    file = recording_named(printed)
    assert not Path(f"{file}-wal").exists()
    with Recording(file) as recording:
        assert recording.finished
        assert recording.turns()


def test_a_run_in_the_console_ends_by_itself_and_stays_to_be_looked_at(terminal, llama_server):
    terminal.start("run", QUICK, "--url", llama_server.url, "--agents", "2", "--for", "3s")
    terminal.until(lambda screen: load(screen) == "2/2")
    screen = terminal.until(lambda screen: "ENDED" in screen and "RUN ENDED" not in screen)
    assert "the run has ended" in screen
    terminal.until_runs("shell", "console")
    terminal.keys("q")
    assert terminal.exit_code() == 0
    assert recording_named(terminal.printed()).exists()
