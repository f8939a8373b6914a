"""The console: drains the deck a few times a second, draws when there is something to draw.

Rules
- It holds no truth of its own: all that is shown is in the store, all that is wanted is a command.
- It pulls. Frames that arrive while it is busy are folded with the next drain, none is lost.
- Figures come once a second, so the picture is drawn about once a second; a key, an event or a seek
  is shown at once.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from typing import ClassVar

from textual.binding import BindingType

from agenttop.errors import AgenttopError
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.commands import OwnCost
from agenttop.model.frames import Event
from agenttop.model.text import clean
from agenttop.oslayer import stop_signals
from agenttop.stream.base import Batch
from agenttop.stream.rewind import Deck
from agenttop.tui.actions import bindings, footer
from agenttop.tui.load import LoadActions
from agenttop.tui.screens.dialog import Dialog
from agenttop.tui.screens.live import LiveScreen
from agenttop.tui.terminal import driver_class
from agenttop.tui.themes import DARK, LIGHT, THEMES
from agenttop.tui.time_travel import TimeActions
from agenttop.tui.widgets.lines import Lines
from agenttop.view.engines import neighbour, settled
from agenttop.view.layout import Picture, compose
from agenttop.view.look import SORTS, Look, Play
from agenttop.view.rows import rows
from agenttop.view.store import Store

DRAIN_S = 0.25
CALM_S = 0.9
"""Between two drawings while figures only tick along."""

LIVELY_S = 0.45
"""Between two drawings while agents run: their states change between the figures of the engine."""

OWN_COST_S = 2.0

HEADER_LINES = 2


class Console(LoadActions, TimeActions):
    """The Textual application. Ends with `quit` or `leave`: what the user wants of the session."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "console.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    TITLE = "agenttop"

    def __init__(
        self,
        deck: Deck,
        *,
        clock: Clock | None = None,
        attached: bool = False,
        figures: bool = False,
        theme: str = DARK.name,
    ) -> None:
        # Textual answers NO_COLOR with shades of grey, unless the application speaks in the terminal's own
        # colours: then with none at all, which is what NO_COLOR asks for.
        super().__init__(driver_class=driver_class(), ansi_color=True if "NO_COLOR" in os.environ else None)
        self.deck = deck
        self.store = Store()
        self.row = None
        self.number = ""
        self._clock = clock or SystemClock()
        self._attached = attached
        self._sort = SORTS[0]
        self._engine: str | None = None
        self._shown: str | None = None
        self._figures = figures
        self._live = LiveScreen()
        self._picture = Picture([])
        self._drawn_changes = -1
        self._drawn_seconds = (-1, -1)
        self._drawn_at = -math.inf
        self._cost_at = -math.inf
        self._cost_meter: object | None = None
        for each in THEMES:
            self.register_theme(each)
        self.theme = theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """So that the style sheet can be read before a theme of ours is in force."""
        return DARK.variables

    def on_mount(self) -> None:
        """Show the live screen and begin to drain."""
        self.push_screen(self._live)
        self.set_interval(DRAIN_S, self.drain)
        self.call_after_refresh(self.drain)

    # From the deck to the screen

    def drain(self) -> None:
        """Fold what has arrived, and draw if it is time to."""
        batch = self.deck.take()
        self.store.feed(batch.frames, batch.now, reset=batch.reset, ended=batch.ended)
        self._announce(batch)
        self._report_cost()
        if self._due(batch):
            self.draw()

    def _due(self, batch: Batch) -> bool:
        if self.store.changes == self._drawn_changes and self._seconds() == self._drawn_seconds:
            return False
        if batch.reset or self._drawn_changes < 0 or any(isinstance(frame, Event) for frame in batch.frames):
            return True
        lively = bool(self.store.agents) and self.store.changes != self._drawn_changes
        return self._clock.monotonic() - self._drawn_at >= (LIVELY_S if lively else CALM_S)

    def _seconds(self) -> tuple[int, int]:
        """What the clocks show: the moment on the screen, and how far the session has got meanwhile."""
        return int(self.store.now), int(self.deck.duration)

    def draw(self) -> None:
        """Compose the picture for the size there is, and show what differs."""
        lines = self._live.query_one_optional("#live", Lines)
        if lines is None:
            return
        width, height = self.size
        look = self.look()
        self._picture = compose(self.store, width, height, look)
        self._shown = settled(self.store, look)
        changed = lines.show(self._picture.lines)
        self._drawn_changes = self.store.changes
        self._drawn_seconds = self._seconds()
        self._drawn_at = self._clock.monotonic()
        top = self.screen
        if top is not self._live:
            if isinstance(top, Dialog):
                top.draw()
            if changed:
                top.refresh()

    def look(self) -> Look:
        """The choices of the user, for the picture."""
        hint = None
        if self.number:
            hint = f"agents: {self.number}▏  Enter sets the number, Esc forgets it"
        keys = footer(obeyed=self.deck.accepts is None, engines=len(self.store.engines))
        return Look(
            engine=self._engine,
            shown=self._shown,
            row=self.row,
            sort=self._sort,
            play=self._play(),
            footer=keys,
            hint=hint,
            figures=self._figures,
        )

    def _play(self) -> Play | None:
        if self.deck.is_live:
            return None
        state = self.deck.transport
        return Play(
            live=state.live,
            playing=state.playing,
            speed=state.speed,
            position=state.position,
            start=state.start,
            duration=state.duration,
            words=tuple(self.deck.state_words),
            events=state.events,
            note=state.note,
        )

    def _announce(self, batch: Batch) -> None:
        """A wish the node has refused is said where the user looks."""
        if batch.reset:
            return
        for frame in batch.frames:
            if isinstance(frame, Event) and frame.event == "command.refused":
                self.say(clean(frame.text), "error")

    def _report_cost(self) -> None:
        """The console's own cost, for the recording; it comes back as a frame and is then shown."""
        at = self._clock.monotonic()
        if at - self._cost_at < OWN_COST_S or self.deck.accepts is not None:
            return
        from agenttop.collect.own import OwnCost as Meter

        first = self._cost_meter is None
        self._cost_at = at
        meter = self._cost_meter = self._cost_meter or Meter("console", self._clock)
        if first:
            return
        assert isinstance(meter, Meter)
        cost = meter.sample(self.store.now)
        self.deck.send(
            OwnCost(
                pid=cost.pid,
                cpu_fraction=cost.cpu_fraction,
                window_s=cost.window_s,
                memory_bytes=cost.memory_bytes,
            )
        )

    # What the user looks at

    def on_resize(self) -> None:
        """Another size is another picture."""
        self.call_after_refresh(self.draw)

    def on_lines_pressed(self, event: Lines.Pressed) -> None:
        """A click selects the row under it; on the header, where the engine stands, it opens their list."""
        if event.line < HEADER_LINES and len(self.store.engines) > 1:
            self.action_engines()
            return
        self.row = self._picture.rows_at.get(event.line)
        self.draw()

    def on_lines_wheel(self, event: Lines.Wheel) -> None:
        """The wheel moves the selection."""
        self.action_select(event.direction)

    def action_select(self, step: int) -> None:
        """Select a row further up or down."""
        keys = [row.key for row in rows(self.store, self.look())]
        if not keys:
            return
        if self.row in keys:
            self.row = keys[min(len(keys) - 1, max(0, keys.index(self.row) + step))]
        else:
            self.row = keys[0] if step > 0 else keys[-1]
        self.draw()

    def action_forget(self) -> None:
        """Nothing selected, nothing typed."""
        self.row, self.number = None, ""
        self.draw()

    def action_sort(self) -> None:
        """The next order of the rows."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_engine(self, step: int) -> None:
        """Look at the engine after or before."""
        engine = neighbour(self.store, self.look(), step)
        if engine is None:
            self.say("there is no other engine")
        else:
            self.focus_on(engine.engine)

    def action_engines(self) -> None:
        """Choose from a list."""
        from agenttop.tui.screens.engines import EnginesScreen

        self.push_screen(EnginesScreen(self.store, self.look()), self.focus_on)

    def action_details(self) -> None:
        """All that is known of the engine in focus."""
        from agenttop.tui.screens.details import DetailsScreen

        self.push_screen(DetailsScreen(self.store, self.look, self.focus_on))

    def action_machine(self) -> None:
        """All that is known of the machine."""
        from agenttop.tui.screens.machine import MachineScreen

        self.push_screen(MachineScreen(self.store, self.look))

    def focus_on(self, engine: str | None) -> None:
        """Look at this engine from now on; None: leave it as it is."""
        if engine is not None and engine != self._engine:
            self._engine, self.row = engine, None
        self.draw()

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_help(self) -> None:
        """All keys."""
        from agenttop.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen())

    def action_missing(self) -> None:
        """What is missing, and why."""
        from agenttop.tui.screens.missing import MissingScreen

        self.push_screen(MissingScreen(self.store))

    def action_events(self) -> None:
        """What happened, every text whole."""
        from agenttop.tui.screens.events import EventsScreen

        self.push_screen(EventsScreen(self.store))

    def action_enter(self) -> None:
        """Set the number that was typed; without one, show what happened."""
        if self.number:
            self.action_set_number()
        else:
            self.action_events()

    # Parting

    async def action_quit(self) -> None:
        """Quit at once where nothing is lost by it, else ask."""
        from agenttop.tui.screens.quit import QuitScreen

        if isinstance(self.screen, QuitScreen):
            return
        if not self._asks_before_quitting:
            self.exit("quit")
            return
        self.push_screen(QuitScreen(agents=self._agents, can_leave=not self._demo), self._from_quit)

    @property
    def _agents(self) -> int:
        load = self.store.load
        return max(load.active, load.target) if load is not None else 0

    @property
    def _demo(self) -> bool:
        return self.store.session is not None and self.store.session.demo

    @property
    def _asks_before_quitting(self) -> bool:
        return self.deck.accepts is None and bool(self._agents or self._attached)

    def end_from_outside(self) -> None:
        """Somebody wants this process to end, not the agents: the session goes on where it can."""
        self.exit("leave" if self._asks_before_quitting and not self._demo else "quit")

    def _from_quit(self, answer: str | None) -> None:
        if answer in ("quit", "leave"):
            self.exit(answer)


def run_console(deck: Deck, *, attached: bool = False, figures: bool = False, theme: str = DARK.name) -> str:
    """Run the console until the user is done with it.

    `figures`: quitting prints the figures of the run.
    `attached`: the session ran before this console came, so quitting always asks whether it is to end.
    Returns `quit` (the session is to end) or `leave` (it is to go on), also `leave` when the console
    was ended from outside. Raises AgenttopError when it broke.
    """
    console = Console(deck, attached=attached, figures=figures, theme=theme)

    def ended(number: int, _frame: object) -> None:
        if not console.is_running:
            sys.exit(128 + number)
        console.end_from_outside()

    # Without this the terminal would be left as it is while the console runs: raw, without a cursor.
    before = {number: signal.signal(number, ended) for number in stop_signals()}
    try:
        answer = console.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if answer is None and console.return_code:
        raise AgenttopError(
            "the console broke off", "the lines above say where; agents that run go on, see `agenttop list`"
        )
    return answer or "leave"
