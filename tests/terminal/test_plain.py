"""Sizes, and places that are no full terminal: no colour, no cursor, no terminal at all."""

import re

import pytest

from tests.record.build import small
from tests.terminal.screens import agents, load, offer_profiles, start_agents

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:[;:]\d+)*m")


def whole(width, height):
    """Whether a screen with both agents is drawn right up to its edges, for this size."""

    def look(screen):
        lines = screen.rstrip("\n").split("\n")
        boxed = [line for line in lines if line[:1] in ("╭", "│", "╰", "─")]
        return (
            load(screen) == "2/2"
            and set(agents(screen)) == {"a1", "a2"}
            and len(lines) == height
            and lines[-1].lstrip().startswith("a agents")
            and len(boxed) > 1
            and all(len(line) == width for line in boxed)
            and all(len(line) <= width for line in lines)
        )

    return look


def dialog_width(screen):
    """Width of the box of help; 0 while it is not whole."""
    found = re.search(r"╭ Help ─*╮", screen)
    return len(found[0]) if found and "Esc closes ─╯" in screen else 0


def test_the_screen_follows_the_size_of_the_terminal(terminal, llama_server, private_places):
    offer_profiles(private_places)
    terminal.start("--url", llama_server.url, size=(200, 60))
    terminal.until("llama.cpp")
    start_agents(terminal, "settled", 2)
    for width, height in ((200, 60), (80, 24), (40, 10), (120, 40), (60, 16), (200, 60)):
        terminal.resize(width, height)
        if width < 60:
            terminal.until("agenttop needs 60 x 16 cells or more")
        else:
            terminal.until(whole(width, height))
    terminal.keys("?")
    terminal.until("╭ Help")
    for width, height in ((80, 24), (40, 10), (120, 40)):
        terminal.resize(width, height)
        terminal.until(lambda screen, room=width: dialog_width(screen) in range(20, room + 1))
    terminal.keys("Escape")
    terminal.until(whole(120, 40))
    terminal.keys("x")
    terminal.until(lambda screen: load(screen) is None)
    terminal.keys("q")
    assert terminal.exit_code() == 0


def test_no_color_means_none(new_terminal, tmp_path):
    file = str(small(tmp_path / "small.agenttop", seconds=5))
    coloured = new_terminal().start("replay", file, "--at", "5s", size=(80, 24))
    coloured.until("REPLAY")
    assert COLOUR.search(coloured.screen(escapes=True))
    plain = new_terminal().start("replay", file, "--at", "5s", size=(80, 24), NO_COLOR="1")
    plain.until("REPLAY")
    plain.keys("Down")
    plain.until("›")  # the row selected is known without colour
    plain.keys("?")
    plain.until("╭ Help")
    assert not COLOUR.search(plain.screen(escapes=True))
    plain.keys("Escape")
    plain.until(lambda screen: "╭ Help" not in screen)
    for terminal in (coloured, plain):
        terminal.keys("q")
        assert terminal.exit_code() == 0


@pytest.mark.parametrize("setting", ["dumb", ""])
def test_a_terminal_that_cannot_place_text_gets_lines_and_the_prompt_back(terminal, llama_server, setting):
    terminal.start("--url", llama_server.url, TERM=setting)
    assert terminal.exit_code() == 0
    shown = terminal.printed()
    assert "llama.cpp" in shown
    assert "Slots and agents" in shown
    assert "\x1b" not in terminal.screen(escapes=True)
    terminal.until_nothing_runs()


def test_a_file_gets_plain_text_though_it_is_started_in_a_terminal(terminal, llama_server, tmp_path):
    target = tmp_path / "out.txt"
    terminal.start("--url", llama_server.url, shell=f"> {target}")
    assert terminal.exit_code() == 0
    text = target.read_text()
    assert "llama.cpp" in text
    assert "\x1b" not in text
    terminal.until_nothing_runs()
