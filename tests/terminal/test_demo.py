"""`agenttop demo` as a new user meets it: from the first frame to the replay, and every way to end it."""

import http.client
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from agenttop.commands.doors import running
from agenttop.record.read import Recording
from tests.terminal.screens import agents, clock, load, offer_profiles, start_agents, table
from tests.terminal.terminal import PROGRAM
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("engine_needed")

EVERYTHING = ("shell", "console", "node", "driver", "engine")


def busy_slots(screen):
    """How many slots the engine on the screen says to be at work."""
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)", screen)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/slots")
    slots = json.loads(connection.getresponse().read())
    connection.close()
    return sum(slot["is_processing"] for slot in slots)


def pool(screen):
    """The line of the KV pool."""
    return re.search(r"│ KV .+?│", screen)[0]


def test_everything_a_new_user_tries_from_the_first_frame_to_the_replay(
    terminal, new_terminal, private_places
):
    offer_profiles(private_places)
    terminal.start("demo")
    terminal.until("DEMO engine: random weights")
    screen = terminal.until(lambda screen: load(screen) == "4/4" and "● REC" in screen)
    assert list(agents(screen)) == ["a1", "a2", "a3", "a4"]
    terminal.until_runs(*EVERYTHING)

    terminal.keys("+")
    screen = terminal.until(lambda screen: load(screen) == "5/5")
    assert "a5" in agents(screen)
    terminal.keys("-")
    screen = terminal.until(lambda screen: load(screen) == "4/4")
    until(lambda: busy_slots(screen), 60, "an agent at work")
    terminal.keys("x")
    until(lambda: not busy_slots(screen), 20, "free slots")
    terminal.until(lambda screen: load(screen) is None and not agents(screen))

    start_agents(terminal, "settled", 3, stagger="0.5")
    held = {}

    def holds_still(screen):
        if list(agents(screen).values()) == ["tool"] * 3:
            held.setdefault((*table(screen), pool(screen)), set()).add(clock(screen))
        return any(len(seconds) > 3 for seconds in held.values())

    before = terminal.until(holds_still)
    terminal.keys("m")
    terminal.until("a note on the time axis")
    terminal.types("kettle on")
    terminal.keys("Enter")
    live = terminal.until("◆ kettle on")
    assert table(live) == table(before)

    terminal.keys("q")
    terminal.until("3 agents run.")
    terminal.keys("Escape")
    terminal.until(lambda screen: "3 agents run." not in screen)
    terminal.keys("q")
    terminal.until("the demo engine stops with this console")
    terminal.keys("s")
    assert terminal.exit_code() == 0
    terminal.until_nothing_runs()
    file = re.search(r"recording: (.+\.agenttop)$", terminal.printed(), re.MULTILINE)[1]

    with Recording(Path(file)) as recording:
        assert recording.finished
        mark = next(event.t for event in recording.events() if event.event == "mark")
    replay = new_terminal().start("replay", file, "--at", f"{mark:.2f}s", "--speed", "0.1")
    again = replay.until("◆ kettle on")
    assert "REPLAY" in again
    assert table(again) == table(live)
    assert pool(again) == pool(live)
    replay.keys("q")
    assert replay.exit_code() == 0
    plain = subprocess.run(
        [*PROGRAM, "replay", file, "--at", f"{mark + 0.01:.2f}s"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert table(plain.stdout) == table(live)


def press_ctrl_c(terminal):
    terminal.keys("C-c")
    terminal.until("4 agents run.")
    terminal.keys("C-c")  # asking twice changes nothing
    terminal.keys("s")
    assert terminal.exit_code() == 0


def close_the_terminal(terminal):
    terminal.hang_up()


def kill_the_console(terminal):
    os.kill(terminal.processes()["console"][0], signal.SIGKILL)


def kill_the_node(terminal):
    os.kill(terminal.processes()["node"][0], signal.SIGKILL)
    terminal.until("ended unexpectedly")
    terminal.keys("q")
    assert terminal.exit_code() == 1
    assert "recording: " in terminal.printed()
    assert "what it recorded up to then is whole" in terminal.printed()


@pytest.mark.parametrize("end", [press_ctrl_c, close_the_terminal, kill_the_console, kill_the_node])
def test_however_a_demo_ends_nothing_of_it_is_left(terminal, private_places, end):
    terminal.start("demo", size=(80, 24))
    terminal.until(lambda screen: load(screen) == "4/4")
    terminal.until_runs(*EVERYTHING)
    terminal.until(lambda screen: clock(screen) >= 3)
    end(terminal)
    terminal.until_nothing_runs()
    assert running() == []
    (file,) = (private_places / "recordings").glob("*.agenttop")
    with Recording(file) as recording:
        assert recording.session.demo
        assert recording.duration > 2
        assert recording.finished == (end is not kill_the_node)
        assert any(event.event == "agents.target" for event in recording.events())


def test_ctrl_c_while_the_demo_starts_leaves_nothing(terminal):
    terminal.start("demo", size=(80, 24))
    until(lambda: "node" in terminal.processes(), what="a node")
    terminal.keys("C-c")
    # A machine that is fast enough has agents by now, and is asked.
    until(lambda: "console" not in terminal.processes() or "agents run" in terminal.screen())
    if "console" in terminal.processes():
        terminal.keys("s")
    terminal.exit_code()
    terminal.until_nothing_runs()
    assert "Traceback" not in terminal.printed()
