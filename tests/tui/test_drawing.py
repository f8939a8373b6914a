"""When the console draws, how much of the screen, and what it tells of its own cost."""

from __future__ import annotations

import os

import pytest

from agenttop.model import commands as c
from agenttop.model.frames import Event, Plan
from agenttop.tui.widgets.lines import Lines, merged
from agenttop.view.spans import Line, plain
from tests.tui.sources import Running, console_on
from tests.view import scenes

RUNNING = scenes.running(60)


class Drawings:
    """Counts pictures and the lines that changed with them."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changed: list[int] = []
        lines = running.console._live.query_one("#live", Lines)
        show = lines.show

        def counting(given: list[Line]) -> int:
            self.changed.append(show(given))
            return self.changed[-1]

        monkeypatch.setattr(lines, "show", counting)


async def test_nothing_new_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        drawings = Drawings(running, monkeypatch)
        for _ in range(8):
            running.clock.advance(0.25)
            running.console.drain()
        assert drawings.changed == []


async def test_what_comes_once_a_second_is_drawn_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        drawings = Drawings(running, monkeypatch)
        for tick in range(1, 41):
            now = 8.3 + tick * 0.25
            second = float(int(now))
            frames = [scenes.host(second)] if now - second < 0.25 else [scenes.engine(second)]
            await running.arrive(*frames, now=now)
        assert 9 <= len(drawings.changed) <= 12


async def test_an_event_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        drawings = Drawings(running, monkeypatch)
        await running.arrive(Event(t=8.35, event="mark", text="kettle on"), now=8.4)
        assert len(drawings.changed) == 1
        assert "kettle on" in running.screen


async def test_only_lines_that_differ_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console_on(scenes.idle(), 8.3) as running:
        drawings = Drawings(running, monkeypatch)
        await running.arrive(scenes.host(9.0, busy=0.4), now=9.3)
        assert 0 < drawings.changed[0] < 8


async def test_a_silent_session_becomes_stale_on_the_screen() -> None:
    async with console_on(RUNNING, 60.4) as running:
        await running.arrive(now=66.4)
        assert "STALE 6.4 s" in running.screen
        await running.arrive(scenes.host(67.0), now=67.1)
        assert "STALE" not in running.screen


async def test_the_end_of_a_session_is_said() -> None:
    async with console_on(RUNNING, 60.4) as running:
        await running.arrive(now=61.0, ended="the node (pid 41) has gone")
        assert "ENDED" in running.screen
        assert "the node (pid 41) has gone" in running.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids="{0[0]}x{0[1]}".format)
async def test_a_session_that_has_ended_says_where_its_figures_are(size: tuple[int, int]) -> None:
    async with console_on(RUNNING, 60.4, size, figures=True) as running:
        assert "as of the end" not in running.screen
        assert "+ more" in running.screen.splitlines()[-1]
        running.session.refuses = "the session has ended"
        await running.arrive(now=61.0, ended="the session has ended")
        assert "q prints the figures; recorded in" in running.screen
        # On a small screen the path is cut; quitting prints it whole.
        assert ("/home/me/a.agenttop" in running.screen) or size[0] < 100
        assert "as of the end" in running.screen
        assert "● REC" not in running.screen
        last = running.screen.splitlines()[-1]
        assert "q quit" in last
        assert not [text for text in ("agents", "more", "fewer", "stop all", "ramp", "mark") if text in last]


async def test_a_run_that_has_ended_says_so_until_agents_run_again() -> None:
    async with console_on(RUNNING, 60.4, figures=True) as running:
        await running.arrive(Event(t=61.0, event="run.end", text="the run has ended"), now=61.1)
        assert " RUN ENDED " in running.screen
        assert "q prints the figures" in running.screen
        assert "as of the end" not in running.screen
        await running.arrive(Plan(t=62.0, engine=scenes.URL, profile="human"), now=62.1)
        await running.arrive(scenes.host(63.0), now=63.2)
        assert "RUN ENDED" not in running.screen


async def test_figures_are_promised_only_where_quitting_prints_them() -> None:
    async with console_on(RUNNING, 60.4) as running:
        await running.arrive(now=61.0, ended="over")
        assert "q prints" not in running.screen
        assert "recorded in /home/me/a.agenttop" in running.screen


async def test_the_picture_follows_the_size_of_the_terminal() -> None:
    async with console_on(RUNNING, 60.4, (120, 40)) as running:
        for size in ((80, 24), (40, 10), (200, 60)):
            await running.pilot.resize_terminal(*size)
            await running.pilot.pause(0.1)
            lines = running.screen.splitlines()
            assert len(lines) <= size[1]
            assert ("agenttop needs" in lines[0]) == (size == (40, 10))
        assert "Turns ended" in running.screen


async def test_the_live_picture_goes_on_behind_a_dialog() -> None:
    async with console_on(RUNNING, 60.4) as running:
        await running.press("a")
        await running.arrive(scenes.host(61.0), now=61.4)
        assert "00:01:01" in running.screen
        await running.press("escape")
        assert "00:01:01" in running.screen


async def test_the_console_tells_what_it_costs() -> None:
    async with console_on(RUNNING, 60.4) as running:
        running.clock.advance(2.1)
        running.console.drain()
        costs = [command for command in running.session.received if isinstance(command, c.OwnCost)]
        assert costs
        assert costs[0].pid == os.getpid()
        assert costs[0].cpu_fraction is not None
        assert costs[0].memory_bytes is not None
        assert costs[0].memory_bytes > 10_000_000
        before = len(costs)
        running.clock.advance(1.0)
        running.console.drain()
        assert sum(isinstance(command, c.OwnCost) for command in running.session.received) == before


async def test_hostile_text_reaches_the_terminal_clean() -> None:
    nasty = "\x1b]0;owned\x07 \x9b31m rtl \u202e 千问"
    frames = [*RUNNING, scenes.engine(60.2, model=nasty, version=nasty, note=nasty)]
    async with console_on(frames, 60.4) as running:
        await running.press("w", "escape", "a")
        strips = running.console.screen._compositor.render_strips(running.console.size)
        assert {strip.cell_length for strip in strips} == {120}
        assert not set(running.screen) & {"\x1b", "\x07", "\x9b", "\u202e"}


async def test_no_colour_is_needed_to_read_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console_on(RUNNING, 60.4) as coloured:
        text = coloured.screen
    monkeypatch.setenv("NO_COLOR", "1")
    async with console_on(RUNNING, 60.4) as plain_one:
        assert plain_one.screen == text


def test_neighbours_of_one_look_become_one_segment() -> None:
    line: Line = [("a", "text"), ("  ", "dim"), ("b", "text"), ("", "bad"), ("c", "text")]
    line += [(" X ", "badge"), (" ", "text")]
    assert merged(line) == [("a  bc", "text"), (" X ", "badge"), (" ", "text")]
    assert "".join(text for text, _ in merged(line)).rstrip() == plain(line)
