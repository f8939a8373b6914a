"""What the groups of actions may rely on; `app.Console` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from agenttop.model.commands import Command
from agenttop.stream.rewind import Deck
from agenttop.view.store import Store

if TYPE_CHECKING:
    from agenttop.view.look import Look


class ConsoleBase(App[str]):
    """The session, the store and the choices of the user."""

    deck: Deck
    store: Store
    row: str | None
    """Key of the selected row."""
    number: str
    """Digits typed so far."""

    def draw(self) -> None:
        """Draw the picture now."""
        raise NotImplementedError

    def look(self) -> Look:
        """The choices of the user."""
        raise NotImplementedError

    def order(self, command: Command) -> bool:
        """Send a command; where commands are not obeyed, say why instead and return False."""
        reason = self.deck.accepts
        if reason is not None:
            self.say(reason, "warning")
            return False
        self.deck.send(command)
        return True

    def say(self, text: str, severity: str = "information") -> None:
        """One sentence for a few seconds."""
        level = severity if severity in ("warning", "error") else "information"
        self.notify(text, severity=level, markup=False, timeout=6)  # type: ignore[arg-type]
