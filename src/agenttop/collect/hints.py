"""Which engine a command line starts, and at which port. Pure but for the list of kinds."""

from __future__ import annotations

import re

from agenttop.collect.engine.kind import EngineKind
from agenttop.collect.engine.registry import registry
from agenttop.collect.process import Command

USUAL_PORTS = (8080, 8000, 11434, 30000, 23333, 3000, 1234, 5001, 5000, 4000, 8081)
"""Asked even when the process behind them cannot be seen (another user's, a container's)."""

_INTERPRETER = re.compile(r"(python[\d.]*|node|bash|sh|env|uv|mpirun)(\.exe)?", re.IGNORECASE)
_FIRST_WORDS = 6


def kind_of(command: Command) -> EngineKind | None:
    """The kind of engine a command line starts; None for everything else."""
    words = [word for word in command.words[:_FIRST_WORDS] if word]
    if not words:
        return None
    names = [_last(words[0])]
    module = ""
    if _INTERPRETER.fullmatch(names[0]):
        if "-m" in words[:-1]:
            module = words[words.index("-m") + 1]
        names += [_last(word) for word in words[1:3] if not word.startswith("-")]
    for kind in registry().kinds:
        if any(kind.look.fits(name, module) for name in names):
            return kind
    return None


def port_in(command: Command, kind: EngineKind) -> int | None:
    """The port that the command line names; None when it names none, or 0."""
    port = command.number(*kind.look.port_options)
    return port if port is not None and 0 < port < 65536 else None


def _last(word: str) -> str:
    return re.split(r"[/\\]", word)[-1]
