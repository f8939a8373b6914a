"""The ramp: from how many agents to how many, in which steps, and how long each level is held."""

from __future__ import annotations

from textual import events

from agenttop.agents.profile import Profile, load, names
from agenttop.agents.starts import starts_s
from agenttop.errors import AgenttopError, UsageError
from agenttop.model import units
from agenttop.model.commands import Command, Ramp, StopAll
from agenttop.model.frames import EngineSample
from agenttop.tui.screens.dialog import Dialog
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line, foreign, pad, wrap
from agenttop.view.store import Store

FIELDS = ("engine", "profile", "from", "to", "step", "hold")
NUMBERS = ("from", "to", "step")
MOST_AGENTS = 1024

LEAST_STARTS_S = 1.0
"""Staggered starts that take less are not worth a word."""

TO = 16
HOLD = "2m"
HOLDS = ("30s", "1m", "2m", "5m", "10m", "20m")
"""What the arrows go through; anything else can be typed."""


class RampDialog(Dialog[Command]):
    """Ends with the command to send; with None when nothing is to be done. As in the agents panel, load goes
    only to an engine that the user named, or confirms here with a key of its own."""

    title_text = "Ramp"

    def __init__(self, store: Store, look: Look) -> None:
        super().__init__()
        self._store = store
        self._field = FIELDS.index("to")
        plan = store.plan
        focus = engine_in_focus(store, look)
        self._engine = plan.engine if plan is not None else focus.engine if focus else None
        self._profiles = names()
        self._profile = plan.profile if plan is not None else "human"
        if self._profile not in self._profiles:
            # A profile file of its own: the load in force can be kept though it is not in the list.
            self._profiles = [self._profile, *self._profiles] if plan is not None else self._profiles
            self._profile = self._profiles[0] if self._profiles else ""
        standing = store.load.target if store.load is not None else 0
        first = max(1, standing)
        self._values = {
            "from": str(first),
            "to": str(max(TO, 2 * first)),
            "step": str(max(1, first)),
            "hold": HOLD,
        }
        self._fresh = ""
        """The field that is being typed in: the first digit replaces what stood there."""
        self._asking = False
        self._complaint = ""
        self._loaded: dict[str, Profile | str] = {}

    # What it shows

    def content(self, room: int, rows: int) -> list[Line]:
        """One line for each choice, then what it will do and how long it takes."""
        engine = self._sample()
        values: dict[str, Line] = {
            "engine": self._engine_text(engine),
            "profile": self._choice(self._profile, len(self._profiles)),
            "from": self._value("from", "agents"),
            "to": self._value("to", "agents"),
            "step": self._value("step", "agents on each level"),
            "hold": self._value("hold", "each level, e.g. 90s or 5m"),
        }
        lines: list[Line] = [self._line(name, values[name]) for name in FIELDS]
        lines += [[], *self._preview(room), []]
        if self._asking and engine is not None:
            return [*lines, *_question(engine)]
        if self._complaint:
            return [*lines, *wrap(self._complaint, room, "bad")]
        keys: Line = [("⏎", "key"), (" start the ramp", "text")]
        if self._busy:
            keys += [("   x", "key"), (" stop all now", "text")]
        return [*lines, keys]

    def note(self) -> Line:
        """The keys that move and close."""
        keys = (("↑↓", " field  "), ("←→", " change  "), ("Esc", " closes"))
        return [span for key, text in keys for span in ((key, "key"), (text, "label"))]

    def _line(self, name: str, value: Line) -> Line:
        if FIELDS[self._field] == name:
            return [("› ", "accent"), (pad(name, 9), "accent"), *value]
        return [("  ", "text"), (pad(name, 9), "label"), *value]

    def _choice(self, text: str, count: int) -> Line:
        arrows = ("‹ ", " ›") if count > 1 else ("  ", "")
        return [(arrows[0], "key"), (foreign(text, 50) or "none", "strong"), (arrows[1], "key")]

    def _value(self, name: str, unit: str) -> Line:
        return [("‹ ", "key"), (self._values[name] or " ", "strong"), (" ›", "key"), (f"  {unit}", "label")]

    def _engine_text(self, engine: EngineSample | None) -> Line:
        if engine is None:
            return [("  no engine yet: start one, or name it with --url", "warn")]
        line = self._choice(engine.url, len(self._store.engines))
        if engine.state != "ok":
            line.append((f"  {engine.state}", "warn"))
        allowed = engine.load_allowed
        line.append(("  named" if allowed else "  asks before load", "good" if allowed else "warn"))
        return line

    def _preview(self, room: int) -> list[Line]:
        """What it will do, and how long it takes."""
        ramp = self._ramp(confirmed=False)
        if isinstance(ramp, str):
            return wrap(ramp, room, "warn")
        levels = ramp.levels()
        shown = [str(level) for level in levels]
        if len(shown) > 12:
            shown = [*shown[:8], "…", *shown[-2:]]
        text = " → ".join(shown) + " agents"
        whole = units.seconds(ramp.hold_s * len(levels))
        took = f"{units.plural(len(levels), 'level')} of {units.seconds(ramp.hold_s)}: {whole}"
        speedup = self._store.session.speedup if self._store.session is not None else 1.0
        if speedup != 1.0:
            took += f" of simulated time ({units.seconds(ramp.hold_s * len(levels) / speedup)} to wait)"
        end = f"{units.plural(levels[-1], 'agent')} stay after it; + or - ends it early"
        return [
            *wrap(text, room, "text"),
            *wrap(f"{took}; {end}", room, "label"),
            *self._about_starts(levels, room),
            *self._about_load(room, levels[0]),
        ]

    def _about_starts(self, levels: list[int], room: int) -> list[Line]:
        """What the staggered starts of the profile add, where it is known here and they do."""
        self._problem()
        profile, standing = self._loaded.get(self._profile), self._store.load
        if not isinstance(profile, Profile):
            return []
        takes_s = starts_s(profile, levels, standing.target if standing is not None else 0)
        if takes_s < LEAST_STARTS_S:
            return []
        text = f"held once all its agents run: staggered starts take about {units.seconds(takes_s)} more"
        return wrap(text, room, "label")

    def _about_load(self, room: int, first: int) -> list[Line]:
        """What becomes of the agents that run now."""
        standing = self._store.load
        if standing is None or not standing.active:
            return []
        plan = self._store.plan
        if plan is not None and (plan.profile, plan.engine) != (self._profile, self._engine):
            text = f"the {standing.active} agents of {foreign(plan.profile, 24)} are stopped first"
        elif first < standing.active:
            text = f"the {standing.active} agents that run make room for {first} new ones"
        else:
            text = f"the {units.plural(standing.active, 'agent')} that run stay, others join them"
        return wrap(text, room, "label")

    # What the keys do

    @property
    def _busy(self) -> bool:
        return self._store.load is not None and bool(self._store.load.active or self._store.load.target)

    def on_key(self, event: events.Key) -> None:
        """Every key while the dialog is open."""
        event.stop()
        key, character = event.key, event.character or ""
        if self._asking:
            if key == "y":
                self._finish(confirmed=True)
                return
            self._asking = key not in ("n", "escape")
        elif key in ("escape", "r", "q"):
            self.dismiss(None)
            return
        elif key in ("up", "down"):
            self._field = (self._field + (1 if key == "down" else -1)) % len(FIELDS)
        elif key in ("left", "right", "plus", "equals_sign", "minus"):
            self._change(-1 if key in ("left", "minus") else 1)
        elif key == "enter":
            self._start()
            return
        elif key == "x" and self._busy:
            self.dismiss(StopAll())
            return
        elif key == "backspace" or (character and character in "0123456789.hms"):
            self._type("" if key == "backspace" else character)
        self.draw()

    def _change(self, step: int) -> None:
        name = FIELDS[self._field]
        self._complaint, self._fresh = "", ""
        if name == "engine":
            self._engine = _next(sorted(self._store.engines), self._engine, step)
        elif name == "profile":
            self._profile = _next(self._profiles, self._profile, step) or self._profile
        elif name == "hold":
            self._values[name] = _next(list(HOLDS), self._values[name], step) or HOLD
        else:
            value = int(self._values[name] or "0") + step
            self._values[name] = str(min(MOST_AGENTS, max(1, value)))

    def _type(self, character: str) -> None:
        name = FIELDS[self._field]
        self._complaint = ""
        if name in ("engine", "profile") or (name in NUMBERS and character and not character.isdigit()):
            return
        standing = self._values[name]
        if not character:
            self._values[name] = standing[:-1]
        else:
            fresh = standing if self._fresh == name else ""
            self._values[name] = (fresh + character)[: 4 if name in NUMBERS else 8]
        self._fresh = name

    def _start(self) -> None:
        engine, ramp = self._sample(), self._ramp(confirmed=False)
        if isinstance(ramp, str):
            self._complaint = ramp
        elif engine is not None and not engine.load_allowed:
            self._asking = True
        else:
            self._finish(confirmed=False)
            return
        self.draw()

    def _finish(self, *, confirmed: bool) -> None:
        ramp = self._ramp(confirmed=confirmed)
        self.dismiss(None if isinstance(ramp, str) else ramp)

    def _ramp(self, *, confirmed: bool) -> Ramp | str:
        """The command, or what is wrong with the choices."""
        if self._sample() is None:
            return "there is no engine to send load to"
        plan = self._store.plan
        same = plan is not None and (plan.profile, plan.engine) == (self._profile, self._engine)
        if not same and (problem := self._problem()) is not None:
            return problem
        first, last, step = (int(self._values[name] or "0") for name in NUMBERS)
        if not (1 <= first <= MOST_AGENTS and 1 <= last <= MOST_AGENTS and step >= 1):
            return f"from, to and step are 1 to {MOST_AGENTS}"
        try:
            hold_s = units.parse_duration(self._values["hold"])
        except UsageError as error:
            return str(error)
        if hold_s <= 0:
            return "each level must be held for some time"
        return Ramp(
            first=first,
            last=last,
            step=step,
            hold_s=hold_s,
            engine=None if same else self._engine,
            profile=None if same else self._profile,
            confirmed=confirmed,
        )

    def _problem(self) -> str | None:
        """Why the profile cannot be used; None where it can."""
        if self._profile not in self._loaded:
            try:
                self._loaded[self._profile] = load(self._profile)
            except AgenttopError as error:
                self._loaded[self._profile] = foreign(str(error), 200)
        found = self._loaded[self._profile]
        return found if isinstance(found, str) else None

    def _sample(self) -> EngineSample | None:
        if self._engine is None:
            self._engine = next(iter(sorted(self._store.engines)), None)
        return self._store.engines.get(self._engine) if self._engine else None


def _question(engine: EngineSample) -> list[Line]:
    return [
        [("Send load to ", "warn"), (foreign(engine.url, 60), "strong"), ("?", "warn")],
        [
            ("It was found on this host; you have not named it.  ", "label"),
            ("y", "key"),
            (" yes  ", "text"),
            ("n", "key"),
            (" no", "text"),
        ],
    ]


def _next(choices: list[str], current: str | None, step: int) -> str | None:
    if not choices:
        return None
    at = choices.index(current) if current in choices else 0
    return choices[(at + step) % len(choices)]
