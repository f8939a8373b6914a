"""Reading the program's screen as a person does, and the few moves that several tests make."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from tests.terminal.terminal import Terminal

HERE = Path(__file__).parent
PROFILES = {"settled": HERE / "settled.toml", "quick": HERE.parent / "node" / "quick.toml"}

AGENT = re.compile(r"(?:\d|–)  (a\d+) +\S (\w+) ")
BAR = re.compile(r"^ ([▸‖]) ([\d.]+)×  ([\d:]+) .* ([\d:]+)$", re.MULTILINE)


def agents(screen: str) -> dict[str, str]:
    """State of every agent in the table, by its name."""
    return {found[1]: found[2] for found in AGENT.finditer(screen)}


def load(screen: str) -> str | None:
    """`active/target` in the header."""
    found = re.search(r"▸(\d+/\d+)", screen.partition("\n")[0])
    return found[1] if found else None


def clock(screen: str) -> int:
    """Session time in the header, in seconds; -1 where there is none."""
    found = re.search(r"(\d\d:\d\d:\d\d) +(?:●|REC)", screen.partition("\n")[0])
    return seconds(found[1]) if found else -1


def seconds(text: str) -> int:
    """`00:01:30` in seconds."""
    hours, minutes, rest = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + rest


class Bar(NamedTuple):
    """The transport bar."""

    playing: bool
    speed: float
    position: int
    duration: int


def bar(screen: str) -> Bar | None:
    """The transport bar, where one is shown."""
    found = BAR.search(screen)
    return Bar(found[1] == "▸", float(found[2]), seconds(found[3]), seconds(found[4])) if found else None


def table(screen: str) -> list[str]:
    """Rows of slots and agents, without what depends on the second: the trend and what is left of a pause."""
    lines = screen.splitlines()
    head = next((number for number, line in enumerate(lines) if "agent  state" in line), None)
    if head is None:
        return []
    ends, trend, ttft = (lines[head].index(name) for name in ("this turn", "trend", "TTFT"))
    rows = []
    for line in lines[head + 1 :]:
        if line.startswith("╰"):
            break
        rows.append((line[:trend] + line[ttft - 2 : ends]).strip("│ "))
    return [row for row in rows if row]


def turns(screen: str, agent: str) -> int:
    """Number of the turn an agent is in."""
    row = next(row for row in table(screen) if f"  {agent} " in row)
    # After the trend, which is left out: TTFT (with its unit), turn, compactions, ...
    return int(re.findall(r" (\d+) +\d+ +(?:–|\d+ %) +\d+ +\d+$", row)[0])


def events(screen: str) -> list[str]:
    """Texts of the panel of events, newest first, as far as they are shown."""
    return re.findall(r"\d\d:\d\d:\d\d (\S .+?) *│?$", screen.partition(" Events ")[2], re.MULTILINE)


def offer_profiles(private_places: Path) -> None:
    """Put the profiles of these tests where the panel finds the user's own ones."""
    folder = private_places / "profiles"
    folder.mkdir(exist_ok=True)
    for name, file in PROFILES.items():
        shutil.copy(file, folder / f"{name}.toml")


def start_agents(terminal: Terminal, profile: str, number: int, stagger: str | None = None) -> str:
    """Set agents up in the panel; returns the screen on which all of them have been started."""
    terminal.keys("a")
    terminal.until("profile  ‹")
    for _ in range(8):
        shown = re.search(r"profile  ‹ (\S+) ›", terminal.screen())
        assert shown
        if shown[1] == profile:
            break
        terminal.keys("Right")
        terminal.until(lambda screen, before=shown[0]: before not in screen)
    terminal.keys("Down", *str(number))
    terminal.until(f"agents   ‹ {number} ›")
    if stagger is not None:
        terminal.keys("Down", *stagger)
        terminal.until(f"stagger  ‹ {stagger} ›")
    terminal.keys("Enter")
    return terminal.until(lambda screen: load(screen) == f"{number}/{number}" and profile in screen)
