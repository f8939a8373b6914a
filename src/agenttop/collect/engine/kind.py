"""What an engine's module tells about itself: how it is recognised, which GETs it may make, who reads it.

A module in `kinds/`, or of somebody else's package, defines one `EngineKind` and is listed in the entry-point
group `agenttop.engines`. That is all it takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from agenttop.collect.engine.base import EngineAdapter
from agenttop.collect.engine.http import EngineClient, Reply
from agenttop.collect.process import ServerProcess


class Sign(msgspec.Struct, frozen=True):
    """A reply that only this engine gives."""

    path: str
    """One of `harmless.PROBES`: it is asked of servers that are not known yet."""
    shows: Callable[[Reply], bool]
    """Asked for replies of status 200; true when it can be no other engine."""
    confirmed_by: Sign | None = None
    """A second reply that must agree, where the first one alone leaves a doubt. Its path may also be one of
    `harmless.CONFIRMATIONS`."""


class Fragile(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is told whose list of models may not even be asked for."""

    may_be: Callable[[Reply], bool]
    """Whether an answer of any status to `/props` may be its own."""
    sign: Sign
    """Asked then, before the list of models. Its path may also be one of `harmless.CONFIRMATIONS`."""


class ProcessLook(msgspec.Struct, frozen=True, kw_only=True):
    """How its process looks from outside."""

    programs: str = r"(?!)"
    """Expression for the whole name of the program, or of the script that an interpreter runs."""
    modules: tuple[str, ...] = ()
    """After `python -m`; prefixes."""
    ports: tuple[int, ...] = ()
    """Where it listens when nothing is said."""
    port_options: tuple[str, ...] = ("--port",)
    images: tuple[str, ...] = ()
    """Parts of the names of its container images."""
    environment: frozenset[str] = frozenset()
    """Variables of the process that its adapter reads."""

    def fits(self, program: str, module: str = "") -> bool:
        """Whether a program of this name, or a module run by Python, is this engine's."""
        if re.fullmatch(self.programs, program):
            return True
        return bool(module) and module.startswith(self.modules or ("\0",))


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter may know besides the replies."""

    process: ServerProcess | None = None
    """The server's, where it runs on this host and can be seen; its children as they were then."""
    look_again: Callable[[], ServerProcess | None] | None = None
    """The process as it is now, for a front whose children come and go; slow (tens of milliseconds): call it
    in a thread, every 10 s or so. None where processes may not be looked at."""
    metrics: bool = True
    """Whether `/metrics` may be asked where a scrape changes something for other readers (llama.cpp)."""

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self.process.pid if self.process is not None else None


class EngineKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of engine."""

    name: str
    """As it is shown."""
    allowed_paths: frozenset[str]
    """The only GETs its adapter may make; see `EngineClient.get` for paths with a query."""
    adapter: Callable[[EngineClient, Circumstances], EngineAdapter]
    owners: tuple[str, ...] = ()
    """`owned_by` of the first entry of `/v1/models`, in lower case."""
    signs: tuple[Sign, ...] = ()
    fragile: Fragile | None = None
    """For an engine that GET `/v1/models` harms: where it is told by this, no usual question is put."""
    look: ProcessLook = ProcessLook()
    rank: int = 50
    """Lower ones are asked first: imitators before those they imitate, unless the signs of these are beyond
    doubt."""
    imitates: frozenset[str] = frozenset()
    """Kinds that its replies alone are taken for. Where the process is this kind's, its word counts more."""
    reads_children: bool = False
    """Starts servers of its own and reads them itself, so that they are not listed beside it."""
    metrics_prefixes: tuple[str, ...] = ()
    """How its samples begin, for a port that serves `/metrics` and no API."""


GENERIC = "openai"
"""Name of the kind for every other OpenAI-compatible server."""
