"""The actions that change the load."""

from __future__ import annotations

from agenttop.model.commands import AddAgents, Command, Drain, Mark, Pause, SetTarget, StopAgent, StopAll
from agenttop.tui.base import ConsoleBase
from agenttop.view.rows import rows

MOST_DIGITS = 4


class LoadActions(ConsoleBase):
    """Each sends one command; what comes of it is seen in the frames that follow."""

    def action_panel(self, target: int | None = None) -> None:
        """Open the agents panel."""
        if self.deck.accepts is not None:
            self.say(self.deck.accepts, "warning")
            return
        from agenttop.tui.screens.agents_panel import AgentsPanel

        self.push_screen(AgentsPanel(self.store, self.look(), target), self._from_panel)

    def _from_panel(self, command: Command | None) -> None:
        if command is not None:
            self.order(command)
        self.draw()

    def action_ramp(self) -> None:
        """Ask for a ramp: from, to, step, hold."""
        if self.deck.accepts is not None:
            self.say(self.deck.accepts, "warning")
            return
        from agenttop.tui.screens.ramp import RampDialog

        self.push_screen(RampDialog(self.store, self.look()), self._from_panel)

    def action_add(self, count: int) -> None:
        """One more or fewer; before anything has been set up this opens the panel."""
        if self.store.plan is None and self.deck.accepts is None:
            if count > 0:
                self.action_panel()
            else:
                self.say("no agents run")
            return
        self.order(AddAgents(count=count))

    def action_digit(self, digit: int) -> None:
        """Collect a number of agents."""
        self.number = (self.number + str(digit))[-MOST_DIGITS:]
        self.draw()

    def action_rub_out(self) -> None:
        """Take back a digit."""
        self.number = self.number[:-1]
        self.draw()

    def action_target(self) -> None:
        """Set the number typed; without one, say how it is typed."""
        if self.number:
            self.action_set_number()
        else:
            self.say("type the number of agents, then Enter or t")

    def action_set_number(self) -> None:
        """The number typed becomes the target."""
        if not self.number:
            return
        target, self.number = int(self.number), ""
        if self.store.plan is None and self.deck.accepts is None:
            self.action_panel(target)
        else:
            self.order(SetTarget(target=target))
        self.draw()

    def action_stop_all(self) -> None:
        """Stop all agents now."""
        self.order(StopAll())

    def action_drain_agents(self) -> None:
        """Let every agent finish its turn."""
        self.order(Drain())

    def action_pause_agents(self) -> None:
        """No new turns, or go on."""
        load = self.store.load
        self.order(Pause(on=not (load is not None and load.paused)))

    def action_stop_selected(self) -> None:
        """Stop the agent of the selected row."""
        chosen = next((row for row in rows(self.store, self.look()) if row.key == self.row), None)
        if chosen is None:
            self.say("select a row first: ↑ ↓")
        elif chosen.agent is None:
            self.say("no agent of this session is in that slot")
        else:
            self.order(StopAgent(agent=chosen.agent.agent))

    def action_mark(self) -> None:
        """Ask for a note and put it on the time axis."""
        if self.deck.accepts is not None:
            self.say(self.deck.accepts, "warning")
            return
        from agenttop.tui.screens.prompt import Prompt

        self.push_screen(Prompt("Mark", "a note on the time axis, at this moment"), self._from_mark)

    def _from_mark(self, text: str | None) -> None:
        if text:
            self.order(Mark(text=text))
