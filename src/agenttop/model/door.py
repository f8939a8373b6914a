"""How a running session is found again: one small private file per session."""

from __future__ import annotations

import msgspec


class Door(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running session as its file in `paths.sessions()` describes it."""

    schema: int = 1
    session: str
    pid: int
    host: str
    started_unix: float
    token: str
    """Said first by whoever connects; the file is readable by its owner only."""
    unix: str | None = None
    """Path of the session's socket, where the system has such sockets."""
    port: int | None = None
    """Else a port on 127.0.0.1."""
    recording: str | None = None
    engines: list[str] = []
    agents: int = 0
    profile: str | None = None
    demo: bool = False
    simulated: str | None = None
    """As in `Session`: the host that a simulated engine stands for."""
    speedup: float = 1.0
    consoles: int = 0


class Knock(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a console that connects."""

    token: str
