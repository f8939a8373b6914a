"""The rows of the agents panel that change a profile: what is typed, what becomes of it. No Textual."""

from __future__ import annotations

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.keys import STARTS
from agenttop.agents.overrides import read_settings
from agenttop.agents.profile import Profile, load, save_as
from agenttop.errors import AgenttopError

NAMES = ("limit", "input", "output", "tool", "person", "begin", "set", "save as")
TEXTS = ("set", "save as")
"""Rows in which every character is typed text."""

_KEYS = {
    "limit": "context.limit",
    "input": "turn.input.median",
    "output": "turn.output.median",
    "tool": "pacing.tool_pause_s.median",
    "person": "pacing.human_pause_s.median",
    "begin": "start.kind",
}
ABOUT = {
    "limit": "tokens: the context grows to it, then is compacted",
    "input": "tokens per turn (median)",
    "output": "tokens per turn (median)",
    "tool": "seconds a tool runs (median)",
    "person": "seconds a person takes (median); none: no person",
    "begin": "how agents begin",
    "set": "any key, e.g. context.system=3k; Enter sets it",
    "save as": "a name; Enter saves the profile as it stands here",
}
MOST_CHARS = 120


class ProfileEdit:
    """One profile and what the user has set in it."""

    def __init__(self, name: str, overrides: dict[str, str] | None = None) -> None:
        self.name = name
        self.overrides: dict[str, str] = dict(overrides or {})
        self.typed: dict[str, str] = {}
        """Of the row that is being typed in."""
        self.trouble = ""
        """What is wrong with it as it stands."""
        self._last: Profile | None = None
        self._read()

    @property
    def profile(self) -> Profile | None:
        """With what was set; None while that, or its file, is wrong."""
        return None if self.trouble else self._last

    def value(self, row: str) -> str:
        """What stands in a row."""
        if row in self.typed:
            return self.typed[row]
        key = _KEYS.get(row)
        if key is None:
            return ""
        if key in self.overrides:
            return self.overrides[key]
        return "–" if self._last is None else _standing(self._last, row)

    def changed(self, row: str) -> bool:
        """Whether the user has set it."""
        return row in self.typed or _KEYS.get(row) in self.overrides

    def put(self, key: str, value: str) -> None:
        """Set one key; an empty value lets go of it."""
        self.overrides.pop(key, None)
        if key == "pacing.human_pause_s.median":
            self.overrides.pop("pacing.human_pause_s", None)
            key = "pacing.human_pause_s" if value == "none" else key
        if value:
            self.overrides[key] = value
        self._read()

    def type(self, row: str, character: str) -> None:
        """One more character in a row; the first one replaces what stood there."""
        self.typed = {row: (self.typed.get(row, "") + character)[:MOST_CHARS]}
        if row in _KEYS:
            self.put(_KEYS[row], self.typed[row])

    def rub_out(self, row: str) -> None:
        """Take back a character; nothing left means as the profile says."""
        left = self.typed.get(row, self.value(row) if self.changed(row) else "")[:-1]
        self.typed = {row: left} if left else {}
        if row in _KEYS:
            self.put(_KEYS[row], left)

    def leave(self) -> None:
        """Another row is chosen: what was typed into a number stands, what was typed as text waits."""
        self.typed = {row: text for row, text in self.typed.items() if row in TEXTS}

    def step(self, row: str, direction: int) -> None:
        """The next value up or down: a tenth, in round numbers; the next way to begin."""
        if row not in _KEYS or self._last is None:
            return
        self.typed = {}
        if row == "begin":
            at = STARTS.index(self._last.start.kind)
            self.put(_KEYS[row], STARTS[(at + direction) % len(STARTS)])
            return
        now = _number(self._last, row)
        if row == "person" and direction < 0 and 0 < now < 1:
            self.put(_KEYS[row], "none")
        else:
            self.put(_KEYS[row], _round(max(1.0, now * 1.1) if direction > 0 else now / 1.1))

    def enter(self, row: str) -> str | None:
        """Enter in a row of text: set a key, or save. Returns what was done; raises AgenttopError."""
        text = self.typed.pop(row, "").strip()
        if not text:
            return None
        if row == "set":
            for key, value in read_settings([text]).items():
                before = dict(self.overrides)
                self.put(key, value)
                if self.trouble:
                    trouble = self.trouble
                    self.overrides = before
                    self._read()
                    self.typed = {row: text}
                    raise AgenttopError(trouble)
            return f"set {text}"
        if self.profile is None:
            raise AgenttopError(self.trouble or "this profile cannot be used")
        file = save_as(msgspec.structs.replace(self.profile, name=text), text)
        self.name, self.overrides = text, {}
        self._read()
        return f"saved as {file}"

    def _read(self) -> None:
        try:
            self._last = load(self.name, self.overrides)
            self.trouble = ""
        except AgenttopError as error:
            self.trouble = str(error).splitlines()[0].removeprefix("--set: ")


def _standing(profile: Profile, row: str) -> str:
    if row == "begin":
        return profile.start.kind
    if row == "person" and profile.pacing.human_pause_s is None:
        return "none"
    return _round(_number(profile, row), digits=3)


def _number(profile: Profile, row: str) -> float:
    if row == "limit":
        return float(profile.context.limit)
    found: dict[str, Distribution | None] = {
        "input": profile.turn.input,
        "output": profile.turn.output,
        "tool": profile.pacing.tool_pause_s,
        "person": profile.pacing.human_pause_s,
    }
    distribution = found[row]
    return 0.0 if distribution is None else distribution.median


def _round(value: float, digits: int = 2) -> str:
    """A round number as one types it: `110k`, `820`, `0.5`."""
    value = float(f"{value:.{digits}g}")
    if value >= 10_000 and value % 1000 == 0:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
