"""Every kind of engine there is: ours and those of other packages, all by the entry-point group.

[project.entry-points."agenttop.engines"]
my-engine = "my_package.my_engine:KIND"
"""

from __future__ import annotations

import importlib.metadata
import re
from functools import lru_cache

import msgspec

from agenttop.collect.engine import harmless
from agenttop.collect.engine.kind import EngineKind
from agenttop.model.text import clean

GROUP = "agenttop.engines"


class Refused(msgspec.Struct, frozen=True):
    """A plug-in that is not used."""

    entry: str
    package: str
    why: str
    """One sentence."""


class Registry(msgspec.Struct, frozen=True):
    """What was found."""

    kinds: tuple[EngineKind, ...]
    """In the order in which they are asked."""
    refused: tuple[Refused, ...] = ()

    def named(self, name: str) -> EngineKind | None:
        """The kind of this name."""
        return next((kind for kind in self.kinds if kind.name == name), None)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """All kinds, loaded once. Never raises: a plug-in that is broken is left out, and told."""
    kinds: dict[str, EngineKind] = {}
    refused: list[Refused] = []
    own = __name__.partition(".")[0]
    entries = importlib.metadata.entry_points(group=GROUP)
    # Ours first, so that no other package takes the place of one.
    for entry in sorted(entries, key=lambda entry: (not entry.value.startswith(f"{own}."), entry.name)):
        why, kind = _load(entry)
        if kind is not None and kind.name in kinds:
            why, kind = f"there is an engine named {clean(kind.name, 40)} already", None
        if kind is None:
            package = entry.dist.name if entry.dist is not None else "an unknown package"
            refused.append(Refused(clean(entry.name, 40), clean(package, 60), why))
        else:
            kinds[kind.name] = kind
    return Registry(tuple(sorted(kinds.values(), key=lambda kind: (kind.rank, kind.name))), tuple(refused))


def _load(entry: importlib.metadata.EntryPoint) -> tuple[str, EngineKind | None]:
    """(why it is refused, None), or ("", the kind)."""
    try:
        kind = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - somebody else's code
        return f"it cannot be loaded ({clean(f'{type(error).__name__}: {error}', 100)})", None
    if not isinstance(kind, EngineKind):
        return f"{clean(entry.value, 80)} is no EngineKind", None
    return problem_of(kind), kind if not problem_of(kind) else None


def problem_of(kind: EngineKind) -> str:
    """Why a kind may not be used, as one sentence; empty when it may."""
    if not kind.name or clean(kind.name, 40) != kind.name:
        return "it has no name that can be shown"
    try:
        re.compile(kind.look.programs)
    except (re.error, TypeError) as error:
        return f"its expression for programs is none ({clean(str(error), 80)})"
    never = harmless.forbidden(kind.allowed_paths)
    if never:
        return f"it asks for GET {clean(never[0], 60)}, which changes engines"
    confirming = {sign.confirmed_by.path for sign in kind.signs if sign.confirmed_by is not None}
    if kind.fragile is not None:
        confirming.add(kind.fragile.sign.path)
    strange = {sign.path for sign in kind.signs} - harmless.PROBES
    strange |= confirming - harmless.PROBES - harmless.CONFIRMATIONS
    if strange:
        path = clean(min(strange), 60)
        return f"it asks unknown servers for GET {path}, which is not on the list of harmless questions"
    return ""
