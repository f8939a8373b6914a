"""A profile as the text of its file: what `check.parse` reads back as the same profile."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.keys import KEYS, Key
from agenttop.agents.settings import Profile


def as_toml(profile: Profile) -> str:
    """The file of a profile, each key with its meaning."""
    lines: list[str] = []
    section = ""
    for key in KEYS:
        value = _value(profile, key)
        if value is None or _needless(profile, key, value):
            continue
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"]
        lines.append(f"{key.path.rpartition('.')[2]} = {_written(value)}  # {key.doc}")
    return "\n".join(lines) + "\n"


def _value(profile: Profile, key: Key) -> Any:
    value: Any = profile
    for part in key.path.split("."):
        value = getattr(value, part, None)
    return value


def _needless(profile: Profile, key: Key, value: object) -> bool:
    """What only some kinds of a section have."""
    if key.path == "compaction.summary":
        return value == 0
    if key.path == "start.stagger_s":
        return value == 0 and profile.start.kind in ("at-once", "spread", "steady")
    return False


def _written(value: Any) -> str:
    if isinstance(value, Distribution):
        fields: dict[str, Any] = msgspec.to_builtins(value)
        if value.kind == "constant":
            return _written(value.value or 0.0)
        return "{ " + ", ".join(f"{name} = {_written(figure)}" for name, figure in fields.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    return str(int(value)) if value == int(value) else repr(value)
