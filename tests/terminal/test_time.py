"""Moving in time with the keys: back in a session that goes on, and to and fro in a recording."""

import re

from tests.record.build import small
from tests.terminal.screens import agents, bar, clock, events, load, offer_profiles, start_agents


def picture(screen):
    """The boxes: without the header, the transport bar and the keys."""
    return screen.splitlines()[2:-3]


def test_going_back_while_the_session_goes_on(terminal, llama_server, private_places):
    offer_profiles(private_places)
    terminal.start("--url", llama_server.url)
    terminal.until("llama.cpp")
    start_agents(terminal, "settled", 2)
    terminal.keys("m")
    terminal.until("a note on the time axis")
    terminal.types("here")
    terminal.keys("Enter")
    screen = terminal.until("◆ here")
    assert bar(screen) is None
    marked = clock(screen)
    terminal.until(lambda screen: clock(screen) > marked + 3)

    terminal.keys("Space")
    held = terminal.until(lambda screen: bar(screen) and "REWIND" in screen and "PAUSED" in screen)
    assert not bar(held).playing
    later = terminal.until(lambda screen: bar(screen).duration > bar(held).duration + 1)
    assert bar(later).position == bar(held).position
    assert picture(later) == picture(held)
    assert re.search(r"REWIND +−00:0[1-9]", later)

    terminal.keys("[")
    back = terminal.until(lambda screen: bar(screen).position <= marked)
    assert marked - 1 <= bar(back).position
    assert "◆ here" in events(back)[0]

    terminal.keys("End")
    live = terminal.until(lambda screen: bar(screen) is None and clock(screen) > bar(later).duration)
    assert "REWIND" not in live
    assert load(live) == "2/2"

    terminal.keys("Left")
    past = terminal.until(lambda screen: bar(screen) is not None)
    assert bar(past).playing
    assert clock(past) < bar(past).duration - 5
    terminal.until(lambda screen: bar(screen).position > bar(past).position)
    # What is wished for while looking back is done now.
    terminal.keys("x")
    terminal.keys("End")
    terminal.until(lambda screen: bar(screen) is None and load(screen) is None and not agents(screen))
    terminal.keys("q")
    assert terminal.exit_code() == 0
    terminal.until_nothing_runs()


def test_a_recording_is_played_with_the_keys(terminal, tmp_path):
    file = small(tmp_path / "small.agenttop")  # events at 2 s and 42 s, 45 s long
    terminal.start("replay", str(file), "--at", "20s")
    screen = terminal.until("REPLAY")
    assert bar(screen).playing
    assert 20 <= bar(screen).position < 30
    assert bar(screen).duration in (45, 46)
    terminal.keys("Space")
    terminal.until(lambda screen: not bar(screen).playing and "PAUSED" in screen)
    terminal.keys("g")
    terminal.until("a time: 90s, 12:34 or 1:02:03")
    terminal.types("0:30")
    terminal.keys("Enter")
    terminal.until(lambda screen: bar(screen) and bar(screen).position == 30)
    terminal.keys(".", ".")  # samples at 30.25 s and 31.25 s
    terminal.until(lambda screen: bar(screen).position == 31)
    terminal.keys(",", ",")
    terminal.until(lambda screen: bar(screen).position == 29)
    terminal.keys(">", ">")
    terminal.until(lambda screen: bar(screen).speed == 4)
    terminal.keys("Space")
    terminal.until(lambda screen: bar(screen).playing and bar(screen).position >= 33)
    terminal.keys("Space", "<", "<")
    terminal.until(lambda screen: not bar(screen).playing and bar(screen).speed == 1)
    terminal.keys("]")
    screen = terminal.until(lambda screen: bar(screen).position == 42)
    assert "all agents stopped" in events(screen)[0]
    terminal.keys("[")
    screen = terminal.until(lambda screen: bar(screen).position == 2)
    assert "agents → 3" in events(screen)[0]
    terminal.keys("Right")
    terminal.until(lambda screen: bar(screen).position == 12)
    terminal.keys("Home")
    terminal.until(lambda screen: bar(screen).position == 0)
    terminal.keys("End")
    terminal.until(lambda screen: bar(screen).position == bar(screen).duration)
    terminal.keys("g")
    terminal.until("a time: 90s, 12:34 or 1:02:03")
    terminal.types("noon")
    terminal.keys("Enter")
    terminal.until("'noon' is not a")
    terminal.keys("q")
    assert terminal.exit_code() == 0


def test_a_recording_takes_no_agents(terminal, tmp_path):
    terminal.start("replay", str(small(tmp_path / "small.agenttop", seconds=5)), size=(80, 24))
    terminal.until("REPLAY")
    for key in ("a", "+", "x", "m"):
        terminal.keys(key)
        terminal.until("recording")
    terminal.keys("q")
    assert terminal.exit_code() == 0
