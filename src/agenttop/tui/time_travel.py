"""The actions that move in time; the only ones that know where the session is played from."""

from __future__ import annotations

from agenttop.errors import AgenttopError
from agenttop.model.units import parse_clock
from agenttop.tui.base import ConsoleBase


class TimeActions(ConsoleBase):
    """Each asks the deck, and then shows what it gives."""

    def drain(self) -> None:
        """Take what the deck has, and draw."""
        raise NotImplementedError

    def _moved(self) -> None:
        """After every move: show it at once, and say why where it could not be done."""
        self.drain()
        self.draw()
        if self.deck.note:
            self.say(self.deck.note, "warning")

    def action_play(self) -> None:
        """Hold, or play on."""
        self.deck.toggle()
        self._moved()

    def action_skip(self, seconds: int) -> None:
        """Back or on by seconds."""
        self.deck.skip(seconds)
        self._moved()

    def action_step(self, direction: int) -> None:
        """Hold, and one sample back or on."""
        self.deck.step_sample(direction)
        self._moved()

    def action_event(self, direction: int) -> None:
        """To the event before or after."""
        self.deck.next_event(direction)
        self._moved()

    def action_speed(self, direction: int) -> None:
        """Slower or faster."""
        if direction > 0:
            self.deck.faster()
        else:
            self.deck.slower()
        self._moved()

    def action_start(self) -> None:
        """To the earliest moment there is."""
        self.deck.seek(self.deck.start)
        self._moved()

    def action_live(self) -> None:
        """To the present."""
        self.deck.live()
        self._moved()

    def action_go_to(self) -> None:
        """Ask for a time and go there."""
        from agenttop.tui.screens.prompt import Prompt

        self.push_screen(Prompt("Go to", "a time: 90s, 12:34 or 1:02:03", 12), self._to)

    def _to(self, text: str | None) -> None:
        if not text:
            return
        try:
            self.deck.seek(parse_clock(text))
        except AgenttopError as error:
            self.say(str(error), "warning")
            return
        self._moved()
