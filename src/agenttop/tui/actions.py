"""Every action of the live screen, once: keys, footer and help are made from this table."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Action:
    """Something a key does."""

    id: str
    """Name of the method `action_<id>` of the console, with its argument where it has one."""
    keys: tuple[str, ...]
    """Names as Textual has them."""
    shown: str
    """The keys as a person writes them."""
    group: str
    help: str
    """One line."""
    footer: str | None = None
    """Two words at most; None: not in the footer."""
    rank: int = 99
    """Place in the footer; the higher ones go first where there is no room."""
    priority: bool = False
    """Also while a dialog is open."""
    among_several: bool = False
    """In the footer only where there are several engines."""


ACTIONS: tuple[Action, ...] = (
    Action("panel", ("a",), "a", "Agents", "set up: engine, profile, number, stagger", "agents", 1),
    Action("add(1)", ("plus", "equals_sign"), "+", "Agents", "one agent more", "more", 2),
    Action("add(-1)", ("minus",), "-", "Agents", "one agent fewer: the youngest goes", "fewer", 3),
    Action("ramp", ("r",), "r", "Agents", "ramp: climb level by level, each held for a while", "ramp", 12),
    Action("target", ("t",), "t, 0-9 ⏎", "Agents", "number of agents: digits, then Enter or t"),
    Action(
        "stop_all",
        ("x",),
        "x",
        "Agents",
        "stop all now: requests are cancelled",
        "stop all",
        4,
    ),
    Action("drain_agents", ("d",), "d", "Agents", "every agent ends its turn, then stops"),
    Action("pause_agents", ("p",), "p", "Agents", "no new turns until p is pressed again"),
    Action("stop_selected", ("k",), "k", "Agents", "stop the agent of the selected row"),
    Action("play", ("space",), "space", "Time", "hold the picture, or play on", "hold", 5),
    Action("skip(-10)", ("left",), "←", "Time", "10 seconds back"),
    Action("skip(10)", ("right",), "→", "Time", "10 seconds on"),
    Action("skip(-60)", ("shift+left", "ctrl+left"), "shift ←", "Time", "a minute back (also ctrl)"),
    Action("skip(60)", ("shift+right", "ctrl+right"), "shift →", "Time", "a minute on (also ctrl)"),
    Action("step(-1)", ("comma",), ",", "Time", "hold, and one sample back"),
    Action("step(1)", ("full_stop",), ".", "Time", "hold, and one sample on"),
    Action("event(-1)", ("left_square_bracket",), "[", "Time", "to the event before", "events", 8),
    Action("event(1)", ("right_square_bracket",), "]", "Time", "to the next event"),
    Action("speed(-1)", ("less_than_sign",), "<", "Time", "play slower"),
    Action("speed(1)", ("greater_than_sign",), ">", "Time", "play faster"),
    Action("go_to", ("g",), "g", "Time", "go to a time: 90s, 12:34, 1:02:03"),
    Action("start", ("home",), "Home", "Time", "to the beginning"),
    Action("live", ("end",), "End", "Time", "to the present, or a recording's end"),
    Action("select(-1)", ("up",), "↑", "Look", "select the row above"),
    Action("select(1)", ("down",), "↓", "Look", "select the row below"),
    Action("select(-10)", ("pageup",), "PgUp", "Look", "ten rows up"),
    Action("select(10)", ("pagedown",), "PgDn", "Look", "ten rows down"),
    Action("forget", ("escape",), "Esc", "Look", "nothing selected, no number typed"),
    Action("sort", ("s",), "s", "Look", "order of the rows: agent, slot, context, rate", "sort", 9),
    Action("engine(1)", ("e",), "e", "Look", "look at the next engine"),
    Action("engine(-1)", ("E",), "E", "Look", "look at the engine before"),
    Action(
        "engines", ("l",), "l", "Look", "list of engines, to choose from", "engines", 4, among_several=True
    ),
    Action("details", ("i",), "i", "Look", "all that is known of the engine", "details", 9),
    Action("machine", ("h",), "h", "Look", "GPUs, host, memory, processes: all of it", "machine", 9),
    Action("missing", ("w",), "w", "Look", "what is missing, why, and what would provide it", "missing", 10),
    Action("events", ("v",), "v, ⏎", "Look", "what happened, every text whole"),
    Action("theme", ("ctrl+t",), "ctrl t", "Look", "dark or light", priority=True),
    Action("mark", ("m",), "m", "Session", "a note on the time axis", "mark", 11),
    Action("help", ("question_mark", "f1"), "?", "Session", "this list", "help", 6),
    Action("quit", ("q",), "q", "Session", "quit; asks when agents run", "quit", 7),
    Action("quit", ("ctrl+c", "ctrl+q"), "ctrl c", "Session", "the same", priority=True),
)


def bindings() -> list[Binding]:
    """For the console; digits and the keys that end a number included."""
    bound = [
        Binding(",".join(action.keys), action.id, action.help, show=False, priority=action.priority)
        for action in ACTIONS
    ]
    bound += [Binding(str(digit), f"digit({digit})", "digit", show=False) for digit in range(10)]
    return [
        *bound,
        Binding("enter", "enter", "set the number typed, else what happened", show=False),
        Binding("backspace", "rub_out", "rub out a digit", show=False),
    ]


SHORT_KEYS = {"[": "[ ]"}


ORDERS = ("Agents",)
"""Groups whose actions ask something of the session."""


def footer(*, obeyed: bool = True, engines: int = 1) -> tuple[tuple[str, str], ...]:
    """Key and text for the last line, the most important first; `obeyed`: the session takes commands, which
    one that has ended or is replayed does not; `engines`: how many there are to look at."""
    shown = sorted(
        (
            action
            for action in ACTIONS
            if action.footer
            and (obeyed or not _is_order(action))
            and (engines > 1 or not action.among_several)
        ),
        key=lambda action: action.rank,
    )
    return tuple((SHORT_KEYS.get(action.shown, action.shown), action.footer or "") for action in shown)


def _is_order(action: Action) -> bool:
    return action.group in ORDERS or action.id == "mark"
