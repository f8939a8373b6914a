"""Ramps and searches in the console, as a person sees them."""

import re

from tests.terminal.screens import PROFILES, load

QUICK = str(PROFILES["quick"])


def test_a_ramp_climbs_before_ones_eyes_and_ends_when_steered_by_hand(terminal, llama_server):
    terminal.start("--url", llama_server.url)
    terminal.until("llama.cpp")
    terminal.keys("r")
    terminal.until("start the ramp")
    terminal.keys("Down", "Down", "3", "s", "Enter")
    terminal.until(lambda screen: re.search(r"level 1(/16| of 16)", screen))
    terminal.until(lambda screen: load(screen) == "2/2")
    terminal.keys("+")
    terminal.until("the ramp ends here")
    terminal.keys("q")
    terminal.until("stop the agents and quit")
    terminal.keys("s")
    assert terminal.exit_code() == 0


def test_a_search_shows_its_levels_and_prints_its_answer(terminal, start_sim):
    engine = start_sim(host="rtx-5090", plant="step=0.1,knee=2", speedup=60)
    wish = ("--find-knee", "--max-agents", "2", "--budget", "8m")
    terminal.start("run", QUICK, "--url", engine.url, *wish, size=(120, 40))
    terminal.until(lambda screen: re.search(r"level 1 *,? *climb", screen))
    terminal.until(lambda screen: "ENDED" in screen and "RUN ENDED" not in screen)
    terminal.keys("q")
    assert terminal.exit_code() == 0
    printed = terminal.printed()
    assert re.search(r"^knee ", printed, re.MULTILINE)
    assert "the search is" in printed
    assert "60 times faster than life" in printed
