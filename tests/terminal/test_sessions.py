"""A session with agents on a real server outlives its terminal, and is found, entered and ended again."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agenttop.commands.doors import running
from agenttop.record.read import Recording
from tests.terminal.screens import agents, load, offer_profiles, start_agents, turns
from tests.terminal.terminal import PROGRAM
from tests.waiting import until

ALIVE = ("node", "driver")


def listed():
    done = subprocess.run([*PROGRAM, "list"], capture_output=True, text=True, check=True)
    return done.stdout


def the_session(consoles):
    """The one session of this host, once it knows of so many consoles."""
    (door,) = until(lambda: [door for door in running() if door.consoles == consoles])
    return door


def test_a_closed_terminal_leaves_the_session_to_be_entered_again_and_ended(
    new_terminal, llama_server, private_places
):
    offer_profiles(private_places)
    first = new_terminal().start("--url", llama_server.url)
    first.until("llama.cpp")
    start_agents(first, "quick", 2)
    first.hang_up()
    first.until_runs(*ALIVE)
    door = the_session(consoles=0)
    assert (door.agents, door.profile, door.engines) == (2, "quick", [llama_server.url])
    assert door.session in listed()

    second = new_terminal().start("attach")
    screen = second.until(lambda screen: load(screen) == "2/2" and set(agents(screen)) == {"a1", "a2"})
    before = turns(screen, "a1")
    second.until(lambda screen: turns(screen, "a1") > before)
    second.keys("q")
    second.until("leave it running")
    second.keys("l")
    assert second.exit_code() == 0
    assert f"left running: agenttop attach {door.session}" in second.printed()
    first.until_runs(*ALIVE)
    the_session(consoles=0)

    third = new_terminal().start("attach", door.session[:12], size=(80, 24))
    third.until(lambda screen: load(screen) == "2/2")
    third.keys("q")
    third.until("stop the agents and quit")
    third.keys("s")
    assert third.exit_code() == 0
    assert f"recording: {door.recording}" in third.printed()
    first.until_nothing_runs()
    assert "no session runs" in listed()
    assert not Path(f"{door.recording}-wal").exists()
    with Recording(Path(door.recording)) as recording:
        assert recording.finished
        assert len(recording.turns()) >= before
        told = [event.event for event in recording.events()]
    assert told.count("console.attached") == 2
    assert "console.left" in told


def leave(terminal):
    terminal.keys("q")
    terminal.until("leave it running")
    terminal.keys("l")
    assert terminal.exit_code() == 0
    assert f"left running: agenttop attach {the_session(consoles=0).session}" in terminal.printed()


def ask_the_console_to_end(terminal):
    os.kill(terminal.processes()["console"][0], signal.SIGTERM)
    assert terminal.exit_code() == 0
    assert not terminal.is_taken_over
    assert "left running: " in terminal.printed()


def kill(terminal):
    os.kill(terminal.processes()["console"][0], signal.SIGKILL)
    terminal.exit_code()


@pytest.mark.parametrize("part", [leave, ask_the_console_to_end, kill])
def test_agents_go_on_without_their_console(terminal, llama_server, private_places, part):
    offer_profiles(private_places)
    terminal.start("--url", llama_server.url, size=(80, 24))
    terminal.until("llama.cpp")
    start_agents(terminal, "quick", 1)
    part(terminal)
    terminal.until_runs(*ALIVE)
    assert the_session(consoles=0).agents == 1
    os.kill(terminal.processes()["node"][0], signal.SIGTERM)
    terminal.until_nothing_runs()


def test_a_session_without_agents_ends_with_its_terminal(terminal, llama_server, private_places):
    terminal.start("--url", llama_server.url, size=(80, 24))
    terminal.until("llama.cpp")
    terminal.hang_up()
    terminal.until_nothing_runs()
    assert running() == []
    (file,) = (private_places / "recordings").glob("*.agenttop")
    with Recording(file) as recording:
        assert recording.finished


def press_q(terminal):
    terminal.keys("q")


def interrupt_the_console(terminal):
    os.kill(terminal.processes()["console"][0], signal.SIGINT)


@pytest.mark.parametrize("end", [press_q, interrupt_the_console])
def test_without_agents_nothing_is_asked_and_the_terminal_is_given_back(terminal, llama_server, end):
    terminal.start("--url", llama_server.url, size=(80, 24))
    terminal.until("llama.cpp")
    assert terminal.is_taken_over
    end(terminal)
    assert terminal.exit_code() == 0
    assert not terminal.is_taken_over
    assert "recording: " in terminal.printed()
    assert "left running" not in terminal.printed()
    terminal.until_nothing_runs()
