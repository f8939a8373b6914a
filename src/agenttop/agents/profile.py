"""Profiles by name: where they lie, loading them, and fitting them to an engine."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agenttop import paths
from agenttop.agents.check import parse
from agenttop.agents.distribution import Distribution
from agenttop.agents.scale import Scaled, scale
from agenttop.agents.settings import Profile
from agenttop.agents.toml import as_toml
from agenttop.agents.tracefile import opened
from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.oslayer import at_home
from agenttop.smallfile import read_text

__all__ = [
    "Distribution",
    "Profile",
    "Scaled",
    "as_toml",
    "found",
    "load",
    "locate",
    "names",
    "read",
    "save_as",
    "scale",
]


def found() -> dict[str, Path]:
    """Every profile by name; a user's own goes before a bundled one of the same name."""
    profiles: dict[str, Path] = {}
    for folder in (paths.bundled_profiles(), paths.user_profiles()):
        try:
            files = sorted(folder.glob("*.toml"))
        except OSError:
            continue
        profiles.update({file.stem: file for file in files})
    return dict(sorted(profiles.items()))


def names() -> list[str]:
    """Names that `load` knows."""
    return list(found())


def load(name_or_path: str, overrides: Mapping[str, str] | None = None) -> Profile:
    """A profile by its name, or from a TOML file. Raises UsageError with one line for each mistake.

    `overrides`: keys set by the user, as written: `{"context.limit": "32k"}`.
    """
    return read(locate(name_or_path), overrides)


def locate(name_or_path: str) -> Path:
    """The file of a profile. Raises UsageError when there is no profile of that name."""
    if _is_path(name_or_path):
        return at_home(name_or_path)
    known = found()
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"there is no profile '{clean(name_or_path, 60)}'",
        f"{hint}known: {', '.join(known) or 'none'}; or give the path of a .toml file",
    )


def read(file: Path, overrides: Mapping[str, str] | None = None) -> Profile:
    """The profile in a file, with keys set by the user. Raises UsageError with one line for each mistake."""
    profile, problems = parse(read_text(file, "a profile"), file.stem, overrides)
    if profile is None:
        raise UsageError("\n".join(problem.sentence(str(file)) for problem in problems))
    return profile if profile.trace is None else _with_trace(profile, file)


def _with_trace(profile: Profile, file: Path) -> Profile:
    """The profile with the place of its trace, which lies beside it. Raises UsageError if that is none."""
    assert profile.trace is not None
    place = (file.parent / at_home(profile.trace.file)).absolute()
    opened(str(place))
    return msgspec.structs.replace(profile, trace=msgspec.structs.replace(profile.trace, file=str(place)))


def save_as(profile: Profile, name: str) -> Path:
    """Write a profile into the user's folder, under a name that is still free. Raises UsageError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}", name) or name.endswith(".toml"):
        raise UsageError(f"'{clean(name, 60)}' is no name for a profile", "use letters, digits, - and _")
    if any(path.stem == name for path in paths.bundled_profiles().glob("*.toml")):
        raise UsageError(f"'{name}' comes with agenttop", "take another name")
    file = paths.user_profiles() / f"{name}.toml"
    if file.exists():
        raise UsageError(f"there is a profile '{name}' already: {file}", "take another name")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(as_toml(profile))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    return file


def _is_path(text: str) -> bool:
    return text.endswith(".toml") or os.sep in text or "/" in text
