"""Writing what was imported: a profile, and the trace next to it. Nothing that exists is overwritten."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

import agenttop
from agenttop.agents.imports.fit import Observed
from agenttop.agents.imports.reading import Reading
from agenttop.agents.tracefile import VERSION, TraceHead, TraceSession
from agenttop.errors import AgenttopError, UsageError

TRACE_ENDING = ".trace.jsonl"


def places(name: str, out: Path | None, folder: Path, with_trace: bool) -> tuple[Path, Path]:
    """(profile, trace) to write. Raises UsageError for a place that is taken."""
    profile = out if out is not None else folder / f"{name}.toml"
    if profile.suffix != ".toml":
        raise UsageError(f"{profile}: a profile's name ends with .toml")
    trace = profile.with_name(profile.stem + TRACE_ENDING)
    for path in (profile, trace) if with_trace else (profile,):
        if path.exists():
            raise UsageError(f"{path} exists already", "remove it, or choose another with --name or --out")
    return profile, trace


def store(path: Path, text: str) -> None:
    """A new text file. Raises AgenttopError when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise AgenttopError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


class TraceWriter:
    """Gathers sessions in a temporary file; `finish` puts the head before them and makes the file appear.

    The file may be read by its owner only: even sizes and times say something about a person's day.
    """

    def __init__(self, path: Path) -> None:
        """Raises AgenttopError when the folder cannot be written to."""
        self._path = path
        self.turns = 0
        self.sessions = 0
        self.subagents = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._body = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise self._failed(error) from error

    def add(self, session: TraceSession) -> None:
        """One more session."""
        self.turns += len(session.turns)
        if session.parent is None:
            self.sessions += 1
        else:
            self.subagents += 1
        try:
            self._body.write(msgspec.json.encode(session) + b"\n")
        except OSError as error:
            raise self._failed(error) from error

    def finish(self, reading: Reading, notes: list[str]) -> None:
        """Write the file."""
        report = reading.report
        head = TraceHead(
            agenttop_trace=VERSION,
            format=sorted(reading.formats),
            sessions=self.sessions,
            turns=self.turns,
            subagents=self.subagents,
            files=sum(reading.formats.values()),
            skipped=report.skipped,
            sizes="estimated" if report.estimated else "counted",
            text=reading.wanted.with_text,
            agenttop=agenttop.__version__,
            notes=[*report.notes, *notes],
        )
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(msgspec.json.encode(head) + b"\n")
                self._body.seek(0)
                shutil.copyfileobj(self._body, stream)
        except OSError as error:
            with suppress(OSError):
                if not isinstance(error, FileExistsError):
                    self._path.unlink()
            raise self._failed(error) from error

    def close(self) -> None:
        """Let the temporary file go."""
        self._body.close()

    def _failed(self, error: OSError) -> AgenttopError:
        return AgenttopError(f"cannot write {self._path}: {(error.strerror or str(error)).lower()}")


def gather(reading: Reading, writer: TraceWriter | None) -> Observed:
    """Read all sessions: what they show, and into the trace where one is written."""
    observed = Observed()
    for session in reading.sessions():
        observed.add(session)
        if writer is not None:
            writer.add(session)
    return observed
