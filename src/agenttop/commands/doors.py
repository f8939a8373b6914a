"""Sessions that run on this host, as their private files tell."""

from __future__ import annotations

import contextlib

import msgspec

from agenttop import paths
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.door import Door
from agenttop.oslayer import pid_alive


def running() -> list[Door]:
    """Every session whose node is alive, oldest first. Files left behind by a killed node are removed."""
    doors: list[Door] = []
    for path in sorted(paths.sessions().glob("*.json")):
        try:
            door = msgspec.json.decode(path.read_bytes(), type=Door)
        except (OSError, msgspec.DecodeError):
            continue
        if pid_alive(door.pid):
            doors.append(door)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
                path.with_suffix(".sock").unlink(missing_ok=True)
    return sorted(doors, key=lambda door: door.started_unix)


def find(name: str | None) -> Door:
    """The session meant. Raises AgenttopError when there is none, UsageError when it is not clear which."""
    doors = running()
    if not doors:
        raise AgenttopError("no session runs on this host", "start one with `agenttop` or `agenttop run`")
    matching = [door for door in doors if name is None or door.session.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(door.session for door in (matching or doors))
    if not matching:
        raise UsageError(f"no session begins with '{name}'", f"running: {names}")
    raise UsageError("several sessions run", f"name one: {names}")
