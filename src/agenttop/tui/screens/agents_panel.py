"""The agents panel: which load, on which engine, how many agents, how they start."""

from __future__ import annotations

from textual import events

from agenttop.agents.profile import Profile, names, scale
from agenttop.errors import AgenttopError
from agenttop.model import units
from agenttop.model.commands import Command, Drain, Pause, StartAgents, StopAll
from agenttop.model.frames import EngineSample
from agenttop.tui.screens import profile_edit
from agenttop.tui.screens.dialog import Dialog
from agenttop.tui.screens.profile_edit import ProfileEdit
from agenttop.view.look import Look
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import Line, foreign, pad, wrap
from agenttop.view.store import Store

FIELDS = ("engine", "profile", "agents", "stagger")
MOST_AGENTS = 1024


class AgentsPanel(Dialog[Command]):
    """Ends with the command to send; with None when nothing is to be done.

    Load goes only to an engine that the user named, or confirms here: the answer is a key of its
    own, so that Enter pressed twice does not send load to somebody's server.
    """

    title_text = "Agents"

    def __init__(self, store: Store, look: Look, target: int | None = None) -> None:
        super().__init__()
        self._store = store
        self._field = 1
        focus = engine_in_focus(store, look)
        self._engine = focus.engine if focus else None
        self._profiles = names()
        plan = store.plan
        self._profile = plan.profile if plan and plan.profile in self._profiles else "human"
        if self._profile not in self._profiles and self._profiles:
            self._profile = self._profiles[0]
        self._typed: dict[str, str] = {}
        if target is not None:
            self._typed["agents"] = str(target)
        elif store.load is not None and store.load.target:
            self._typed["agents"] = str(store.load.target)
        self._asking = False
        self._complaint = ""
        self._done = ""
        self._editing = False
        self._edits: dict[str, ProfileEdit] = {}

    # What it shows

    def content(self, room: int, rows: int) -> list[Line]:
        """One line for each choice, then what will come of it."""
        engine, profile = self._engine_sample(), self._current_profile()
        values = {
            "engine": self._engine_text(engine),
            "profile": self._choice(self._profile, len(self._profiles)),
            "agents": self._number("agents", str(profile.agents) if profile else "4", "agents"),
            "stagger": self._stagger(profile),
        }
        lines: list[Line] = [self._line(name, values[name]) for name in FIELDS]
        if self._editing:
            lines += [self._line(name, self._edited(name)) for name in profile_edit.NAMES]
        lines.append([])
        about = self._about(profile, engine, room)
        lines += about[: max(1, rows - len(lines) - 4)]
        lines.append([])
        lines += self._status(room)
        if self._asking and engine is not None:
            lines += [
                [("Send load to ", "warn"), (foreign(engine.url, 60), "strong"), ("?", "warn")],
                [
                    ("It was found on this host; you have not named it.  ", "label"),
                    ("y", "key"),
                    (" yes  ", "text"),
                    ("n", "key"),
                    (" no", "text"),
                ],
            ]
        elif self._complaint:
            lines += wrap(foreign(self._complaint, 300), room, "bad")
        elif self._done:
            lines += wrap(foreign(self._done, 300), room, "good")
        elif self._editing:
            lines.append([("⏎", "key"), (" start   ", "text"), ("tab", "key"), (" back", "text")])
        else:
            lines.append(
                [
                    ("⏎", "key"),
                    (" start   ", "text"),
                    ("d", "key"),
                    (" drain   ", "text"),
                    ("p", "key"),
                    (" pause   " if not self._paused else " go on   ", "text"),
                    ("x", "key"),
                    (" stop all now   ", "text"),
                    ("e", "key"),
                    (" edit", "text"),
                ]
            )
        return lines

    def note(self) -> Line:
        """The keys that move and close."""
        return [
            ("↑↓", "key"),
            (" field  ", "label"),
            ("←→", "key"),
            (" change  ", "label"),
            ("Esc", "key"),
            (" closes", "label"),
        ]

    def _line(self, name: str, value: Line) -> Line:
        if self._chosen == name:
            return [("› ", "accent"), (pad(name, 9), "accent"), *value]
        return [("  ", "text"), (pad(name, 9), "label"), *value]

    @property
    def _rows(self) -> tuple[str, ...]:
        """The fields that can be chosen."""
        return (*FIELDS, *profile_edit.NAMES) if self._editing else FIELDS

    @property
    def _chosen(self) -> str:
        return self._rows[self._field]

    def _edited(self, name: str) -> Line:
        """A row of the profile."""
        edit, about = self._edit(), profile_edit.ABOUT[name]
        text = foreign(edit.value(name), 60)
        if name in profile_edit.TEXTS:
            cursor = "▏" if self._chosen == name else ""
            return [("  ", "text"), (text + cursor, "strong"), (f"  {about}" if not text else "", "label")]
        role = "strong" if edit.changed(name) else "text"
        return [("‹ ", "key"), (text, role), (" ›", "key"), (f"  {about}", "label")]

    def _edit(self) -> ProfileEdit:
        """The profile chosen, with what was set in it; at first as in the load that runs."""
        if self._profile not in self._edits:
            plan = self._store.plan
            same = plan is not None and (plan.profile, plan.engine) == (self._profile, self._engine)
            self._edits[self._profile] = ProfileEdit(
                self._profile, plan.overrides if plan is not None and same else None
            )
        return self._edits[self._profile]

    def _choice(self, text: str, count: int) -> Line:
        arrows = ("‹ ", " ›") if count > 1 else ("  ", "")
        return [(arrows[0], "key"), (text or "none", "strong"), (arrows[1], "key")]

    def _engine_text(self, engine: EngineSample | None) -> Line:
        if engine is None:
            return [("  no engine yet: start one, or name it with --url", "warn")]
        line = self._choice(foreign(engine.url, 50), len(self._store.engines))
        line.append((f"  {foreign(engine.name, 20)}", "text"))
        if engine.state != "ok":
            line.append((f"  {engine.state}", "warn"))
        allowed = engine.load_allowed
        line.append(("  named" if allowed else "  asks before load", "good" if allowed else "warn"))
        return line

    def _number(self, name: str, standing: str, unit: str, whence: str = "as the profile says") -> Line:
        typed = self._typed.get(name)
        return [
            ("‹ ", "key"),
            (typed if typed is not None else standing, "strong" if typed is not None else "text"),
            (" ›", "key"),
            (f"  {unit}" if typed is not None else f"  {unit}, {whence}", "label"),
        ]

    def _stagger(self, profile: Profile | None) -> Line:
        if profile is None:
            return self._number("stagger", "–", "seconds")
        if (chosen := self._stagger_in_force()) is not None:
            return self._number("stagger", f"{chosen:g}", "seconds between starts", "as now")
        return self._number("stagger", f"{profile.start.stagger_s:g}", "seconds between starts")

    def _stagger_in_force(self) -> float | None:
        """What was chosen for the load that runs, where it is this profile's on this engine."""
        plan = self._store.plan
        if plan is None or plan.profile != self._profile or plan.engine != self._engine:
            return None
        profile = self._current_profile()
        if profile is not None and plan.stagger_s == profile.start.stagger_s:
            return None  # it was not chosen
        return plan.stagger_s

    def _about(self, profile: Profile | None, engine: EngineSample | None, room: int) -> list[Line]:
        """The profile in a sentence, and how it will be fitted to the engine."""
        if profile is None:
            return wrap(foreign(self._edit().trouble, 300), room, "bad")
        lines = wrap(foreign(profile.description, 200), room, "text")
        if engine is None:
            return lines
        try:
            notes = scale(profile, engine.context_limit_tokens).notes
        except AgenttopError as error:
            return [*lines, *wrap(foreign(str(error), 200), room, "bad")]
        limit = units.count(profile.context.limit)
        if not notes:
            return [*lines, [(f"context grows to {limit} tokens, then is compacted", "label")]]
        for text in notes[:4]:
            wrapped = wrap(foreign(text, 200), room - 2, "label")
            lines += [[("  " if index else "· ", "dim"), *line] for index, line in enumerate(wrapped)]
        return lines

    def _status(self, room: int) -> list[Line]:
        load = self._store.load
        if load is None or (load.active == 0 and load.target == 0):
            return [[("no agents run", "label")]]
        profile = foreign(load.profile or "", 24)
        text = f"now {load.active} of {load.target} agents of {profile}"
        if load.profile and load.profile != self._profile:
            text += f"; starting {self._profile} stops them first"
        return wrap(text, room, "label")

    # What the keys do

    @property
    def _paused(self) -> bool:
        return self._store.load is not None and self._store.load.paused

    def on_key(self, event: events.Key) -> None:
        """Every key while the panel is open."""
        event.stop()
        key = event.key
        self._done = ""
        if self._asking:
            self._answer(key)
        elif self._editing and self._edits_with(event):
            pass
        elif key in ("e", "tab"):
            self._editing = not self._editing
            self._field = len(FIELDS) if self._editing else 1
        elif key in ("escape", "a", "q"):
            self.dismiss(None)
            return
        elif key in ("up", "down"):
            self._move(1 if key == "down" else -1)
        elif key in ("left", "right"):
            self._change(1 if key == "right" else -1)
        elif key in ("plus", "equals_sign", "minus"):
            self._field = FIELDS.index("agents")
            self._change(-1 if key == "minus" else 1)
        elif key == "enter":
            self._start()
            return
        elif key in ("d", "p", "x"):
            orders: dict[str, Command] = {"d": Drain(), "p": Pause(on=not self._paused), "x": StopAll()}
            self.dismiss(orders[key])
            return
        elif key == "backspace" or ((event.character or "") in "0123456789." and event.character):
            self._type(event.character if key != "backspace" else "")
        self.draw()

    def _move(self, step: int) -> None:
        self._edit().leave()
        self._field = (self._field + step) % len(self._rows)

    def _edits_with(self, event: events.Key) -> bool:
        """A key in a row of the profile; whether it belongs there."""
        name, key, character = self._chosen, event.key, event.character or ""
        if name not in profile_edit.NAMES:
            return False
        edit, text = self._edit(), name in profile_edit.TEXTS
        self._complaint = ""
        if key == "backspace":
            edit.rub_out(name)
        elif key in ("left", "right") and not text:
            edit.step(name, 1 if key == "right" else -1)
        elif key == "enter" and text and edit.value(name):
            self._enter(edit, name)
        elif (text and character.isprintable() and character) or (character and character in "0123456789.k"):
            edit.type(name, character)
        else:
            return False
        return True

    def _enter(self, edit: ProfileEdit, row: str) -> None:
        try:
            self._done = edit.enter(row) or ""
        except AgenttopError as error:
            self._complaint = str(error)
            return
        if edit.name != self._profile:  # it was saved
            self._edits.pop(self._profile)
            self._profile, self._profiles = edit.name, names()
            self._edits[edit.name] = edit

    def _change(self, step: int) -> None:
        name = self._chosen
        self._complaint = ""
        if name == "engine":
            self._engine = _next(sorted(self._store.engines), self._engine, step)
        elif name == "profile":
            self._profile = _next(self._profiles, self._profile, step) or self._profile
        else:
            profile = self._current_profile()
            standing = (profile.agents if name == "agents" else profile.start.stagger_s) if profile else 4
            if name == "stagger" and (chosen := self._stagger_in_force()) is not None:
                standing = chosen
            value = _number(self._typed.get(name), float(standing)) + step
            self._typed[name] = f"{max(1.0 if name == 'agents' else 0.0, value):g}"

    def _type(self, character: str | None) -> None:
        name = self._chosen
        if name not in ("agents", "stagger"):
            name = "agents"
            self._field = FIELDS.index(name)
        self._complaint = ""
        typed = self._typed.get(name, "")
        if character:
            if character == "." and (name == "agents" or "." in typed):
                return
            fresh = typed if name in self._typed and self._fresh == name else ""
            self._typed[name] = (fresh + character)[:6]
            self._fresh = name
        else:
            self._typed[name] = typed[:-1]
            self._fresh = name
            if not self._typed[name]:
                del self._typed[name]

    _fresh = ""
    """The field that is being typed in: the first digit replaces what stood there."""

    def _answer(self, key: str) -> None:
        if key == "y":
            self.dismiss(self._command(confirmed=True))
        elif key in ("n", "escape"):
            self._asking = False

    def _start(self) -> None:
        engine = self._engine_sample()
        if engine is None:
            self._complaint = "there is no engine to send load to"
        elif self._current_profile() is None:
            self._complaint = "this profile cannot be used"
        elif not 0 <= self._agents() <= MOST_AGENTS:
            self._complaint = f"0 to {MOST_AGENTS} agents"
        elif not engine.load_allowed:
            self._asking = True
        else:
            self.dismiss(self._command(confirmed=False))
            return
        self.draw()

    def _command(self, *, confirmed: bool) -> StartAgents:
        stagger = self._typed.get("stagger")
        assert self._engine is not None
        return StartAgents(
            engine=self._engine,
            profile=self._profile,
            target=self._agents(),
            stagger_s=_number(stagger, 0.0) if stagger is not None else self._stagger_in_force(),
            confirmed=confirmed,
            overrides=self._edit().overrides,
        )

    def _agents(self) -> int:
        profile = self._current_profile()
        return int(_number(self._typed.get("agents"), float(profile.agents if profile else 4)))

    def _engine_sample(self) -> EngineSample | None:
        if self._engine is None:
            self._engine = next(iter(sorted(self._store.engines)), None)
        return self._store.engines.get(self._engine) if self._engine else None

    def _current_profile(self) -> Profile | None:
        """The profile chosen; None where its file, or what was set, is wrong, which is then said."""
        return self._edit().profile


def _next(choices: list[str], current: str | None, step: int) -> str | None:
    if not choices:
        return None
    at = choices.index(current) if current in choices else 0
    return choices[(at + step) % len(choices)]


def _number(text: str | None, standing: float) -> float:
    try:
        return float(text) if text else standing
    except ValueError:
        return standing
