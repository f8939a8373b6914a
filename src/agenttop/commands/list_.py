"""`agenttop list`: sessions that run and recordings that exist."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from agenttop.errors import AgenttopError
from agenttop.model import units
from agenttop.model.text import printable

RECENT_S = 60.0
"""Engines that were seen so shortly before the end are listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `list`."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print both lists. A recording that cannot be read has its reason in its row."""
    from agenttop import paths
    from agenttop.commands.doors import running

    sessions = [_session(door) for door in running()]
    live = {session["recording"] for session in sessions}
    folder = paths.recordings()
    from agenttop.record.schema import SUFFIX

    recordings = [_recording(path, str(path) in live) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    if arguments.json:
        from agenttop.commands.cells import json_text

        out = {"schema": 1, "sessions": sessions, "folder": str(folder), "recordings": recordings}
        sys.stdout.write(json_text(out))
    else:
        sys.stdout.write(_text(sessions, recordings, folder))
    return 0


def _session(door: Any) -> dict[str, Any]:
    return {
        "session": door.session,
        "pid": door.pid,
        "host": door.host,
        "started_unix": door.started_unix,
        "recording": door.recording,
        "engines": door.engines,
        "agents": door.agents,
        "profile": door.profile,
        "demo": door.demo,
        "simulated": door.simulated,
        "speedup": door.speedup,
        "consoles": door.consoles,
    }


def _recording(path: Path, live: bool) -> dict[str, Any]:
    from agenttop.model.frames import EngineSample, Level, LoadSample, Turn
    from agenttop.record.read import Recording

    row: dict[str, Any] = {"path": str(path), "size_bytes": None, "recording_now": live}
    try:
        row["size_bytes"] = _size(path)
        with Recording(path) as recording:
            session = recording.session
            duration = recording.duration
            engines = {e.engine: e for e in recording.of(EngineSample, duration - RECENT_S)}.values()
            row |= {
                "session": session.session,
                "host": session.host,
                "started_unix": session.started_unix,
                "duration_s": duration,
                "demo": session.demo,
                "simulated": simulated_host(session, engines),
                "speedup": session.speedup,
                "engines": [engine.name for engine in engines],
                "models": [engine.model for engine in engines if engine.model],
                "levels": [level.agents for level in recording.rows(Level) if isinstance(level, Level)],
                "agents_max": recording.largest(LoadSample, "active"),
                "turns": recording.count(Turn),
                "finished": recording.finished,
            }
    except (AgenttopError, OSError) as error:
        row["error"] = str(error)
    return row


def simulated_host(session: Any, engines: Any) -> str | None:
    """The host that the session's engine imitates; None where what was measured is real."""
    return session.simulated or next((engine.simulated for engine in engines if engine.simulated), None)


def _not_real(row: dict[str, Any]) -> str:
    """` (RTX 5090 sim, 20x)`: times of such a session are simulated ones; nothing for a real engine."""
    if row["simulated"] is None:
        return ""
    return f" ({printable(row['simulated'])} sim, {row['speedup']:g}x)"


def _size(path: Path) -> int:
    side = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (side.stat().st_size if side.exists() else 0)


def _text(sessions: list[dict[str, Any]], recordings: list[dict[str, Any]], folder: Path) -> str:
    from agenttop.commands.cells import aligned

    out = []
    if sessions:
        header = ("running", "pid", "for", "agents", "engines")
        now = time.time()
        rows = [
            (
                session["session"],
                str(session["pid"]),
                units.clock(now - session["started_unix"]),
                str(session["agents"]),
                _some(session["engines"]) + _not_real(session),
            )
            for session in sessions
        ]
        out.append(aligned(header, rows) + "\nenter one with: agenttop attach SESSION\n")
    else:
        out.append("no session runs on this host\n")
    if not recordings:
        return "\n".join([*out, f"no recordings in {folder}\n"])
    columns = ("recording", "host", "engine", "began", "length", "size", "agents", "turns")
    readable = [_row(row) for row in recordings if "error" not in row]
    if readable:
        out.append(aligned(columns, readable, left=3))
    broken = [f"{printable(row['error'])}\n" for row in recordings if "error" in row]
    if broken:
        out.append("".join(broken))
    return "\n".join([*out, f"in {folder}\n"])


def _some(urls: list[str], most: int = 2) -> str:
    """The first few, and how many more."""
    more = f" +{len(urls) - most}" if len(urls) > most else ""
    return (", ".join(urls[:most]) or units.MISSING) + more


def _counted(names: list[str]) -> str:
    """Each name once, with how often: `llama.cpp ×3`."""
    counts = Counter(names)
    return ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.items()) or units.MISSING


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["started_unix"]))
    agents = ",".join(map(str, row["levels"])) or units.count(row["agents_max"])
    names = _counted(row["engines"])
    return (
        Path(row["path"]).name,
        row["host"],
        names + (_not_real(row) or (" (demo)" if row["demo"] else "")),
        began,
        units.clock(row["duration_s"]) + (" +" if row["recording_now"] else ""),
        units.size(row["size_bytes"]),
        agents,
        units.count(row["turns"]),
    )
