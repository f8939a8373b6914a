"""A picture of the console as SVG, from a recording.

    python docs/make_picture.py RECORDING --at 2m --out docs/screen.svg [--size 120x40] [--light] [--replay]

The picture is what the console showed at that moment; `--replay` adds the transport bar. `--keys` are
pressed first, e.g. `--keys a` for the agents panel.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path

from agenttop.model.clock import ManualClock
from agenttop.model.commands import Command
from agenttop.model.units import parse_clock
from agenttop.record.read import Recording
from agenttop.stream.base import Batch
from agenttop.stream.replay import ReplaySource
from agenttop.stream.rewind import Deck
from agenttop.tui.app import Console
from agenttop.tui.themes import DARK, LIGHT

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Still:
    """A live session at one moment: a `FrameSource` that gives one batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch: Batch | None = batch
        self._now = batch.now

    def take(self) -> Batch:
        """The batch, then nothing."""
        batch, self._batch = self._batch, None
        return batch or Batch(frames=[], now=self._now)

    def send(self, command: Command) -> None:
        """Nobody is there."""

    @property
    def accepts(self) -> str | None:
        """As a live session does."""
        return None

    def close(self) -> None:
        """Nothing is open."""


async def draw(
    recording: Recording, at: float, size: tuple[int, int], theme: str, replay: bool, keys: str
) -> str:
    """The screen as SVG."""
    clock = ManualClock()
    source = ReplaySource(recording, clock, at=at, playing=False)
    deck = Deck(source if replay else Still(source.take()), clock)
    console = Console(deck, clock=clock, theme=theme)
    async with console.run_test(size=size) as pilot:
        await pilot.pause()
        console.drain()
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        return console.export_screenshot(title="agenttop")


def self_contained(svg: str) -> str:
    """Without fonts from elsewhere: the reader's own monospaced font will do."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: ?Fira Code[^;]*;", f"font-family: {FONTS};", svg)


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("--at", default="60s", help="session time: 90s, 12:34")
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--out", type=Path, default=Path("docs/screen.svg"))
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--replay", action="store_true", help="with the transport bar")
    parser.add_argument("--keys", default="", help="keys to press first, one letter each")
    given = parser.parse_args()
    width, height = (int(part) for part in given.size.split("x"))
    theme = LIGHT.name if given.light else DARK.name
    recording = Recording(given.recording)
    svg = asyncio.run(
        draw(recording, parse_clock(given.at), (width, height), theme, given.replay, given.keys)
    )
    given.out.write_text(self_contained(svg), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
